package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatalf("connect to %s: %v", dsn, err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// ask runs statements on a new connection and returns the last value as text.
func ask(t *testing.T, dsn string, statements ...string) string {
	t.Helper()
	conn := connect(t, dsn)
	defer conn.Close(context.Background())
	answer := ""
	for _, statement := range statements {
		rows, _ := conn.Query(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		for rows.Next() {
			values, err := rows.Values()
			try(t, err)
			answer = fmt.Sprint(values[0])
		}
		if err := rows.Err(); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return answer
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stopAtEnd stops a server at the end of the test.
func stopAtEnd(t *testing.T, s *pgtest.Server) {
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// folder returns the temporary folder of a server.
func folder(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	return filepath.Dir(ask(t, s.DSN("postgres"), "show data_directory"))
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

// memory returns the shared memory of a running server: the ids of segments, and files.
func memory(t *testing.T, s *pgtest.Server, dir string) (ids, files []string) {
	t.Helper()
	lock, err := os.ReadFile(dir + "/data/postmaster.pid")
	if err != nil {
		t.Fatal(err)
	}
	ids = strings.Fields(strings.Split(string(lock), "\n")[6])[1:]
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[len(fields)-1], "/dev/shm/") {
			files = append(files, fields[len(fields)-1])
		}
	}
	if len(ids) == 0 || len(files) == 0 {
		t.Fatalf("the server has segments %v and files %v", ids, files)
	}
	return ids, files
}

// segments returns the ids of all shared memory of the system.
func segments(t *testing.T) map[string]bool {
	t.Helper()
	content, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		ids[strings.Fields(line)[1]] = true
	}
	return ids
}

func TestServerAnswersOnSocketAndLoopback(t *testing.T) {
	t.Parallel()
	s := pgtest.Private(t, pgtest.Options{Settings: map[string]string{
		"max_connections": "30", "cluster_name": `it's a \ test`,
	}})
	for _, dsn := range []string{s.DSN("postgres"), s.TCPDSN("postgres")} {
		for setting, want := range map[string]string{
			"max_connections": "30", "cluster_name": `it's a \ test`, "max_prepared_transactions": "50", "fsync": "off",
			"server_encoding": "UTF8", "wal_level": "replica",
		} {
			if got := ask(t, dsn, "show "+setting); got != want {
				t.Errorf("%s: %s is %q, want %q", dsn, setting, got, want)
			}
		}
	}
	if s.PID() == 0 || !strings.Contains(s.Log(), "ready to accept connections") {
		t.Errorf("process %d, log %q", s.PID(), s.Log())
	}
}

func TestServerWithoutTCP(t *testing.T) {
	t.Parallel()
	s := pgtest.Private(t, pgtest.Options{NoTCP: true})
	if got := ask(t, s.DSN("postgres"), "select 1"); got != "1" {
		t.Errorf("got %s by the socket", got)
	}
	if conn, err := pgx.Connect(t.Context(), s.TCPDSN("postgres")); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the server listens on 127.0.0.1")
	}
}

func TestStopLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the processes and the shared memory of a server")
	}
	for name, before := range map[string]func(*testing.T, *pgtest.Server){
		"running": func(*testing.T, *pgtest.Server) {},
		"killed": func(t *testing.T, s *pgtest.Server) {
			try(t, s.Kill())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := pgtest.Private(t, pgtest.Options{})
			dir := folder(t, s)
			conn := connect(t, s.DSN("postgres")) // an open session must not delay the stop
			if _, err := conn.Exec(t.Context(), "begin"); err != nil {
				t.Fatal(err)
			}
			if len(pgtest.ProcessesIn(dir+"/data")) == 0 {
				t.Error("no process was found while the server runs")
			}
			ids, files := memory(t, s, dir)
			if all := segments(t); !all[ids[0]] {
				t.Errorf("segment %s of the server is not in %v", ids[0], all)
			}
			before(t, s)
			for range 2 {
				try(t, s.Stop(t.Context()))
			}
			gone(t, dir)
			if left := pgtest.ProcessesIn(dir + "/data"); len(left) != 0 {
				t.Errorf("processes %v are left", left)
			}
			if all := segments(t); all[ids[0]] {
				t.Errorf("segment %s is left", ids[0])
			}
			for _, file := range files {
				gone(t, file)
			}
			if s.PID() != 0 || s.Log() == "" {
				t.Errorf("after the stop: process %d, log %q", s.PID(), s.Log())
			}
			if err := s.StartAgain(t.Context()); err == nil {
				t.Error("a stopped server started again")
			}
		})
	}
}

func TestKillEndsSessionsThatNeverWait(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the processes of a server")
	}
	t.Parallel()
	s := pgtest.Private(t, pgtest.Options{})
	busy, witness := connect(t, s.DSN("postgres")), connect(t, s.DSN("postgres"))
	ended := make(chan error)
	go func() {
		_, err := busy.Exec(context.Background(), "do $$ begin loop end loop; end $$")
		ended <- err
	}()
	until(t, "the session is busy", func() bool {
		var state string
		err := witness.QueryRow(t.Context(), "select state from pg_stat_activity where pid = $1",
			busy.PgConn().PID()).Scan(&state)
		return err == nil && state == "active"
	})
	try(t, s.Kill())
	if err := <-ended; err == nil {
		t.Error("a session outlived its server")
	}
	try(t, s.StartAgain(t.Context()))
}

func TestFailedStartLeavesNothing(t *testing.T) {
	base := t.TempDir()
	try(t, os.Chmod(base, 0o755))
	t.Setenv("TMPDIR", base)
	_, err := pgtest.Start(t.Context(), pgtest.Options{Settings: map[string]string{"shared_buffers": "nonsense"}})
	if err == nil || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("got %v, want an error that names the setting", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pgtest.Start(ctx, pgtest.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	left, err := os.ReadDir(base)
	if err != nil || len(left) != 0 {
		t.Errorf("left in %s: %v, %v", base, left, err)
	}
}

func TestKilledServerStartsAgainWithItsData(t *testing.T) {
	t.Parallel()
	s := pgtest.Private(t, pgtest.Options{})
	dsn, pid := s.DSN("postgres"), s.PID()
	ask(t, dsn, "create table t (n int)", "insert into t select generate_series(1, 1000)", "vacuum t")
	busy := connect(t, dsn)
	ended := make(chan error)
	go func() {
		_, err := busy.Exec(context.Background(), "select pg_sleep(3600)")
		ended <- err
	}()
	try(t, s.Kill())
	if err := <-ended; err == nil {
		t.Error("a session outlived its server")
	}
	if s.PID() != 0 {
		t.Errorf("process %d after Kill", s.PID())
	}
	try(t, s.StartAgain(t.Context()))
	if got := ask(t, dsn, "select count(*) from t"); got != "1000" {
		t.Errorf("%s rows, want 1000", got)
	}
	if s.PID() == pid || s.PID() == 0 {
		t.Errorf("process %d after %d", s.PID(), pid)
	}
	if err := s.StartAgain(t.Context()); err == nil {
		t.Error("a running server started again")
	}
}

func TestRestartKeepsAddressesAndData(t *testing.T) {
	t.Parallel()
	s := pgtest.Private(t, pgtest.Options{})
	dsn := s.TCPDSN("postgres")
	ask(t, dsn, "create table t (mode text)")
	for _, mode := range []string{"fast", "immediate"} {
		pid := s.PID()
		ask(t, dsn, "insert into t values ('"+mode+"')")
		try(t, s.Restart(t.Context(), mode))
		if s.PID() == pid {
			t.Errorf("%s: still process %d", mode, pid)
		}
	}
	if got := ask(t, dsn, "select string_agg(mode, ',' order by mode) from t"); got != "fast,immediate" {
		t.Errorf("got %s", got)
	}
	if err := s.Restart(t.Context(), "smart"); err == nil || !strings.Contains(err.Error(), "smart") {
		t.Errorf("got %v, want an error that names the mode", err)
	}
}
