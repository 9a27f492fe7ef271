package pgtest_test

import (
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// A crash loses commits that were reported, and the numbers that they drew are handed out again.
func TestCrashLosesAsynchronousCommits(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]func(*testing.T, *pgtest.Server) error{
		"a backend is killed": func(t *testing.T, s *pgtest.Server) error { return s.CrashBackend(t.Context()) },
		"immediate stop":      func(t *testing.T, s *pgtest.Server) error { return s.Restart(t.Context(), "immediate") },
		"the server is killed": func(t *testing.T, s *pgtest.Server) error {
			if err := s.Kill(); err != nil {
				return err
			}
			return s.StartAgain(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := pgtest.Private(t, pgtest.Options{Settings: pgtest.AsyncCommits(map[string]string{"shared_buffers": "64MB"})})
			dsn := s.DSN("postgres")
			ask(t, dsn, "create table t (n bigint generated always as identity, round int)", "insert into t (round) values (1)",
				"set synchronous_commit = on", "select pg_logical_emit_message(true, '', '')") // kept
			if got := ask(t, dsn, "show shared_buffers"); got != "64MB" {
				t.Errorf("shared_buffers is %s", got)
			}
			for range 5 { // the server's own writer may have come in between
				before := ask(t, dsn, "insert into t (round) select 2 from generate_series(1, 100) returning n")
				started := ask(t, dsn, "select pg_postmaster_start_time()::text")
				try(t, crash(t, s))
				if again := ask(t, dsn, "select pg_postmaster_start_time()::text"); (again == started) != (name == "a backend is killed") {
					t.Errorf("the server started at %s, and before at %s", again, started)
				}
				if ask(t, dsn, "select count(*) from t where n = "+before) == "1" {
					continue
				}
				if got := ask(t, dsn, "insert into t (round) values (3) returning n <= "+before); got != "true" {
					t.Error("the numbers of lost rows were not handed out again")
				}
				if got := ask(t, dsn, "select count(*) from t where round = 1"); got != "1" {
					t.Errorf("%s rows of a synchronous commit, want 1", got)
				}
				return
			}
			t.Error("nothing was lost in five crashes")
		})
	}
}
