package projection_test

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// namer is how a batch handler that fails says which event it was: the first return value is put into Failed.
type namer func(t *rapid.T, batch, poison []int64) int64

var namers = map[string]namer{
	"cannot say": func(*rapid.T, []int64, []int64) int64 { return 0 },
	"says":       func(_ *rapid.T, _, poison []int64) int64 { return poison[0] },
	"lies": func(t *rapid.T, batch, _ []int64) int64 {
		return rapid.Int64Range(batch[0]-1, batch[len(batch)-1]+1).Draw(t, "named")
	},
}

// course is what became of the events.
type course struct {
	applied, parked []int64
	calls, wasted   int
	counted         map[int64]int
}

// drive hands events to a handler that fails for the poison ones, as a projection's actor does, until all are applied
// or, after the retries, parked. Where forgets, a counted failure also loses the size, as reading the lease anew does.
func drive(t *rapid.T, events []event.Envelope, poison map[int64]bool, most, retries int, name namer, forgets bool) course {
	c := course{counted: make(map[int64]int)}
	sizing := projection.NewSizing(most)
	for limit := 1000 * (len(events) + 1); len(events) > 0; c.calls++ {
		if c.calls > limit {
			t.Fatalf("no end after %d calls, size %d, %d events left", c.calls, sizing.Size(), len(events))
		}
		n := sizing.Take(events[:min(most, len(events))])
		if n < 1 || n > min(most, len(events)) || n > max(1, sizing.Size()) {
			t.Fatalf("takes %d of %d at size %d of %d", n, len(events), sizing.Size(), most)
		}
		batch := events[:n]
		var positions, bad []int64
		for _, e := range batch {
			positions = append(positions, e.Position)
			if poison[e.Position] {
				bad = append(bad, e.Position)
			}
		}
		if len(bad) == 0 {
			c.applied = append(c.applied, positions...)
			events = events[n:]
			sizing.Succeeded()
			continue
		}
		if !sizing.Failed(batch, name(t, positions, bad)) {
			c.wasted++
			if n == 1 {
				t.Fatalf("the failure of %d alone does not count", bad[0])
			}
			continue
		}
		if n != 1 {
			t.Fatalf("a failure of %d events counts", n)
		}
		c.counted[bad[0]]++
		if forgets {
			sizing = projection.NewSizing(most)
			sizing.Alone()
		}
		if c.counted[bad[0]] > retries {
			c.parked = append(c.parked, bad[0])
			events = events[1:]
			sizing.Succeeded()
		}
	}
	return c
}

// stream draws events with gaps between their positions, and which of them are poison.
func stream(t *rapid.T) (events []event.Envelope, poison map[int64]bool) {
	poison = make(map[int64]bool)
	share := rapid.SampledFrom([]int{0, 1, 5, 50, 100}).Draw(t, "percent poison")
	at := int64(0)
	for range rapid.IntRange(0, 300).Draw(t, "events") {
		at += rapid.Int64Range(1, 3).Draw(t, "gap")
		events = append(events, event.Envelope{Position: at})
		poison[at] = rapid.IntRange(1, 100).Draw(t, "die") <= share
	}
	return events, poison
}

func TestPoisonIsCountedAloneAndTheRestAppliedOnce(t *testing.T) {
	for how, name := range namers {
		t.Run(how, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				events, poison := stream(t)
				most, retries := rapid.IntRange(1, 64).Draw(t, "most"), rapid.IntRange(0, 3).Draw(t, "retries")
				c := drive(t, events, poison, most, retries, name, rapid.Bool().Draw(t, "forgets"))
				var good, bad []int64
				for _, e := range events {
					if poison[e.Position] {
						bad = append(bad, e.Position)
					} else {
						good = append(good, e.Position)
					}
				}
				if !slices.Equal(c.applied, good) {
					t.Fatalf("applied %v, want %v", c.applied, good)
				}
				if !slices.Equal(c.parked, bad) {
					t.Fatalf("parked %v, want %v", c.parked, bad)
				}
				for position, n := range c.counted {
					if !poison[position] || n != retries+1 {
						t.Fatalf("%d failed %d times by the count, poison: %v", position, n, poison[position])
					}
				}
				if bound := mostCalls(how, len(events), len(bad), most, retries); c.calls > bound {
					t.Fatalf("%d calls for %d events, %d of them poison, in batches of %d: more than %d", c.calls, len(events), len(bad), most, bound)
				}
			})
		})
	}
}

// mostCalls bounds how often a handler is called for n events of which k are poison, in batches of most.
//
// Full batches take ceil(n/most). With l the number of halvings from most to 1, each poison event costs its counted
// tries; on the way to it, where the handler names it, one call that fails and one for the events before it; where it
// does not, l failures and, since after each success the size doubles and is halved again twice, up to three calls for
// each of the l sizes; and behind it l+1 calls in which the size grows back. A batch that is cut short by a poison event
// or by growth costs at most one more each.
func mostCalls(how string, n, k, most, retries int) int {
	l := bits.Len(uint(most))
	whole := (n+most-1)/most + 1
	switch how {
	case "says":
		return whole + k*(retries+1+2+l+1)
	case "cannot say":
		return whole + k*(retries+1+l+3*l+l+1)
	}
	// A handler that lies can make each of its failures cost a call for each event that it shifts the blame over.
	return whole + (k*(retries+1)+n)*(most+2)
}

func TestNarrowingFindsOnePoisonEventInFewCalls(t *testing.T) {
	const most = 512
	events := make([]event.Envelope, most)
	for i := range events {
		events[i].Position = int64(i + 1)
	}
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Int64Range(1, most).Draw(t, "poison")
		named := drive(t, events, map[int64]bool{at: true}, most, 0, namers["says"], false)
		if named.wasted != 1 {
			t.Errorf("%d calls failed in vain though the handler said which event it was", named.wasted)
		}
		halved := drive(t, events, map[int64]bool{at: true}, most, 0, namers["cannot say"], false)
		if halved.wasted > 2*9 || halved.wasted < 9-1 {
			t.Errorf("%d calls failed in vain for position %d", halved.wasted, at)
		}
	})
}

func TestSizeGrowsBackByDoubling(t *testing.T) {
	s := projection.NewSizing(100)
	s.Alone()
	var sizes []int
	for range 9 {
		sizes = append(sizes, s.Size())
		s.Succeeded()
	}
	if want := []int{1, 2, 4, 8, 16, 32, 64, 100, 100}; !slices.Equal(sizes, want) {
		t.Errorf("sizes %v, want %v", sizes, want)
	}
}

func TestEventsBeforeTheFailingOneAreAppliedWithoutIt(t *testing.T) {
	events := []event.Envelope{{Position: 3}, {Position: 5}, {Position: 9}, {Position: 10}}
	s := projection.NewSizing(10)
	if s.Failed(events, 9) {
		t.Fatal("a failure of many events counts")
	}
	if n := s.Take(events); n != 2 {
		t.Fatalf("takes %d, want the 2 before position 9", n)
	}
	s.Succeeded()
	if n := s.Take(events[2:]); n != 1 {
		t.Fatalf("takes %d, want position 9 alone", n)
	}
	if !s.Failed(events[2:3], 0) {
		t.Error("the failure of one event does not count")
	}
	if n := s.Take(events[2:]); n != 1 {
		t.Errorf("takes %d, want position 9 alone again", n)
	}
}
