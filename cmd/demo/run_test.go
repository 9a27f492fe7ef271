package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

func TestRunIsVerifiedAndFindsWhatIsWrong(t *testing.T) {
	dsn := pgtest.Database(t)
	const events, poisoned = 1500, 12
	o := options{events: events, seed: 3, writers: 8, poison: poisoned, databaseURL: dsn, keep: true, json: true}
	var out bytes.Buffer
	s, err := run(t.Context(), t.Context(), o, &out)
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

	// The control: each of these is found.
	found, err := look(t.Context(), generate(events, o.seed), poisoned, o.seed)
	if err != nil {
		t.Fatal(err)
	}
	pool := program.Pool(t, dsn)
	store, err := pgstore.OpenPool(t.Context(), pool, pgstore.Options{Schema: storeSchema})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	verify := func() verdict {
		v, err := check(t.Context(), pool, store, newFault(found.poison, projection.ActionPark))
		if err != nil {
			t.Fatal(err)
		}
		v.mustHold(events)
		return v
	}
	if err := verify().err(); err != nil {
		t.Fatalf("before anything is corrupted: %v", err)
	}
	for _, test := range []struct{ corrupt, mend, says string }{
		{"update demo.events_by_type set n = n + 1 where event_type = 'Payment Handled'",
			"update demo.events_by_type set n = n - 1 where event_type = 'Payment Handled'", "events_by_type holds"},
		{"insert into demo.events_by_role values ('nobody', 1)", "delete from demo.events_by_role where role = 'nobody'",
			`events_by_role holds 1 for "nobody", but the events say nothing`},
		{"update demo.streams set last_type = '-' || last_type where stream = 'declaration1'",
			"update demo.streams set last_type = substr(last_type, 2) where stream = 'declaration1'", "streams holds"},
		{"update demo.payments set total = total + 0.01", "update demo.payments set total = total - 0.01", "payments holds"},
		{"update demo_millrace.dead_letters set position = -position where id = 1",
			"update demo_millrace.dead_letters set position = -position where id = 1", " events that were to be"},
		{"update demo_millrace.dead_letters set stream_id = '-' || stream_id where id = 1",
			"update demo_millrace.dead_letters set stream_id = substr(stream_id, 2) where id = 1", "which was not to be: "},
	} {
		program.MustExec(t, pool, test.corrupt)
		if err := verify().err(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("after %q: %v, want %q", test.corrupt, err, test.says)
		}
		program.MustExec(t, pool, test.mend)
		if err := verify().err(); err != nil {
			t.Errorf("after %q: %v", test.mend, err)
		}
	}

	// A second run does not touch what is kept, and says how to remove it.
	_, err = run(t.Context(), t.Context(), o, &out)
	statement := "drop schema if exists demo, demo_millrace, demo_millrace_default cascade"
	if err == nil || !strings.Contains(err.Error(), statement) {
		t.Fatalf("second run: %v, want it refused with %q", err, statement)
	}
	if err := verify().err(); err != nil {
		t.Errorf("after the second run: %v", err)
	}
	program.MustExec(t, pool, statement)
}

func TestRunRemovesWhatItCreated(t *testing.T) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	var out bytes.Buffer
	if _, err := run(t.Context(), t.Context(), options{events: 1, seed: 1, writers: 2, databaseURL: dsn}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if left := program.Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}

	program.MustExec(t, pool, "create schema demo; create table demo.precious ()")
	if _, err := run(t.Context(), t.Context(), options{events: 10, writers: 2, databaseURL: dsn}, &out); err == nil {
		t.Error("it ran although the schema demo is somebody else's")
	}
	if left := program.Schemas(t, pool); left != "demo" {
		t.Errorf("schemas are %q, want demo as it was", left)
	}
}

func TestInterruptedRunRemovesWhatItCreated(t *testing.T) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	ctx, interrupt := context.WithCancelCause(t.Context())
	reason := errors.New("interrupted by the test")
	// The first line of the screen comes when appending is under way.
	out := writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte(loading)) {
			interrupt(reason)
		}
		return len(p), nil
	})
	_, err := run(ctx, t.Context(), options{events: 1_000_000, seed: 1, writers: 4, databaseURL: dsn}, out)
	if !errors.Is(err, reason) || strings.Contains(err.Error(), "\n") {
		t.Errorf("ended with %v, want %v", err, reason)
	}
	if left := program.Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}
}

func TestBadInputStartsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.ndjson")
	if err := os.WriteFile(path, []byte(`{"stream":"a","type":"T","data":{}}`+"\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// The database is not there: had it been tried first, the error would be another.
	_, err := run(t.Context(), t.Context(), options{input: path, writers: 2, databaseURL: "postgres://127.0.0.1:1/x"}, &out)
	if err == nil || !strings.Contains(err.Error(), "line 2:") {
		t.Errorf("got %v, want line 2 named", err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
