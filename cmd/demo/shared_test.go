package main

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

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
		printed = errs.String()
		if strings.Count(printed, "\n") != 1 {
			t.Errorf("demo %q printed %q, want one line", args, printed)
		}
	}
	if got != status || !strings.Contains(printed, want) {
		t.Errorf("demo %q: exit status %d, printed %q; want %d, and %q\n%s", args, got, printed, status, want,
			errs.String())
	}
}

func TestBadFlagsOfSharedCommandsAreOneClearLine(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	const nowhere = "postgres://127.0.0.1:1/x"
	for _, name := range []string{"node", "load", "status", "check", "clean"} {
		runs(t, 1, "none of -file, -database-url and DATABASE_URL is set", name)
		runs(t, 1, "connect", name, "-database-url", nowhere)
		runs(t, 1, "unknown flag: --evnts", name, "-evnts", "1")
	}
	for _, test := range []struct {
		says string
		args []string
	}{
		{"-lease-time needs PostgreSQL: a file has no leases", []string{"node", "-file", "x", "-lease-time", "9s"}},
		{"-file and -database-url exclude each other", []string{"status", "-file", "x", "-database-url", "y"}},
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
		if test.args[0] != "serve" && !slices.Contains(test.args, "-file") {
			test.args = append(test.args, "-database-url", nowhere)
		}
		runs(t, 1, test.says, test.args...)
	}
	runs(t, 1, `unknown command "nonsense"`, "nonsense")
}

func TestNodesThatStartAtOnceShareTheTables(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				d, err := p.share(p.t.Context(), 0, zap.NewNop())
				if err != nil {
					p.t.Error(err)
					return
				}
				d.Close()
			})
		}
		all.Wait()
		p.existing()
	})
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
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		runs := func(status int, want string, args ...string) {
			p.t.Helper()
			runs(p.t, status, want, p.args(args...)...)
		}
		for _, command := range []string{"status", "check"} {
			runs(1, "no tables of the demo", command)
		}
		runs(0, "nothing to remove", "clean")
		if left := p.left(); left != "" {
			p.t.Errorf("%s was created", left)
		}

		load := []string{"load", "-events", "300", "-rate", "0", "-seed", "5"}
		runs(0, "appended 300 of 300 events", load...)
		runs(1, "streams is 300 behind", "check", "-wait", "1ms")
		p.apply()
		runs(0, "verified: every event was applied exactly once\n", "check")
		runs(0, "appended 300 of 300 events", load...) // the same events, in streams of their own
		runs(1, "no progress for 1ms: ", "check", "-wait", "1ms")
		p.apply()
		runs(0, "600 events", "check")
		runs(0, "events_by_type  not owned       0       0        0    -     -  -", "status")

		p.change("insert into {schema}.events_by_role values ('NONE', 1)")
		runs(1, `events_by_role has 1 for "NONE", but the events give nothing`, "check")
		p.change("delete from {schema}.events_by_role where role = 'NONE'")
		runs(0, "verified", "check")

		runs(1, "there is already a ", "-events", "10") // the plain demo refuses existing tables
		runs(0, "removed the ", "clean")
		if left := p.left(); left != "" {
			p.t.Errorf("%s is left", left)
		}
	})
}

func TestCleanLeavesOtherSchemasAlone(t *testing.T) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	program.MustExec(t, pool, "create schema other")
	t.Setenv("DATABASE_URL", dsn) // in place of the flag
	runs(t, 0, "appended 3 of 3 events", "load", "-events", "3", "-rate", "0")
	runs(t, 1, "there is already a schema demo and a schema demo_millrace", "-events", "10")
	runs(t, 0, "removed the schemas demo, demo_millrace, demo_millrace_default\n", "clean")
	if left := program.Schemas(t, pool); left != "other" {
		t.Errorf("schemas are %q, want other alone", left)
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
	onEachStore(t, func(p testPlace) {
		watch := start(p.t, p.args("status", "-watch", "20ms")...)
		watch.awaitOutput(`(?s)no tables of the demo.*no tables of the demo`)
		runs(p.t, 0, "appended 5 of 5", p.args("load", "-events", "5")...)
		watch.awaitOutput("no projections: nodes create those that they register\n")
		p.apply()
		watch.awaitOutput(`streams +not owned +0 +0 +0 +- +- +- +5 +1\n`)
		watch.signal(syscall.SIGINT)
		watch.awaitExit(0)
	})
}
