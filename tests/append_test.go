package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestPositionsRiseWithVersionsInALargeAppend(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const n = 5000
		result := b.MustAppend(b.Store, "s", event.Any, kit.SomeEvents(n)...)
		if len(result.Positions) != n || !slices.IsSorted(result.Positions) || result.Version != n {
			t.Fatalf("%d positions, sorted %v, version %d", len(result.Positions), slices.IsSorted(result.Positions),
				result.Version)
		}
		for i, e := range b.All(b.Store) {
			if e.Position != result.Positions[i] || e.Version != int64(i+1) || string(e.Body) != fmt.Sprint(i) {
				t.Fatalf("event %d is at position %d, version %d, body %s", i, e.Position, e.Version, e.Body)
			}
		}
	})
}

func TestPositionsRiseWithVersionsUnderConcurrentWriters(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const writers, appends, streams = 16, 40, 4
		b.Must(kit.Together(writers, func(w int) error {
			for i := range appends {
				events := kit.SomeEvents(1 + (w+i)%3)
				expected := event.Any
				if i%2 == 1 {
					expected = expected.WithKey(fmt.Sprintf("%d-%d", w, i))
				}
				result, err := b.Store.Append(b.Ctx, fmt.Sprintf("s%d", i%streams), expected, events...)
				if err != nil {
					return err
				}
				if len(result.Positions) != len(events) || !slices.IsSorted(result.Positions) {
					return fmt.Errorf("positions %v of %d events", result.Positions, len(events))
				}
			}
			return nil
		}))
		total := 0
		for s := range streams {
			stream := fmt.Sprintf("s%d", s)
			var last event.Envelope
			for _, e := range b.Collect(b.Store.ReadStream(b.Ctx, stream, 1)) {
				if e.Version != last.Version+1 || e.Position <= last.Position {
					t.Fatalf("%s: version %d at position %d follows version %d at position %d", stream, e.Version,
						e.Position, last.Version, last.Position)
				}
				last = e
				total++
			}
			b.MustAppend(b.Store, stream, event.Exact(last.Version), kit.SomeEvents(1)...)
		}
		b.MustHave(total + streams)
	})
}

func TestOneOfManyAppendsWithTheSameExpectedVersionSucceeds(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		events := 0
		for _, expected := range []event.Expected{event.NoStream, event.Exact(2), event.Exact(4)} {
			won := make([]bool, 16)
			b.Must(kit.Together(len(won), func(i int) error {
				_, err := b.Store.Append(b.Ctx, "s", expected, kit.SomeEvents(2)...)
				won[i] = err == nil
				if errors.Is(err, event.ErrVersionConflict) {
					return nil
				}
				return err
			}))
			won = slices.DeleteFunc(won, func(w bool) bool { return !w })
			if len(won) != 1 {
				t.Errorf("%v: %d appends succeeded", expected, len(won))
			}
			events += 2
		}
		b.MustHave(events)
	})
}

func TestConflictSaysWhatWasExpectedAndFound(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "three", event.Any, kit.SomeEvents(3)...)
		for _, c := range []struct {
			stream   string
			expected event.Expected
			actual   int64
		}{
			{"three", event.Exact(2), 3}, {"three", event.Exact(4), 3}, {"three", event.NoStream, 3},
			{"three", event.Exact(0), 3},
			{"missing", event.Exact(1), 0}, {"three", event.Exact(1).WithKey("k"), 3},
			{"three", event.NoStream.WithKey("k"), 3},
		} {
			_, err := b.Store.Append(b.Ctx, c.stream, c.expected, kit.SomeEvents(2)...)
			var conflict *event.VersionConflictError
			if !errors.Is(err, event.ErrVersionConflict) || !errors.As(err, &conflict) {
				t.Errorf("%s, %v: %v", c.stream, c.expected, err)
				continue
			}
			if conflict.Stream != c.stream || conflict.Expected != c.expected || conflict.Actual != c.actual {
				t.Errorf("%s, %v: %+v", c.stream, c.expected, conflict)
			}
		}
		_, err := b.Store.Append(b.Ctx, "missing", event.Exact(1), kit.SomeEvents(1)...)
		if !strings.HasPrefix(err.Error(),
			`append to "missing": version conflict: stream "missing" is at version 0, expected version 1`) {
			t.Errorf("the message is %q", err)
		}
		b.MustHave(3)
	})
}

func TestEventsAreReadAsTheyWereAppended(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		want := event.Event{Type: "Größe", Body: json.RawMessage(`{"a": [1.50, "ü\"\\\n"], "n": null}`),
			Headers: map[string]string{"quote\"": `{\"`, "empty": ""}, CausationID: "c{1}", CorrelationID: `\,"`}
		// The times are those of the store, whose clock may be another.
		before := time.Now().Add(-time.Hour)
		b.MustAppend(b.Store, "s", event.Any, want, event.Event{Type: "Bare"})
		got := b.Collect(b.Store.ReadStream(b.Ctx, "s", 1))
		if len(got) != 2 {
			t.Fatalf("%d events", len(got))
		}
		e := got[0]
		if e.Type != want.Type || e.CausationID != want.CausationID || e.CorrelationID != want.CorrelationID ||
			string(e.Body) != string(want.Body) {
			t.Errorf("got %+v", e)
		}
		if h := e.Headers(); len(h) != 2 || h["quote\""] != want.Headers["quote\""] {
			t.Errorf("headers %v", h)
		}
		if bare := got[1]; string(bare.Body) != "null" || bare.RawHeaders != nil || bare.CausationID != "" ||
			bare.CorrelationID != "" {
			t.Errorf("got %+v", bare)
		}
		for _, e := range got {
			if e.Time.Before(before) || e.Time.After(time.Now().Add(time.Hour)) {
				t.Errorf("time %v", e.Time)
			}
		}
	})
}

func TestBadInputIsRefusedByNameBeforeAnythingIsWritten(t *testing.T) {
	good := event.Event{Type: "T"}
	body := func(b string) event.Event { return event.Event{Type: "T", Body: json.RawMessage(b)} }
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		for name, c := range map[string]struct {
			stream   string
			expected event.Expected
			events   []event.Event
			want     string
		}{
			"no events":        {"s", event.Any, nil, "events must not be empty"},
			"no stream":        {"", event.Any, []event.Event{good}, "stream's id must not be empty"},
			"long stream":      {strings.Repeat("x", 501), event.Any, []event.Event{good}, "501 bytes"},
			"stream not UTF-8": {"s\xff", event.Any, []event.Event{good}, "not valid UTF-8"},
			"stream with NUL":  {"s\x00", event.Any, []event.Event{good}, "NUL"},
			"empty key":        {"s", event.Any.WithKey(""), []event.Event{good}, "key must not be empty"},
			"long key":         {"s", event.Any.WithKey(strings.Repeat("k", 201)), []event.Event{good}, "201 bytes"},
			"key not UTF-8":    {"s", event.Any.WithKey("\xff"), []event.Event{good}, "idempotency key"},
			"negative version": {"s", event.Exact(-1), []event.Event{good}, "must not be negative: -1"},
			"second has a NUL": {
				"s", event.Any, []event.Event{good, body(`{"a":"\u0000"}`)}, `event 1: event body contains \u0000`,
			},
			"body not JSON": {
				"s", event.Any, []event.Event{body(`{"a":`)}, "event 0: event body is not one valid JSON value",
			},
			"two bodies": {"s", event.Any, []event.Event{body(`1 2`)}, "event 0"},
			"body not UTF-8": {
				"s", event.Any, []event.Event{body("\"\xff\"")}, "event 0: event body is not valid UTF-8",
			},
			"half a surrogate": {"s", event.Any, []event.Event{body(`"\ud800"`)}, "surrogate"},
			"type missing":     {"s", event.Any, []event.Event{{}}, "event 0: event type is empty"},
			"header with a NUL": {
				"s", event.Any, []event.Event{{Type: "T", Headers: map[string]string{"h": "\x00"}}}, "header h",
			},
		} {
			_, err := b.Store.Append(b.Ctx, c.stream, c.expected, c.events...)
			if err == nil || !strings.HasPrefix(err.Error(), "append to ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want one with %q", name, err, c.want)
			}
		}
		b.MustAppend(b.Store, strings.Repeat("x", 500), event.Any.WithKey(strings.Repeat("k", 200)),
			body(`"\ud83d\ude00 \\u0000"`))
		b.MustHave(1)
	})
}

func TestAppendWakesItsTenantOnlyIfItAppended(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		wakes := b.CountWakes()
		b.MustAppend(b.Store, "s", event.Any.WithKey("k"), kit.SomeEvents(1)...)
		if n := wakes("default"); n != 1 {
			t.Fatalf("%d wakes after an append", n)
		}
		b.MustAppend(b.Store, "s", event.Any.WithKey("k"), kit.SomeEvents(1)...)
		if _, err := b.Store.Append(b.Ctx, "s", event.NoStream, kit.SomeEvents(1)...); !errors.Is(err,
			event.ErrVersionConflict) {
			t.Fatal(err)
		}
		if n := wakes("default"); n != 1 {
			t.Errorf("%d wakes after a repeat and a conflict, too", n)
		}
	})
}

func TestUnknownTenantIsNamed(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenant, err := b.Store.ForTenant("nowhere")
		b.Must(err)
		_, appendErr := tenant.Append(b.Ctx, "s", event.Any, kit.SomeEvents(1)...)
		_, readErr := kit.AllEvents(b.Ctx, tenant)
		_, streamErr := kit.Collect(tenant.ReadStream(b.Ctx, "s", 1))
		for what, err := range map[string]error{"append": appendErr, "read all": readErr, "read stream": streamErr} {
			if !errors.Is(err, tenancy.ErrUnknown) || !strings.Contains(err.Error(), `unknown tenant "nowhere"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, name := range []string{"", "\xff", "a\nb", strings.Repeat("x", 201)} {
			_, forErr := b.Store.ForTenant(name)
			_, createErr := b.Store.CreateTenant(b.Ctx, name)
			_, bothErr := b.Store.CreateTenants(b.Ctx, []string{"fine", name})
			if forErr == nil || createErr == nil || bothErr == nil {
				t.Errorf("%q is accepted: %v, %v, %v", name, forErr, createErr, bothErr)
			}
		}
		if tenants, err := b.Store.Tenants(b.Ctx); err != nil ||
			!slices.Equal(tenants, []string{projection.DefaultTenant}) {
			t.Errorf("tenants %q, %v", tenants, err)
		}
	})
}

func TestEventsOfTenantsStayApart(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		names := []string{"a'; drop table millrace_events; --", `b"`, strings.Repeat("я", 100)}
		for range 2 { // the second time they exist
			_, err := b.Store.CreateTenants(b.Ctx, names)
			b.Must(err)
		}
		var tenants []kit.Tenant
		for i, name := range names {
			tenant, err := b.Store.ForTenant(name)
			b.Must(err)
			for range 3 {
				b.MustAppend(tenant, "s", event.Any.WithKey(fmt.Sprint(len(b.All(tenant)))), event.Untyped("of", i))
			}
			tenants = append(tenants, tenant)
		}
		for i, tenant := range tenants {
			for _, events := range [][]event.Envelope{b.All(tenant), b.Collect(tenant.ReadStream(b.Ctx, "s", 1))} {
				if !slices.Equal(kit.PositionsOf(events), []int64{1, 2, 3}) ||
					string(events[2].Body) != fmt.Sprint(i) || events[2].Version != 3 {
					t.Errorf("%q: %+v", tenant.Name(), events)
				}
			}
		}
		b.MustHave(0)
		want := append(names, projection.DefaultTenant)
		slices.Sort(want)
		if tenants, err := b.Store.Tenants(b.Ctx); err != nil || !slices.Equal(tenants, want) {
			t.Errorf("tenants %q, %v", tenants, err)
		}
	})
}

// PostgreSQL prints all digits of a number, so a small body could be too large to read. A file refuses the same bodies,
// since its events may be copied to PostgreSQL.
func TestBodyThatPrintsTooMuchIsRefusedByName(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		body := func(numbers int, number string) event.Event {
			list := strings.TrimSuffix(strings.Repeat(number+",", numbers), ",")
			return event.Event{Type: "E", Body: json.RawMessage(`{"rates": [` + list + `]}`)}
		}
		fine := body(200, "1e131071")
		for name, c := range map[string]struct {
			event event.Event
			want  string
		}{
			"9,000 numbers": {
				body(9000, "1e131071"),
				`event 1: event body has 1179666011 bytes as PostgreSQL prints it, of at most 33554432; the number 1e131071 at $."rates"[0] has 131072 of them`,
			},
			"beyond numeric": {
				body(1, "1e131072"), "event 1: event body contains the number 1e131072, which PostgreSQL cannot store",
			},
			"too many places": {
				body(1, "1e-16384"), "event 1: event body contains the number 1e-16384, which PostgreSQL cannot store",
			},
			"a number, repeated": {
				body(300, "-1.5e131071"), `the number -1.5e131071 at $."rates"[0] has 131073 of them`,
			},
		} {
			_, err := b.Store.Append(b.Ctx, "s", event.Any, fine, c.event)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want one with %q", name, err, c.want)
			}
			err = b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
				_, err := b.Store.AppendTx(ctx, tx, "s", event.Any, fine, c.event)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, in a transaction: error %v, want one with %q", name, err, c.want)
			}
		}
		b.MustHave(0)
		b.MustAppend(b.Store, "s", event.Any, fine)
		b.MustHave(2) // the check before has appended one
	})
}
