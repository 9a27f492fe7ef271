package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/projection"
)

func TestRunIsVerifiedAndCheckNoticesCorruption(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	const events, poisoned = 1500, 12
	o := options{events: events, seed: 3, writers: 8, poison: poisoned, databaseURL: dsn, keep: true, json: true}
	var out bytes.Buffer
	s, err := runDemo(t.Context(), o, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !s.Verified || s.Events != events || s.DeadLetters.Left != poisoned {
		t.Errorf("verified %v, %d events, %d parked; want true, %d, %d", s.Verified, s.Events, s.DeadLetters.Left, events, poisoned)
	}
	var last summary
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || !last.Verified || last.Events != events {
		t.Errorf("the last line is %q: %v", lines[len(lines)-1], err)
	}
	for _, p := range s.Projections[:3] {
		if p.Applied+p.Parked != events || p.Checkpoint < events {
			t.Errorf("%s: %d applied, %d parked, checkpoint %d, of %d events", p.Name, p.Applied, p.Parked, p.Checkpoint, events)
		}
	}

	// The check notices each corruption.
	found, err := inspect(t.Context(), generate(events, o.seed), poisoned, o.seed)
	if err != nil {
		t.Fatal(err)
	}
	d := existing(t, dsn)
	pool := d.Pool
	verify := func() checkResult {
		v, err := check(t.Context(), d, statusOf(t, d), newFault(found.poison, projection.ActionPark))
		if err != nil {
			t.Fatal(err)
		}
		v.requireEvents(events)
		return v
	}
	if err := verify().err(); err != nil {
		t.Fatalf("before any corruption: %v", err)
	}
	for _, test := range []struct{ corrupt, repair, says string }{
		{"update demo.events_by_type set n = n + 1 where event_type = 'Payment Handled'",
			"update demo.events_by_type set n = n - 1 where event_type = 'Payment Handled'", "events_by_type has"},
		{"insert into demo.events_by_role values ('NONE', 1)", "delete from demo.events_by_role where role = 'NONE'",
			`events_by_role has 1 for "NONE", but the events give nothing`},
		{"update demo.streams set last_type = '-' || last_type where stream = 'declaration1'",
			"update demo.streams set last_type = substr(last_type, 2) where stream = 'declaration1'", "streams has"},
		{"update demo.payments set total = total + 0.01", "update demo.payments set total = total - 0.01", "payments has"},
		{"update demo_millrace.dead_letters set position = -position where id = 1",
			"update demo_millrace.dead_letters set position = -position where id = 1", " events that fail"},
		{"update demo_millrace.dead_letters set stream_id = '-' || stream_id where id = 1",
			"update demo_millrace.dead_letters set stream_id = substr(stream_id, 2) where id = 1", " unexpectedly "},
	} {
		program.MustExec(t, pool, test.corrupt)
		if err := verify().err(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("after %q: %v, want %q", test.corrupt, err, test.says)
		}
		program.MustExec(t, pool, test.repair)
		if err := verify().err(); err != nil {
			t.Errorf("after %q: %v", test.repair, err)
		}
	}

	// A second run does not touch the tables, and prints how to remove them.
	_, err = runDemo(t.Context(), o, &out)
	statement := "drop schema if exists demo, demo_millrace, demo_millrace_default cascade"
	if err == nil || !strings.Contains(err.Error(), statement) {
		t.Fatalf("second run: %v, want an error with %q", err, statement)
	}
	if err := verify().err(); err != nil {
		t.Errorf("after the second run: %v", err)
	}
	program.MustExec(t, pool, statement)
}

func TestRunRemovesWhatItCreated(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	var out bytes.Buffer
	if _, err := runDemo(t.Context(), options{events: 1, seed: 1, writers: 2, databaseURL: dsn}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if left := program.Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}

	program.MustExec(t, pool, "create schema demo; create table demo.precious ()")
	if _, err := runDemo(t.Context(), options{events: 10, writers: 2, databaseURL: dsn}, &out); err == nil {
		t.Error("it ran despite an existing schema demo")
	}
	if left := program.Schemas(t, pool); left != "demo" {
		t.Errorf("schemas are %q, want demo as it was", left)
	}
}

func TestInterruptedRunRemovesWhatItCreated(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	reason := errors.New("interrupted by the test")
	// The first line of figures comes during the load.
	out := writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte(loading)) {
			interrupt(reason)
		}
		return len(p), nil
	})
	err := program.Execute(ctx, command(), []string{"-events", "1000000", "-writers", "4", "-database-url", dsn}, out, io.Discard)
	if !errors.Is(err, reason) || err.Error() != reason.Error() {
		t.Errorf("ended with %v, want %v", err, reason)
	}
	if left := program.Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}
}

func TestBadInputStartsNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bad.ndjson")
	if err := os.WriteFile(path, []byte(`{"stream":"a","type":"T","data":{}}`+"\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// The database does not exist, but the input is read first.
	_, err := runDemo(t.Context(), options{input: path, writers: 2, databaseURL: "postgres://127.0.0.1:1/x"}, &out)
	if err == nil || !strings.Contains(err.Error(), "line 2:") {
		t.Errorf("got %v, want line 2 named", err)
	}
}

// existing opens the tables that a run has kept.
func existing(t *testing.T, dsn string) *program.Database {
	t.Helper()
	d, err := openExisting(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// statusOf reads the status of a database in which no node runs.
func statusOf(t *testing.T, d *program.Database) millrace.Status {
	t.Helper()
	runtime, err := millrace.New(millrace.Config{Store: d.Store})
	if err != nil {
		t.Fatal(err)
	}
	status, err := runtime.Status(t.Context(), ofDemo)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
