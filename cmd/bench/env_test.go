package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

func TestForeignSchemaIsRefusedAndKept(t *testing.T) {
	for _, name := range []string{"bench", "bench_millrace", "bench_millrace_default"} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Database(t)
			pool := program.Pool(t, dsn)
			program.MustExec(t, pool, "create schema "+name+"; create table "+name+".counts (precious text); insert into "+name+".counts values ('x')")
			var out strings.Builder
			err := run(t.Context(), tiny(dsn), &out)
			if err == nil || !strings.Contains(err.Error(), "there is already a schema "+name+";") ||
				!strings.HasSuffix(err.Error(), "drop schema if exists "+name+" cascade") {
				t.Errorf("got %v, want the schema named, and how to remove it", err)
			}
			if out.Len() > 0 {
				t.Errorf("it printed %q", out.String())
			}
			if left := program.Schemas(t, pool); left != name {
				t.Errorf("schemas are %q, want %s as it was", left, name)
			}
			var precious string
			if err := pool.QueryRow(t.Context(), "select precious from "+name+".counts").Scan(&precious); err != nil || precious != "x" {
				t.Errorf("the table holds %q: %v", precious, err)
			}
		})
	}
}

func TestSecondRunIsRefusedAndDoesNotDisturbTheFirst(t *testing.T) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	first, err := newEnv(t.Context(), dsn, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newEnv(t.Context(), dsn, 1); err == nil || !strings.Contains(err.Error(), "there is already a schema bench and a schema bench_millrace and") {
		t.Errorf("got %v, want all schemas named", err)
	}
	if err := first.mustHold(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if err := first.close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := program.Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}
}

func TestInterruptedRunRemovesWhatItCreated(t *testing.T) {
	for _, m := range measurements {
		if m.embedded != nil {
			continue // see below
		}
		t.Run(m.name, func(t *testing.T) {
			dsn := pgtest.Database(t)
			pool := program.Pool(t, dsn)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			args := []string{"-only", m.name, "-rounds", "1000000", "-probes", "3", "-events", "2500", "-append-time", "20ms", "-database-url", dsn}
			ended := make(chan error, 1)
			go func() { ended <- program.Execute(ctx, command(), args, io.Discard, io.Discard) }()
			waitForEvents(t, pool)
			interrupt()
			if err := <-ended; !errors.Is(err, context.Canceled) || err.Error() != context.Canceled.Error() {
				t.Errorf("ended with %v, want the interruption alone", err)
			}
			if left := program.Schemas(t, pool); left != "" {
				t.Errorf("schemas %s are left", left)
			}
		})
	}
}

func TestInterruptedRunRemovesItsFiles(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	// No database is named, and none is needed.
	t.Setenv("DATABASE_URL", "")
	args := []string{"-only", "embedded", "-rounds", "1000000", "-append-time", "20ms"}
	ended := make(chan error, 1)
	go func() { ended <- program.Execute(ctx, command(), args, io.Discard, io.Discard) }()
	for begun := false; !begun; {
		files, err := filepath.Glob(filepath.Join(folder, "*", "handwritten.db"))
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("ended with %v", err)
		case <-time.After(time.Millisecond):
			begun = len(files) > 0
		}
	}
	interrupt()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v, want the interruption", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// waitForEvents returns when a measurement has begun.
func waitForEvents(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for found := false; !found; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatal("nothing was appended")
		}
		// At first the table does not exist.
		_ = pool.QueryRow(ctx, "select exists (select from bench_millrace_default.events)").Scan(&found)
	}
}
