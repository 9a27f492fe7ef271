package pgtest_test

import (
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// A crash loses acknowledged commits, and their identity values are assigned again.
func TestCrashLosesAsynchronousCommits(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]func(*testing.T, *pgtest.Server) error{
		"a backend is killed": func(t *testing.T, s *pgtest.Server) error { return s.CrashBackend(t.Context()) },
		"immediate stop": func(t *testing.T, s *pgtest.Server) error {
			return s.Restart(t.Context(), "immediate")
		},
		"the server is killed": func(t *testing.T, s *pgtest.Server) error {
			if err := s.Kill(); err != nil {
				return err
			}
			return s.StartAgain(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := pgtest.Private(t,
				pgtest.Options{Settings: pgtest.AsyncCommits(map[string]string{"shared_buffers": "64MB"})})
			dsn := s.DSN("postgres")
			ask(t, dsn, "create table t (n bigint generated always as identity, round int)",
				"insert into t (round) values (1)",
				"set synchronous_commit = on", "select pg_logical_emit_message(true, '', '')") // kept
			if got := ask(t, dsn, "show shared_buffers"); got != "64MB" {
				t.Errorf("shared_buffers is %s", got)
			}
			started := ask(t, dsn, "select pg_postmaster_start_time()::text")
			try(t, s.HoldWAL(t.Context()))
			last := ""
			for range 300 { // one commit each
				last = ask(t, dsn, "insert into t (round) values (2) returning n")
			}
			try(t, crash(t, s))
			if again := ask(t, dsn,
				"select pg_postmaster_start_time()::text"); (again == started) != (name == "a backend is killed") {
				t.Errorf("the server started at %s, before at %s", again, started)
			}
			if got := ask(t, dsn,
				"select count(*) filter (where round = 1) || ' ' || count(*) filter (where round = 2) from t"); got != "1 0" {
				t.Errorf("%s rows of a synchronous commit and of asynchronous ones, want 1 0", got)
			}
			if got := ask(t, dsn, "insert into t (round) values (3) returning n <= "+last); got != "true" {
				t.Error("the numbers of lost rows were not assigned again")
			}
		})
	}
}

// An orderly restart while the WAL is held loses nothing.
func TestOrderlyRestartLosesNoHeldCommits(t *testing.T) {
	t.Parallel()
	s := pgtest.Private(t, pgtest.Options{Settings: pgtest.AsyncCommits(nil)})
	ask(t, s.DSN("postgres"), "create table t (n int)")
	try(t, s.HoldWAL(t.Context()))
	ask(t, s.DSN("postgres"), "insert into t values (1)")
	try(t, s.Restart(t.Context(), "fast"))
	if got := ask(t, s.DSN("postgres"), "select count(*) from t"); got != "1" {
		t.Errorf("%s rows, want 1", got)
	}
	try(t, s.HoldWAL(t.Context()))
}
