package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// tiny returns options for the shortest run.
func tiny(dsn string) options {
	return options{rounds: 2, probes: 3, events: 2500, writers: 3, appendTime: 20 * time.Millisecond, databaseURL: dsn}
}

func TestEveryMeasurementPrintsItsLines(t *testing.T) {
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	program.MustExec(t, pool, "create schema other")
	var out bytes.Buffer
	if err := run(t.Context(), tiny(dsn), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	const number, ratio = ` +\d+(\.\d+)?`, `ratio \d+\.\d\d \(rounds \d+\.\d\d to \d+\.\d\d\)`
	const percentiles = ` +p50` + number + ` ms   p99` + number + ` ms   `
	want := []string{
		`PostgreSQL \d+.*, fsync \w+, synchronous_commit \w+; \d+ processors; rounds: 2`,
		`latency, handwritten LISTEN loop` + percentiles + `6 probes`,
		`latency, millrace, woken in process` + percentiles + `p50 ` + ratio,
		`latency, millrace, woken by NOTIFY` + percentiles + `p50 ` + ratio,
		`catch-up, handwritten loop` + number + ` events/s`,
		`catch-up, millrace` + number + ` events/s +` + ratio,
		`append, no notification` + number + ` appends/s`,
		`append, millrace` + number + ` appends/s +` + ratio,
		`append, notify in the transaction` + number + ` appends/s +` + ratio,
		`fairness, no flood` + percentiles + `6 probes`,
		`fairness, one tenant floods` + percentiles + `p99 ` + ratio,
		`fairness, 10 tenants flood` + percentiles + `p99 ` + ratio,
		`file, append x1, handwritten` + number + ` appends/s`,
		`file, append x1, millrace` + number + ` appends/s +` + ratio,
		`file, append x32, handwritten` + number + ` appends/s`,
		`file, append x32, millrace` + number + ` appends/s +` + ratio,
		`file, live x1, handwritten` + number + ` events/s`,
		`file, live x1, millrace` + number + ` events/s +` + ratio,
		`file, live x32, handwritten` + number + ` events/s`,
		`file, live x32, millrace` + number + ` events/s +` + ratio,
		`file, latency, handwritten loop` + percentiles + `6 probes`,
		`file, latency, millrace` + percentiles + `p50 ` + ratio,
		`file, catch-up, handwritten loop` + number + ` events/s`,
		`file, catch-up, millrace` + number + ` events/s +` + ratio,
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), out.String())
	}
	for i, line := range lines {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(line) {
			t.Errorf("line %q does not match %s", line, want[i])
		}
	}
	if left := program.Schemas(t, pool); left != "other" {
		t.Errorf("schemas are %q, want other alone", left)
	}
}

func TestOnlyMakesOneMeasurement(t *testing.T) {
	o := tiny(pgtest.Database(t))
	o.only = "catchup"
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 3 || strings.Count(out.String(), "\ncatch-up, ") != 2 {
		t.Errorf("printed\n%s", out.String())
	}
}

// TestWrongCountIsAnError changes what a measurement writes.
func TestWrongCountIsAnError(t *testing.T) {
	const oneMore = `create function bench.falsify() returns trigger language plpgsql as $$ begin new.n := new.n + 1; return new; end $$;
		create trigger falsify before insert on bench.counts for each row `
	for _, test := range []struct{ name, falsify, says string }{
		{"latency", oneMore + "when (new.contender like 'handwritten%') execute function bench.falsify()", "handwritten 0 counted"},
		{"latency", oneMore + "when (new.contender = 'latency') execute function bench.falsify()", "latency counted"},
		{"catchup", oneMore + "when (new.contender like 'handwritten%') execute function bench.falsify()", "handwritten 0 counted"},
		{"catchup", oneMore + "when (new.contender like 'millrace%') execute function bench.falsify()", "millrace 0 counted"},
		{"fairness", oneMore + "execute function bench.falsify()", "fairness counted"},
		{"append", "insert into bench_millrace_default.streams (stream_id, version) values ('x', 1); " +
			"insert into bench_millrace_default.events (stream_id, stream_version, type, body) values ('x', 1, 'X', '{}')", "the store has"},
	} {
		t.Run(test.name+", "+test.says, func(t *testing.T) {
			o := tiny(pgtest.Database(t))
			e, err := newEnv(t.Context(), o.databaseURL, o.writers)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := e.close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			program.MustExec(t, e.Pool, test.falsify)
			for _, m := range measurements {
				if m.name != test.name {
					continue
				}
				err := m.take(t.Context(), e, o, io.Discard)
				if err == nil || !strings.Contains(err.Error(), "not verified: "+test.says) {
					t.Errorf("got %v, want %q with another number", err, test.says)
				}
			}
		})
	}
}

// TestWrongCountInAFileIsAnError changes what the measurement of files writes.
func TestWrongCountInAFileIsAnError(t *testing.T) {
	const oneMore = "create trigger falsify after insert on counts when new.contender like '%s%%' begin update counts set n = n + 1 where contender = new.contender and type = new.type; end"
	for _, test := range []struct {
		falsify, says string
		take          func(e *fileEnv, o options) error
	}{
		{fmt.Sprintf(oneMore, "handwritten"), "handwritten latency 0 counted", func(e *fileEnv, o options) error { return e.latency(t.Context(), o, io.Discard) }},
		{fmt.Sprintf(oneMore, "latency"), "latency counted", func(e *fileEnv, o options) error { return e.latency(t.Context(), o, io.Discard) }},
		{fmt.Sprintf(oneMore, "handwritten"), "handwritten 0 counted", func(e *fileEnv, o options) error { return e.catchUp(t.Context(), o, io.Discard) }},
		{fmt.Sprintf(oneMore, "millrace"), "millrace 0 counted", func(e *fileEnv, o options) error { return e.catchUp(t.Context(), o, io.Discard) }},
	} {
		t.Run(test.says, func(t *testing.T) {
			e, err := newFileEnv(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := e.close(); err != nil {
					t.Error(err)
				}
			}()
			err = e.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, test.falsify)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := test.take(e, tiny("")); err == nil || !strings.Contains(err.Error(), "not verified: "+test.says) {
				t.Errorf("got %v, want %q with another number", err, test.says)
			}
		})
	}
}
