package window

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
)

// between returns the events with from < position <= to.
func between(from, to int64) (events []event.Envelope) {
	for position := from + 1; position <= to; position++ {
		events = append(events, event.Envelope{Position: position})
	}
	return events
}

func TestWindowHoldsAllEventsBetweenItsEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type sent struct{ events, want []event.Envelope }
		var w Window
		var out []sent
		now := time.Now()
		asked := make(map[int64]time.Time)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch n := rapid.Int64Range(0, 20).Draw(t,
				"n"); rapid.SampledFrom([]string{"add", "add", "add", "passed", "old", "limit", "reset"}).Draw(t,
				"step") {
			case "add":
				now = now.Add(time.Second)
				began := now.Add(-time.Duration(rapid.IntRange(0, 5).Draw(t, "before")) * time.Second)
				for _, e := range between(w.Mark, w.Mark+n) {
					asked[e.Position] = began
				}
				w.Add(between(w.Mark, w.Mark+n), w.Mark+n, int(n)*100, began, now)
			case "passed":
				w.DropPassed(w.From + n)
			case "old":
				w.DropReadBefore(now.Add(-time.Duration(n) * time.Second))
			case "limit":
				w.Limit(int(n), 1<<30)
				if len(w.Events) > int(n) {
					t.Fatalf("%d events, at most %d", len(w.Events), n)
				}
			case "reset":
				w.Reset(w.Mark)
			}
			want := between(w.From, w.Mark)
			if !slices.EqualFunc(w.Events, want, func(a, b event.Envelope) bool { return a.Position == b.Position }) {
				t.Fatalf("from %d to %d: %v", w.From, w.Mark, w.Events)
			}
			if w.bytes != 100*len(want) || w.droppedBytes != 100*w.dropped {
				t.Fatalf("%d events use %d bytes, %d dropped ones %d", len(want), w.bytes, w.dropped, w.droppedBytes)
			}
			if w.dropped > len(want) || len(want) == 0 && w.Size() != 0 {
				t.Fatalf("%d events were dropped and are kept, of %d: %d bytes", w.dropped, len(want), w.Size())
			}
			for _, e := range want {
				if asked[e.Position].Before(w.pages[0].asked) {
					t.Fatalf("event %d was asked for before the first page", e.Position)
				}
			}
			out = append(out, sent{w.Events, want})
		}
		for _, h := range out {
			for i := range h.events {
				if h.events[i].Position != h.want[i].Position {
					t.Fatalf("a slice that was sent has changed: %v", h.events)
				}
			}
		}
	})
}

func TestWindowKeepsWithinItsBytes(t *testing.T) {
	var w Window
	for to := int64(10); to <= 1000; to += 10 {
		w.Add(between(w.Mark, to), to, 5000, time.Now(), time.Now())
		w.Limit(4096, 20_000)
		if w.Size() > 20_000 {
			t.Fatalf("%d events: %d bytes", len(w.Events), w.Size())
		}
	}
	if len(w.Events) < 10 {
		t.Errorf("only %d events are kept", len(w.Events))
	}
	w.Limit(4096, 4999)
	if len(w.Events) != 0 || w.From != w.Mark || w.Size() != 0 {
		t.Errorf("a page that is too large is kept: %d bytes", w.Size())
	}
}
