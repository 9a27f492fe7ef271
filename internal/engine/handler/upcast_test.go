package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/projection"
)

// The types of these tests: "old" is split into the events that its body lists, "a" and "b", and fails without any.
func splitting(t testing.TB) *upcast.Graph {
	split := func(e event.Envelope) (all []event.Event, err error) {
		var names []string
		err = json.Unmarshal(e.Body, &names)
		for _, name := range names {
			all = append(all, event.Untyped(name, 1))
		}
		return all, err
	}
	step := upcast.Step{From: "old", To: []string{"a", "b"}, Splits: true, Make: split}
	g, err := upcast.New([]string{"old", "a", "b", "c", "opened"}, []upcast.Step{step})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// storedList are events at the positions 10, 20 and so on. A body of an old event is the types that it becomes.
func storedList(bodies ...string) (all []event.Envelope) {
	for i, body := range bodies {
		e := event.Envelope{
			Position: int64(10 * (i + 1)), Type: "old",
			Body: []byte(`["` + strings.ReplaceAll(body, " ", `","`) + `"]`),
		}
		switch body {
		case "fails":
			e.Body = []byte("[]")
		case "current":
			e.Type = "a"
		}
		all = append(all, e)
	}
	return all
}

func shownEvents(events []event.Envelope) (all []string) {
	for _, e := range events {
		all = append(all, fmt.Sprintf("%d %s %d", e.Position, e.Type, e.Part))
	}
	return all
}

func TestHandlersGetSelectedEventsOfABatch(t *testing.T) {
	for _, c := range []struct {
		types  []string
		stored []event.Envelope
		want   []string
		fails  int64
	}{
		{nil, storedList("current", "a b", "b"), []string{"10 a 0", "20 a 1", "20 b 2", "30 b 1"}, 0},
		{[]string{"b"}, storedList("a b", "a", "b"), []string{"10 b 2", "30 b 1"}, 0},
		{[]string{"b"}, storedList("a"), nil, 0},
		{[]string{"b"}, storedList("b", "fails", "b"), nil, 20},
		{[]string{"c"}, storedList("a"), []string{"10 a 1"}, 0}, // a dead letter of an earlier selection
	} {
		var got []string
		h := Batch(func(_ context.Context, _ *log, events []event.Envelope) error {
			got = shownEvents(events)
			return nil
		})
		h.Types = c.types
		h, err := h.Upcasting(splitting(t))
		if err != nil {
			t.Fatal(err)
		}
		before := shownEvents(c.stored)
		err = h.Apply(t.Context(), &log{}, c.stored)
		if !slices.Equal(got, c.want) || projection.FailedPosition(err) != c.fails || (err != nil) != (c.fails != 0) {
			t.Errorf("%v of %q: got %q, %v, want %q", c.types, before, got, err, c.want)
		}
		if !slices.Equal(shownEvents(c.stored), before) {
			t.Errorf("the stored events became %q", shownEvents(c.stored))
		}
	}
}

// Without an old event, the handler gets the slice of the batch itself.
func TestBatchesThatNeedNoUpcasterAreNotCopied(t *testing.T) {
	stored := storedList("current", "current")
	h, err := Batch(func(_ context.Context, _ *log, events []event.Envelope) error {
		if &events[0] != &stored[0] {
			t.Error("the batch was copied")
		}
		return nil
	}).Upcasting(splitting(t))
	if err == nil {
		err = h.Apply(t.Context(), &log{}, stored)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestHandlerOfAStoreWithoutUpcastersIsUnchanged(t *testing.T) {
	none, err := upcast.New([]string{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := Batch(func(context.Context, *log, []event.Envelope) error { return nil })
	for _, g := range []*upcast.Graph{nil, none} {
		same, err := h.Upcasting(g)
		if err != nil || reflect.ValueOf(same.Apply).Pointer() != reflect.ValueOf(h.Apply).Pointer() {
			t.Errorf("%v: it was wrapped, %v", g, err)
		}
	}
}

// modelDelivery acknowledges as package delivery does. called has the position of the stored event that a failure would
// count against each time that the handler begins an event.
type modelDelivery struct {
	t        *rapid.T
	events   []event.Envelope
	next     int
	rejected []int64
	acks     int
}

func (d *modelDelivery) Events() []event.Envelope      { return d.events }
func (d *modelDelivery) Token(event.Envelope) string   { return "" }
func (d *modelDelivery) Remaining() time.Duration      { return time.Hour }
func (d *modelDelivery) begins(e event.Envelope)       { d.mustBeNext(e.Position) }
func (d *modelDelivery) at(position int64) (int, bool) { return find(d.events, position) }

func (d *modelDelivery) mustBeNext(position int64) {
	if d.next == len(d.events) || d.events[d.next].Position != position {
		d.t.Fatalf("position %d, but %d of %v are done", position, d.next, shownEvents(d.events))
	}
}

func (d *modelDelivery) Ack(_ context.Context, position int64) error {
	at, found := d.at(position)
	if !found || at < d.next {
		return fmt.Errorf("cannot acknowledge %d", position)
	}
	d.next = at + 1
	d.acks++
	return nil
}

func (d *modelDelivery) Reject(_ context.Context, position int64, _ error) error {
	d.mustBeNext(position)
	d.next++
	d.rejected = append(d.rejected, position)
	return nil
}

// When the handler begins an event, that event is the next stored one, unless an upcaster fails. So a failure counts
// against the right event. All events are done in the end, and the handler gets exactly what is selected.
func TestDeliveriesOfCurrentEventsProperty(t *testing.T) {
	g := splitting(t)
	rapid.Check(t, func(t *rapid.T) {
		bodies := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a b", "b b", "fails", "current"}), 1, 8).Draw(t,
			"bodies")
		types := rapid.SampledFrom([][]string{nil, {"a"}, {"b"}, {"a", "b"}}).Draw(t, "types")
		each := rapid.Bool().Draw(t, "each")
		rejects := rapid.SliceOfN(rapid.Bool(), len(bodies), len(bodies)).Draw(t, "rejects")
		var got, want []string
		left := slices.DeleteFunc(storedList(bodies...), func(e event.Envelope) bool { // the store selects the others
			return types != nil && e.Type == "a" && !slices.Contains(types, "a")
		})
		for _, e := range left {
			current, err := g.Upcast(e)
			if err != nil {
				continue
			}
			for _, c := range current {
				if types == nil || slices.Contains(types, c.Type) {
					want = append(want, shownEvents([]event.Envelope{c})...)
				}
			}
		}
		for len(left) > 0 {
			d := &modelDelivery{t: t, events: left}
			h := Deliver(func(ctx context.Context, of Delivery) error {
				events := of.Events()
				for i, e := range events {
					d.begins(e)
					if i == 0 || events[i-1].Position != e.Position {
						got = append(got, shownEvents(events[i:i+partsAt(events, i)])...)
					}
					if i+1 < len(events) && events[i+1].Position == e.Position {
						continue
					}
					end := func() error { return of.Ack(ctx, e.Position) }
					if rejects[e.Position/10-1] {
						end = func() error { return of.Reject(ctx, e.Position, errors.New("on purpose")) }
					}
					if err := end(); err != nil {
						return err
					}
				}
				return nil
			})
			if each {
				h = DeliverEach(func(_ context.Context, e event.Envelope, _ string) error {
					d.begins(e)
					got = append(got, shownEvents([]event.Envelope{e})...)
					return nil
				})
			}
			h.Types = types
			h, err := h.Upcasting(g)
			if err == nil {
				err = h.Deliver(t.Context(), d)
			}
			if err != nil { // the policy moves over the failed event
				d.mustBeNext(projection.FailedPosition(err))
				if !errors.Is(err, upcast.ErrUpcast) {
					t.Fatal(err)
				}
				d.next++
			} else if d.next == 0 {
				t.Fatalf("nothing was done of %v", shownEvents(left))
			}
			left = left[d.next:]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v: got %q, want %q", types, got, want)
		}
	})
}

// partsAt returns how many events have the position of that at an index.
func partsAt(events []event.Envelope, i int) (n int) {
	for i+n < len(events) && events[i+n].Position == events[i].Position {
		n++
	}
	return n
}

// BenchmarkUpcasting has what a batch of 500 current events costs a typed handler that only decodes them, and how much
// of that is the look for events that need an upcaster. Without a registry there is none.
func BenchmarkUpcasting(b *testing.B) {
	stored := storedList(slices.Repeat([]string{"current"}, 500)...)
	for i := range stored {
		stored[i].Type, stored[i].Body = "opened", []byte(`{"N": 1}`)
	}
	for name, types := range map[string]*upcast.Graph{"handler without a registry": nil,
		"handler with upcasters": splitting(b)} {
		h, err := On(func(context.Context, *log, event.Of[opened]) error { return nil }).Upcasting(types)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Apply(b.Context(), &log{}, stored); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	all, err := splitting(b).Select(nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range stored { // the worst case: no two events of one type follow each other
		stored[i].Type = []string{"a", "b", "c"}[i%3]
	}
	b.Run("look alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if same, _, _ := all.Upcast(stored); &same[0] != &stored[0] {
				b.Fatal("the batch was copied")
			}
		}
	})
}
