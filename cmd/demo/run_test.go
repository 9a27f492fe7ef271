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

	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/projection"
)

func TestRunIsVerifiedAndCheckNoticesCorruption(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		t := p.t
		const events, poisoned = 1500, 12
		o := options{
			events: events, seed: 3, writers: 8, poison: poisoned, onError: "park", store: p.storeFlags, keep: true,
			json: true,
		}
		var out bytes.Buffer
		s, err := runDemo(t.Context(), o, &out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if !s.Verified || s.Events != events || s.DeadLetters.Left != poisoned {
			t.Errorf("verified %v, %d events, %d parked; want true, %d, %d", s.Verified, s.Events, s.DeadLetters.Left,
				events, poisoned)
		}
		var last summary
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		err = json.Unmarshal([]byte(lines[len(lines)-1]), &last)
		if err != nil || !last.Verified || last.Events != events || last.Store != p.existing().kind() {
			t.Errorf("the last line is %q: %v", lines[len(lines)-1], err)
		}
		for _, p := range s.Projections[:3] {
			if p.Applied+p.Parked != events || p.Checkpoint < events {
				t.Errorf("%s: %d applied, %d parked, checkpoint %d, of %d events", p.Name, p.Applied, p.Parked,
					p.Checkpoint, events)
			}
		}
		found, err := inspect(t.Context(), generate(events, o.seed), poisoned, o.seed)
		if err != nil {
			t.Fatal(err)
		}
		verify := func() error {
			v := p.check(newFault(found.poison, projection.ActionPark))
			v.requireEvents(events)
			return v.err()
		}
		p.corruptionIsNoticed(verify)

		// A second run does not touch the tables, and prints how to remove them.
		_, err = runDemo(t.Context(), o, &out)
		if err == nil || !strings.Contains(err.Error(), p.existing().removal()) {
			t.Fatalf("second run: %v, want an error with %q", err, p.existing().removal())
		}
		if err := verify(); err != nil {
			t.Errorf("after the second run: %v", err)
		}
	})
}

// corruptionIsNoticed corrupts the tables of a finished run, and repairs them.
func (p testPlace) corruptionIsNoticed(verify func() error) {
	p.t.Helper()
	if err := verify(); err != nil {
		p.t.Fatalf("before any corruption: %v", err)
	}
	one := " where id = (select min(id) from {letters})"
	for _, test := range []struct{ corrupt, repair, says string }{
		{"update {schema}.events_by_type set n = n + 1 where event_type = 'Payment Handled'",
			"update {schema}.events_by_type set n = n - 1 where event_type = 'Payment Handled'", "events_by_type has"},
		{"insert into {schema}.events_by_role values ('NONE', 1)",
			"delete from {schema}.events_by_role where role = 'NONE'",
			`events_by_role has 1 for "NONE", but the events give nothing`},
		{"update {schema}.streams set last_type = '-' || last_type where stream = 'declaration1'",
			"update {schema}.streams set last_type = substr(last_type, 2) where stream = 'declaration1'",
			"streams has"},
		{
			"update {schema}.payments set cents = cents + 1", "update {schema}.payments set cents = cents - 1",
			"payments has",
		},
		{
			"update {letters} set position = -position" + one, "update {letters} set position = -position" +
				one, " events that fail",
		},
		{
			"update {letters} set stream_id = '-' || stream_id" +
				one, "update {letters} set stream_id = substr(stream_id, 2)" + one, " unexpectedly ",
		},
	} {
		p.change(test.corrupt)
		if err := verify(); err == nil || !strings.Contains(err.Error(), test.says) {
			p.t.Errorf("after %q: %v, want %q", test.corrupt, err, test.says)
		}
		p.change(test.repair)
		if err := verify(); err != nil {
			p.t.Errorf("after %q: %v", test.repair, err)
		}
	}
}

func TestRunRemovesWhatItCreated(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		var out bytes.Buffer
		if _, err := runDemo(p.t.Context(), options{events: 1, seed: 1, writers: 2, store: p.storeFlags},
			&out); err != nil {
			p.t.Fatalf("%v\n%s", err, out.String())
		}
		if left := p.left(); left != "" {
			p.t.Errorf("%s is left", left)
		}
	})
}

func TestRunLeavesForeignTablesAlone(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	in := inDatabase(t)
	in.exec("create schema demo; create table demo.precious ()")
	if _, err := runDemo(t.Context(), options{events: 10, writers: 2, store: in.storeFlags}, &out); err == nil {
		t.Error("it ran despite an existing schema demo")
	}
	if left := in.left(); left != "demo" {
		t.Errorf("schemas are %q, want demo as it was", left)
	}
	in = inFile(t)
	if err := os.WriteFile(in.file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runDemo(t.Context(), options{events: 10, writers: 2, store: in.storeFlags}, &out); err == nil {
		t.Error("it ran despite an existing file")
	}
	if content, err := os.ReadFile(in.file); string(content) != "precious" || in.left() != "demo.db" {
		t.Errorf("the file is %q, %v, in a folder with %s", content, err, in.left())
	}
}

func TestInterruptedRunRemovesWhatItCreated(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		ctx, interrupt := context.WithCancelCause(p.t.Context())
		defer interrupt(nil)
		reason := errors.New("interrupted by the test")
		// The first line of figures comes during the load.
		out := writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte(loading)) {
				interrupt(reason)
			}
			return len(p), nil
		})
		err := program.Execute(ctx, command(), p.args("-events", "1000000", "-writers", "4"), out, io.Discard)
		if !errors.Is(err, reason) || err.Error() != reason.Error() {
			p.t.Errorf("ended with %v, want %v", err, reason)
		}
		if left := p.left(); left != "" {
			p.t.Errorf("%s is left", left)
		}
	})
}

func TestBadInputStartsNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bad.ndjson")
	if err := os.WriteFile(path, []byte(`{"stream":"a","type":"T","data":{}}`+"\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// The database does not exist, but the input is read first.
	_, err := runDemo(t.Context(), options{input: path,
		writers: 2, store: storeFlags{databaseURL: "postgres://127.0.0.1:1/x"}}, &out)
	if err == nil || !strings.Contains(err.Error(), "line 2:") {
		t.Errorf("got %v, want line 2 named", err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
