package main

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// runs runs a command within this process, and checks its exit status and output.
func runs(t *testing.T, status int, want string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	got := execute(args, &out, &errs)
	printed := out.String()
	if status != 0 {
		if printed = errs.String(); strings.Count(printed, "\n") != 1 {
			t.Errorf("demo %q printed %q, want one line", args, printed)
		}
	}
	if got != status || !strings.Contains(printed, want) {
		t.Errorf("demo %q: exit status %d, printed %q; want %d, and %q\n%s", args, got, printed, status, want, errs.String())
	}
}

func TestBadFlagsOfSharedCommandsAreOneClearLine(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	const nowhere = "postgres://127.0.0.1:1/x"
	for _, name := range []string{"node", "load", "status", "check", "clean"} {
		runs(t, 1, "neither -database-url nor DATABASE_URL is set", name)
		runs(t, 1, "connect", name, "-database-url", nowhere)
		runs(t, 1, "unknown flag: --evnts", name, "-evnts", "1")
	}
	for _, test := range []struct {
		says string
		args []string
	}{
		{"-heartbeat (2s) must be at most a third of -lease-time (5s)", []string{"node", "-heartbeat", "2s"}},
		{"-heartbeat must be at least 1ms: 0s", []string{"node", "-heartbeat", "0s"}},
		{`unknown command "x"`, []string{"node", "x"}},
		{"-events must be at least 1: 0", []string{"load", "-events", "0"}},
		{"-rate must not be negative", []string{"load", "-rate", "-1"}},
		{"-writers must be from 1 to 1000: 0", []string{"load", "-writers", "0"}},
		{"-watch must be at least 1ms: 0s", []string{"status", "-watch=0s"}},
		{`-watch must be an interval such as 500ms: "soon"`, []string{"status", "-watch", "soon"}},
		{`unexpected argument "1s": only -watch takes an interval`, []string{"status", "1s"}},
		{"-wait must not be negative", []string{"check", "-wait=-1s"}},
		{"-port must be from 0 to 65535: 65536", []string{"serve", "-port", "65536"}},
	} {
		if test.args[0] != "serve" {
			test.args = append(test.args, "-database-url", nowhere)
		}
		runs(t, 1, test.says, test.args...)
	}
	runs(t, 1, `unknown command "nonsense"`, "nonsense")
}

func TestNodesThatStartAtOnceShareTheTables(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			d, err := openShared(t.Context(), dsn, 0, zap.NewNop())
			if err != nil {
				t.Error(err)
				return
			}
			d.Close()
		})
	}
	all.Wait()
	if got, want := program.Schemas(t, program.Pool(t, dsn)), "demo, demo_millrace, demo_millrace_default"; got != want {
		t.Errorf("schemas are %q, want %q", got, want)
	}
}

func TestSharedCommandsLeaveForeignSchemasAlone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"demo", "demo_millrace", "demo_millrace_default"} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Database(t)
			pool := program.Pool(t, dsn)
			program.MustExec(t, pool, "create schema "+name+"; create table "+name+".precious ()")
			for _, command := range []string{"node", "load", "status", "check", "clean"} {
				runs(t, 1, "another program created the schema "+name, command, "-database-url", dsn)
			}
			if left := program.Schemas(t, pool); left != name {
				t.Errorf("schemas are %q, want %s alone", left, name)
			}
			program.MustExec(t, pool, "drop table "+name+".precious")
		})
	}
}

func TestCheckNoticesCorruptionAndCleanLeavesNothing(t *testing.T) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	program.MustExec(t, pool, "create schema other")
	t.Setenv("DATABASE_URL", dsn) // in place of the flag
	for _, command := range []string{"status", "check"} {
		runs(t, 1, "no tables of the demo", command)
	}
	runs(t, 0, "nothing to remove", "clean")

	load := []string{"load", "-events", "300", "-rate", "0", "-seed", "5"}
	runs(t, 0, "appended 300 of 300 events", load...)
	runs(t, 1, "streams is 300 behind", "check", "-wait", "1ms")
	apply(t, dsn)
	runs(t, 0, "verified: every event was applied exactly once\n", "check")
	runs(t, 0, "appended 300 of 300 events", load...) // the same events, in streams of their own
	runs(t, 1, "no progress for 1ms: ", "check", "-wait", "1ms")
	apply(t, dsn)
	runs(t, 0, "600 events", "check")
	runs(t, 0, "events_by_type -            2        0      0  not owned\n", "status")

	program.MustExec(t, pool, "insert into demo.events_by_role values ('NONE', 1)")
	runs(t, 1, `events_by_role has 1 for "NONE", but the events give nothing`, "check")
	program.MustExec(t, pool, "delete from demo.events_by_role where role = 'NONE'")
	runs(t, 0, "verified", "check")

	// The plain demo refuses existing tables.
	runs(t, 1, "there is already a schema demo and a schema demo_millrace", "-events", "10")
	runs(t, 0, "removed the schemas demo, demo_millrace, demo_millrace_default\n", "clean")
	if left := program.Schemas(t, pool); left != "other" {
		t.Errorf("schemas are %q, want other alone", left)
	}
}

// apply applies all events.
func apply(t *testing.T, dsn string) {
	t.Helper()
	d, err := openShared(t.Context(), dsn, 0, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	runtime, err := newRuntime(millrace.Config{Store: d.Store}, new(fault))
	if err == nil {
		_, err = runtime.RunUntilIdle(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestInterruptedLoadPrintsItsProgress(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	load := start(t, "load", "-database-url", dsn, "-events", "1000000", "-rate", "200")
	load.awaitOutput(`appended \d+ of 1000000`)
	load.signal(syscall.SIGTERM)
	load.awaitExit(128 + int(syscall.SIGTERM))
	load.awaitOutput("\ndemo: interrupted by signal 15 .*\n$")
}

func TestServedDatabaseIsRemovedWhenInterrupted(t *testing.T) {
	t.Parallel()
	if _, err := pgtest.Find(); errors.Is(err, pgtest.ErrNotFound) {
		t.Skipf("needs a server of its own: %v", err)
	}
	serve := start(t, "serve", "-port", "0")
	dsn := serve.awaitOutput("export DATABASE_URL='(.*)'\n")
	at, err := url.Parse(dsn)
	if err != nil || at.Hostname() != "127.0.0.1" {
		t.Errorf("the URL is %q: %v", dsn, err)
	}
	start(t, "load", "-database-url", dsn, "-events", "10").awaitExit(0)
	var folder string
	pool := program.Pool(t, dsn)
	if err := pool.QueryRow(t.Context(), "show data_directory").Scan(&folder); err != nil {
		t.Fatal(err)
	}
	serve.signal(syscall.SIGINT)
	serve.awaitExit(0)
	if _, err := pgx.Connect(t.Context(), dsn); err == nil {
		t.Error("the server still runs")
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder remains: %v", err)
	}
}

func TestWatchedStatusContinuesUntilInterrupted(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	watch := start(t, "status", "-watch", "20ms", "-database-url", dsn)
	watch.awaitOutput(`(?s)no tables of the demo.*no tables of the demo`)
	runs(t, 0, "appended 5 of 5", "load", "-events", "5", "-database-url", dsn)
	watch.awaitOutput("none: no node has run yet\n")
	apply(t, dsn)
	watch.awaitOutput(`streams +- +1 +0 +0  not owned\n`)
	watch.signal(syscall.SIGINT)
	watch.awaitExit(0)
}
