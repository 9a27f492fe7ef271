package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
)

func positions(events []event.Envelope) (list []int64) {
	for _, e := range events {
		list = append(list, e.Position)
	}
	return list
}

// mixedStore has 2,000 events in three streams and of three types, so that every read goes over several pages.
func mixedStore(t *testing.T) *Store {
	store := newStore(t)
	types := []string{"A", `B"\,{}`, "C"}
	for i := range 200 {
		events := someEvents(10)
		for j := range events {
			events[j].Type = types[(i+j)%3]
		}
		mustAppend(t, store.tenant, []string{"x", "y", "z"}[i%3], event.Any, events...)
	}
	return store
}

func TestReadsSelectWhatTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	store := mixedStore(t)
	ctx := testContext(t)
	all := collect(t, store.ReadAll(ctx, ReadOptions{}))
	if len(all) != 2000 {
		t.Fatalf("%d events", len(all))
	}
	for name, c := range map[string]struct {
		opts ReadOptions
		want func(e event.Envelope) bool
	}{
		"all":              {ReadOptions{}, func(event.Envelope) bool { return true }},
		"after":            {ReadOptions{After: 700}, func(e event.Envelope) bool { return e.Position > 700 }},
		"after the end":    {ReadOptions{After: 2000}, func(event.Envelope) bool { return false }},
		"type":             {ReadOptions{Types: []string{`B"\,{}`}}, func(e event.Envelope) bool { return e.Type == `B"\,{}` }},
		"types, after":     {ReadOptions{After: 9, Types: []string{"A", "C", "?"}}, func(e event.Envelope) bool { return e.Position > 9 && e.Type != `B"\,{}` }},
		"unknown type":     {ReadOptions{Types: []string{"?"}}, func(event.Envelope) bool { return false }},
		"stream":           {ReadOptions{Stream: "y"}, func(e event.Envelope) bool { return e.Stream == "y" }},
		"stream, after":    {ReadOptions{Stream: "y", After: 1000}, func(e event.Envelope) bool { return e.Stream == "y" && e.Position > 1000 }},
		"stream, types":    {ReadOptions{Stream: "z", Types: []string{"A"}}, func(e event.Envelope) bool { return e.Stream == "z" && e.Type == "A" }},
		"everything given": {ReadOptions{Stream: "z", Types: []string{"A", "C"}, After: 55}, func(e event.Envelope) bool { return e.Stream == "z" && e.Position > 55 && e.Type != `B"\,{}` }},
		"unknown stream":   {ReadOptions{Stream: "?"}, func(event.Envelope) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			var want []event.Envelope
			for _, e := range all {
				if c.want(e) {
					want = append(want, e)
				}
			}
			got := collect(t, store.ReadAll(ctx, c.opts))
			if !slices.Equal(positions(got), positions(want)) {
				t.Errorf("%d events, want %d", len(got), len(want))
			}
		})
	}
	for from, want := range map[int64]int{-1: 670, 0: 670, 1: 670, 2: 669, 600: 71, 670: 1, 671: 0} {
		got := collect(t, store.ReadStream(ctx, "x", from))
		if len(got) != want {
			t.Errorf("from version %d: %d events, want %d", from, len(got), want)
		}
		for i, e := range got {
			if e.Stream != "x" || e.Version != max(from, 1)+int64(i) {
				t.Fatalf("from version %d: event %d is version %d of %s", from, i, e.Version, e.Stream)
			}
		}
	}
}

func TestReadingHoldsNoConnectionWhileEventsAreHandled(t *testing.T) {
	t.Parallel()
	store := mixedStore(t)
	store.notify.close() // what it still sends takes a connection too
	held := func() int32 { return store.pool.Stat().AcquiredConns() }
	n := 0
	for _, err := range store.ReadAll(testContext(t), ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if held() != 0 {
			t.Fatalf("event %d: %d connections are held", n, held())
		}
		if n++; n == 700 {
			break
		}
	}
	for range store.ReadStream(testContext(t), "x", 1) {
		break
	}
	if held() != 0 {
		t.Errorf("%d connections are held after stopping early", held())
	}
}

func TestReadingStopsWithTheErrorThatEndedIt(t *testing.T) {
	t.Parallel()
	store := mixedStore(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var last error
	n := 0
	for _, err := range store.ReadAll(ctx, ReadOptions{}) {
		if last != nil {
			t.Fatal("it went on after an error")
		}
		if last = err; err == nil {
			n++
		}
		if n == 10 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || n != pageEvents {
		t.Errorf("%d events, then %v", n, last)
	}
	for _, err := range []error{
		firstError(store.ReadStream(ctx, "\xff", 1)),
		firstError(store.ReadAll(ctx, ReadOptions{Stream: "\x00"})),
		firstError(store.ReadAll(ctx, ReadOptions{Types: []string{"\xff"}})),
	} {
		if err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want one about the text", err)
		}
	}
}

func TestLargeEventsAreReadInSmallerPages(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	body := must(json.Marshal(strings.Repeat("x", pageBytes/4)))(t)
	var want []int64
	for range 5 {
		large := []event.Event{{Type: "L", Body: body}, {Type: "L", Body: body}, {Type: "S"}}
		want = append(want, mustAppend(t, store.tenant, "s", event.Any, large...).Positions...)
	}
	want = append(want, mustAppend(t, store.tenant, "s", event.Any, someEvents(1000)...).Positions...)
	if got := positions(collect(t, store.ReadAll(testContext(t), ReadOptions{}))); !slices.Equal(got, want) {
		t.Errorf("%d events, want %d", len(got), len(want))
	}
}
