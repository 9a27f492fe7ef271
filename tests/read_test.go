package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/tests/kit"
)

// mixed appends 2,000 events in three streams and of three types, so that every read goes over several pages.
func mixed(b *kit.Bundle) {
	types := []string{"A", `B"\,{}`, "C"}
	for i := range 200 {
		events := kit.SomeEvents(10)
		for j := range events {
			events[j].Type = types[(i+j)%3]
		}
		b.MustAppend(b.Store, []string{"x", "y", "z"}[i%3], event.Any, events...)
	}
}

func TestReadOptionsSelectEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		mixed(b)
		all := b.All(b.Store)
		if len(all) != 2000 || !slices.IsSorted(kit.PositionsOf(all)) {
			t.Fatalf("%d events, in order: %v", len(all), slices.IsSorted(kit.PositionsOf(all)))
		}
		for name, c := range map[string]struct {
			opts event.ReadOptions
			want func(e event.Envelope) bool
		}{
			"all": {event.ReadOptions{}, func(event.Envelope) bool { return true }},
			"after": {
				event.ReadOptions{After: 700}, func(e event.Envelope) bool { return e.Position > 700 },
			},
			"before the start": {event.ReadOptions{After: -1}, func(event.Envelope) bool { return true }},
			"after the end":    {event.ReadOptions{After: 2000}, func(event.Envelope) bool { return false }},
			"far after it":     {event.ReadOptions{After: 1 << 62}, func(event.Envelope) bool { return false }},
			"type": {
				event.ReadOptions{Types: []string{`B"\,{}`}}, func(e event.Envelope) bool { return e.Type == `B"\,{}` },
			},
			"types, after": {
				event.ReadOptions{After: 9, Types: []string{"A", "C", "?"}},
				func(e event.Envelope) bool { return e.Position > 9 && e.Type != `B"\,{}` },
			},
			"unknown type": {event.ReadOptions{Types: []string{"?"}}, func(event.Envelope) bool { return false }},
			"stream": {
				event.ReadOptions{Stream: "y"}, func(e event.Envelope) bool { return e.Stream == "y" },
			},
			"stream, after": {
				event.ReadOptions{Stream: "y", After: 1000},
				func(e event.Envelope) bool { return e.Stream == "y" && e.Position > 1000 },
			},
			"stream, types": {
				event.ReadOptions{Stream: "z", Types: []string{"A"}},
				func(e event.Envelope) bool { return e.Stream == "z" && e.Type == "A" },
			},
			"everything given": {
				event.ReadOptions{Stream: "z", Types: []string{"A", "C"}, After: 55},
				func(e event.Envelope) bool { return e.Stream == "z" && e.Position > 55 && e.Type != `B"\,{}` },
			},
			"unknown stream": {event.ReadOptions{Stream: "?"}, func(event.Envelope) bool { return false }},
		} {
			want := slices.DeleteFunc(slices.Clone(all), func(e event.Envelope) bool { return !c.want(e) })
			if got := b.Collect(b.Store.ReadAll(b.Ctx, c.opts)); !slices.Equal(kit.PositionsOf(got),
				kit.PositionsOf(want)) {
				t.Errorf("%s: %d events, want %d", name, len(got), len(want))
			}
		}
		for from, want := range map[int64]int{-1: 670, 0: 670, 1: 670, 2: 669, 600: 71, 670: 1, 671: 0} {
			got := b.Collect(b.Store.ReadStream(b.Ctx, "x", from))
			if len(got) != want {
				t.Errorf("from version %d: %d events, want %d", from, len(got), want)
			}
			for i, e := range got {
				if e.Stream != "x" || e.Version != max(from, 1)+int64(i) {
					t.Fatalf("from version %d: event %d is version %d of %s", from, i, e.Version, e.Stream)
				}
			}
		}
	})
}

// More reads are open than there are connections, and each of them continues after the others.
func TestReadingHoldsNoConnectionWhileEventsAreHandled(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 2)
		mixed(b)
		var nested func(depth int)
		nested = func(depth int) {
			n := 0
			for _, err := range b.Store.ReadAll(b.Ctx, event.ReadOptions{}) {
				b.Must(err)
				n++
				if n == 10 && depth > 0 {
					nested(depth - 1)
				}
			}
			if n != 2000 {
				t.Errorf("%d events with %d reads inside", n, depth)
			}
		}
		nested(5)
		// A read that is left early keeps nothing.
		for range 10 {
			for _, err := range b.Store.ReadStream(b.Ctx, "x", 1) {
				b.Must(err)
				break
			}
		}
	})
}

func TestReadingStopsWithTheErrorThatEndedIt(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		mixed(b)
		ctx, cancel := context.WithCancel(b.Ctx)
		defer cancel()
		var last error
		n := 0
		for _, err := range b.Store.ReadAll(ctx, event.ReadOptions{}) {
			if last != nil {
				t.Fatal("it went on after an error")
			}
			last = err
			if err == nil {
				n++
			}
			if n == 10 {
				cancel()
			}
		}
		if !errors.Is(last, context.Canceled) || n != eventlog.PageEvents {
			t.Errorf("%d events, then %v", n, last)
		}
		_, stream := kit.Collect(b.Store.ReadStream(ctx, "\xff", 1))
		_, all := kit.Collect(b.Store.ReadAll(ctx, event.ReadOptions{Stream: "\x00"}))
		_, types := kit.Collect(b.Store.ReadAll(ctx, event.ReadOptions{Types: []string{"\xff"}}))
		for _, err := range []error{stream, all, types} {
			if err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want one about the text", err)
			}
		}
	})
}

func TestLargeEventsAreReadInSmallerPages(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		body, err := json.Marshal(strings.Repeat("x", eventlog.PageBytes/4))
		b.Must(err)
		var want []int64
		for range 5 {
			large := []event.Event{{Type: "L", Body: body}, {Type: "L", Body: body}, {Type: "S"}}
			want = append(want, b.MustAppend(b.Store, "s", event.Any, large...).Positions...)
		}
		want = append(want, b.MustAppend(b.Store, "s", event.Any, kit.SomeEvents(1000)...).Positions...)
		if got := kit.PositionsOf(b.All(b.Store)); !slices.Equal(got, want) {
			t.Errorf("%d events, want %d", len(got), len(want))
		}
	})
}

func TestAppendingToABodyDoesNotReachTheNextEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "s", event.Any, kit.SomeEvents(5)...)
		events := b.All(b.Store)
		_ = append(events[0].Body, "xxxxxxxx"...)
		if string(events[1].Body) != "1" {
			t.Errorf("the next body is %s", events[1].Body)
		}
	})
}
