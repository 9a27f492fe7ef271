package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// tiny returns options for the shortest run.
func tiny(dsn string, scenarios ...string) options {
	return options{scenarios: scenarios, sizes: tinySizes(), databaseURL: dsn}
}

// left reports whether the database of the benchmark exists.
func left(t *testing.T, pool *pgxpool.Pool) (exists bool) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "select exists (select from pg_database where datname = $1)",
		databaseName).Scan(&exists); err != nil {
		t.Fatal(err)
	}
	return exists
}

func TestForeignDatabaseIsRefusedAndKept(t *testing.T) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	if _, err := pool.Exec(t.Context(), "create database "+databaseName); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := pool.Exec(t.Context(), "drop database "+databaseName); err != nil {
			t.Errorf("the foreign database is gone: %v", err)
		}
	}()
	var out strings.Builder
	err := run(t.Context(), tiny(dsn, "append"), &out)
	if err == nil || !strings.Contains(err.Error(), "there is already a database "+databaseName+";") ||
		!strings.HasSuffix(err.Error(), "drop database "+databaseName) {
		t.Errorf("got %v, want the database named, and how to remove it", err)
	}
	if out.Len() > 0 {
		t.Errorf("it printed %q", out.String())
	}
}

func TestInterruptedRunRemovesItsDatabase(t *testing.T) {
	for _, roundTrip := range []string{"0s", "2ms"} {
		t.Run(roundTrip, func(t *testing.T) { interruptRun(t, "-round-trip", roundTrip) })
	}
}

// interruptRun interrupts a run that has these arguments besides.
func interruptRun(t *testing.T, args ...string) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() {
		ended <- program.Execute(ctx, command(), append(args, "-scenario", "append", "-rounds", "1000000",
			"-database-url", dsn), io.Discard, io.Discard)
	}()
	waitFor(t, ended, "the database exists", func() bool { return left(t, pool) })
	interrupt()
	if err := <-ended; !errors.Is(err, context.Canceled) || err.Error() != context.Canceled.Error() {
		t.Errorf("ended with %v, want the interruption alone", err)
	}
	if left(t, pool) {
		t.Error("the database is left")
	}
}

func TestInterruptedRunRemovesItsFiles(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	// No database is named, and none is needed.
	t.Setenv("DATABASE_URL", "")
	ended := make(chan error, 1)
	go func() {
		ended <- program.Execute(ctx, command(), []string{"-scenario", "embedded", "-rounds", "1000000"}, io.Discard,
			io.Discard)
	}()
	files := func() int {
		list, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	waitFor(t, ended, "there are files", func() bool { return files() > 0 })
	interrupt()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v, want the interruption", err)
	}
	if n := files(); n > 0 {
		t.Errorf("%d files are left", n)
	}
}

// waitFor waits for a condition, unless the command ends.
func waitFor(t *testing.T, ended <-chan error, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case err := <-ended:
			t.Fatalf("ended with %v before %s", err, what)
		}
	}
}
