package machine

import (
	"flag"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/policy"
	"github.com/millrace-go/millrace/projection"
	"pgregory.net/rapid"
)

// namer decides which event a failing batch handler names. The result is passed to Failed.
type namer func(t *rapid.T, batch, poison []int64) int64

var namers = map[string]namer{
	"cannot say": func(*rapid.T, []int64, []int64) int64 { return 0 },
	"says":       func(_ *rapid.T, _, poison []int64) int64 { return poison[0] },
	"lies": func(t *rapid.T, batch, _ []int64) int64 {
		return rapid.Int64Range(batch[0]-1, batch[len(batch)-1]+1).Draw(t, "named")
	},
}

// outcome has the results of the events: left are those that a policy parked or skipped.
type outcome struct {
	applied       []int64
	left          map[projection.Action][]int64
	behind        []int64
	stopped       int64 // where the policy stopped, 0 where it did not
	calls, wasted int
	counted       map[int64]int
}

// handling is how events are handled: in batches of most, by a handler that names what it fails at or not, under a
// policy.
type handling struct {
	most   int
	name   namer
	policy engine.Policy
	// forgets is whether a counted failure also loses the size, as reading the lease anew does.
	forgets bool
}

// drive hands events to a handler that fails for the poison ones, as a projection's actor does, until all are dealt
// with or the policy stops.
func drive(t *rapid.T, events []event.Envelope, poison map[int64]bool, h handling) outcome {
	c := outcome{counted: make(map[int64]int), left: make(map[projection.Action][]int64)}
	sizing := NewBatchSizer(h.most, h.most)
	parked := Parking{Streams: make(map[string]bool), Room: math.MaxInt64}
	for limit := 1000 * (len(events) + 1); len(events) > 0 && c.stopped == 0; {
		c.calls++
		if c.calls > limit {
			t.Fatalf("no end after %d calls, size %d, %d events left", c.calls, sizing.size, len(events))
		}
		batch, behind, n := sizing.Split(events[:min(h.most, len(events))], parked)
		if n < 1 || n > min(h.most, len(events)) || n != len(batch)+len(behind) ||
			len(batch) > max(1, int(sizing.size)) {
			t.Fatalf("takes %d of %d at size %d of %d, and %d behind", len(batch), len(events), sizing.size, h.most,
				len(behind))
		}
		for _, e := range behind {
			if !parked.Streams[e.Stream] {
				t.Fatalf("position %d is parked, its stream is not", e.Position)
			}
		}
		var positions, bad []int64
		for _, e := range batch {
			positions = append(positions, e.Position)
			if poison[e.Position] {
				bad = append(bad, e.Position)
			}
		}
		if len(bad) == 0 {
			c.applied = append(c.applied, positions...)
			for _, e := range behind {
				c.behind = append(c.behind, e.Position)
			}
			events = events[n:]
			if len(batch) > 0 {
				sizing.Succeeded()
			} else {
				c.calls--
			}
			continue
		}
		whole := engine.Batch{Events: batch, BlockedByStream: behind}
		if !sizing.Failed(batch, h.name(t, positions, bad)) || !whole.Alone() {
			c.wasted++
			if whole.Alone() {
				t.Fatalf("the failure of %d alone does not count", bad[0])
			}
			continue
		}
		if len(batch) != 1 || events[0].Position != batch[0].Position {
			t.Fatalf("a failure of %d events counts, position %d is the next", len(batch), events[0].Position)
		}
		c.counted[bad[0]]++
		if h.forgets {
			sizing = NewBatchSizer(h.most, h.most)
			sizing.Alone()
		}
		failure := projection.Failure{Event: batch[0], Attempt: c.counted[bad[0]], Err: io.EOF}
		switch action := (policy.Circumstances{Policy: &h.policy}).Decide(failure).Action; action {
		case projection.ActionRetry:
		case projection.ActionStop:
			c.stopped = bad[0]
		default:
			c.left[action] = append(c.left[action], bad[0])
			parked.Streams[batch[0].Stream] = action == projection.ActionParkStream
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
	streams := rapid.SampledFrom([]int{1, 3, 20, 1000}).Draw(t, "streams")
	at := int64(0)
	for range rapid.IntRange(0, 300).Draw(t, "events") {
		at += rapid.Int64Range(1, 3).Draw(t, "gap")
		events = append(events, event.Envelope{Position: at,
			Stream: strconv.Itoa(rapid.IntRange(1, streams).Draw(t, "stream"))})
		poison[at] = rapid.IntRange(1, 100).Draw(t, "die") <= share
	}
	return events, poison
}

// checksOfEach is how many random runs there are of each of the twelve kinds.
const checksOfEach = 100

// TestPoisonIsCountedAloneAndOtherEventsAreAppliedOnce compares parking and narrowing with a naive model. Repeat what
// it prints by
//
//	go test ./internal/machine -run TestPoisonIsCounted -rapid.seed=N
//
// and look for longer by -rapid.checks=100000.
func TestPoisonIsCountedAloneAndOtherEventsAreAppliedOnce(t *testing.T) {
	set := func(name, to string) {
		f := flag.Lookup(name)
		if before := f.Value.String(); before == f.DefValue {
			must(t, flag.Set(name, to))
			t.Cleanup(func() { must(t, flag.Set(name, before)) })
		}
	}
	set("rapid.seed", strconv.FormatUint(rand.Uint64(), 10))
	checks := checksOfEach
	if testing.Short() {
		checks /= 10
	}
	set("rapid.checks", strconv.Itoa(checks))
	t.Logf("-rapid.seed=%v, %v runs of each kind", flag.Lookup("rapid.seed").Value, flag.Lookup("rapid.checks").Value)
	for _, action := range []projection.Action{projection.ActionPark, projection.ActionParkStream,
		projection.ActionSkip, projection.ActionStop} {
		for how, name := range namers {
			t.Run(action.String()+", "+how, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					events, poison := stream(t)
					h := handling{most: rapid.IntRange(1, 64).Draw(t, "most"), name: name,
						forgets: rapid.Bool().Draw(t, "forgets"), policy: engine.Policy{
							MaxParked: -1, MaxFailureShare: -1,
							Retry:     projection.RetryPolicy{MaxAttempts: rapid.IntRange(1, 4).Draw(t, "attempts")},
							OnFailure: action,
						}}
					mustBeRight(t, how, events, poison, h, drive(t, events, poison, h))
				})
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustBeRight fails if the policy requires another outcome.
func mustBeRight(t *rapid.T, how string, events []event.Envelope, poison map[int64]bool, h handling, c outcome) {
	var good, bad, behind []int64
	parked := make(map[string]bool)
	stopped, seen := int64(0), 0
	for _, e := range events {
		seen++
		if parked[e.Stream] {
			behind = append(behind, e.Position)
			continue
		}
		if !poison[e.Position] {
			good = append(good, e.Position)
			continue
		}
		bad = append(bad, e.Position)
		parked[e.Stream] = h.policy.OnFailure == projection.ActionParkStream
		if h.policy.OnFailure == projection.ActionStop {
			stopped = e.Position
			break
		}
	}
	if !slices.Equal(c.applied, good) {
		t.Fatalf("applied %v, want %v", c.applied, good)
	}
	if !slices.Equal(c.behind, behind) {
		t.Fatalf("parked %v behind others, want %v", c.behind, behind)
	}
	if c.stopped != stopped {
		t.Fatalf("stopped at %d, want %d", c.stopped, stopped)
	}
	left := bad
	if stopped != 0 {
		left = nil
	}
	for _, action := range []projection.Action{projection.ActionPark, projection.ActionParkStream,
		projection.ActionSkip} {
		want := left
		if action != h.policy.OnFailure {
			want = nil
		}
		if !slices.Equal(c.left[action], want) {
			t.Fatalf("%v: %v, want %v", action, c.left[action], want)
		}
	}
	tries := h.policy.Retry.MaxAttempts
	if len(c.counted) != len(bad) {
		t.Fatalf("%d events were counted, want %d", len(c.counted), len(bad))
	}
	for position, n := range c.counted {
		if !poison[position] || n != tries {
			t.Fatalf("%d failed %d times by the count, poison: %v", position, n, poison[position])
		}
	}
	if bound := mostCalls(how, seen, len(bad), h.most, tries); c.calls > bound {
		t.Fatalf("%d calls for %d events, %d of them poison, in batches of %d: more than %d", c.calls, seen, len(bad),
			h.most, bound)
	}
}

// mostCalls bounds how often a handler is called for n events of which k fail, each tried t times, in batches of m: as
// BatchSizer says.
func mostCalls(how string, n, k, m, t int) int {
	l := bits.Len(uint(m))
	whole := (n+m-1)/m + 1
	switch how {
	case "says":
		return whole + k*(t+l+3)
	case "cannot say":
		return whole + k*(t+5*l+1)
	}
	// A handler that names a wrong event can make each failure cost one call for each event between the named one and
	// the failing one.
	return whole + (k*t+n)*(m+2)
}

func TestNarrowingFindsOnePoisonEventInFewCalls(t *testing.T) {
	const most = 512
	events := make([]event.Envelope, most)
	for i := range events {
		events[i].Position = int64(i + 1)
	}
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Int64Range(1, most).Draw(t, "poison")
		parks := engine.Policy{Retry: projection.RetryPolicy{MaxAttempts: 1}}
		named := drive(t, events, map[int64]bool{at: true}, handling{most: most, name: namers["says"], policy: parks})
		if named.wasted != 1 {
			t.Errorf("%d calls failed in vain though the handler said which event it was", named.wasted)
		}
		halved := drive(t, events, map[int64]bool{at: true},
			handling{most: most, name: namers["cannot say"], policy: parks})
		if halved.wasted > 2*9 || halved.wasted < 9-1 {
			t.Errorf("%d calls failed in vain for position %d", halved.wasted, at)
		}
	})
}

func TestSizeGrowsBackByDoubling(t *testing.T) {
	s := NewBatchSizer(100, 100)
	s.Alone()
	var sizes []int
	for range 9 {
		sizes = append(sizes, int(s.size))
		s.Succeeded()
	}
	if want := []int{1, 2, 4, 8, 16, 32, 64, 100, 100}; !slices.Equal(sizes, want) {
		t.Errorf("sizes %v, want %v", sizes, want)
	}
}

func TestFullBatchesGrowWhileTheyAreQuick(t *testing.T) {
	s := NewBatchSizer(500, 1500)
	for i, step := range []struct {
		n    int
		took time.Duration
		want int
	}{
		{499, 0, 500},
		{500, quick + 1, 500},
		{500, quick, 1000},
		{600, 0, 1000},
		{1000, slow, 1000},
		{1000, 0, 1500},
		{1500, 0, 1500},
		{1500, slow + 1, 750},
		{750, slow + 1, 500},
		{500, time.Hour, 500},
	} {
		s.Applied(step.n, step.took)
		if s.Most() != step.want || int(s.size) != step.want {
			t.Fatalf("step %d: batches of %d, at most %d, want %d", i+1, s.size, s.Most(), step.want)
		}
	}
}

func TestLargestSizesFit(t *testing.T) {
	s := NewBatchSizer(math.MaxInt16, math.MaxInt16)
	s.Applied(math.MaxInt16, 0)
	s.Conflicted(math.MaxInt16)
	s.Failed(make([]event.Envelope, math.MaxInt16/2), -1)
	for range 20 {
		s.Applied(int(s.size), 0)
	}
	if s.size != math.MaxInt16 || s.Most() != math.MaxInt16 {
		t.Errorf("batches of %d, at most %d", s.size, s.Most())
	}
}

// The largest size stays while a failing event is looked for, but not after a conflict.
func TestLargestSizeAfterFailures(t *testing.T) {
	grown := func() BatchSizer {
		s := NewBatchSizer(500, 4000)
		for s.Most() < 4000 {
			s.Applied(s.Most(), 0)
		}
		return s
	}
	failed := grown()
	failed.Failed(make([]event.Envelope, 4000), -1)
	if failed.size != 2000 || failed.Most() != 2000 {
		t.Errorf("after a failure batches of %d, at most %d", failed.size, failed.Most())
	}
	alone := failed
	alone.Failed(make([]event.Envelope, 1), -1)
	if alone.ceiling != 4000 {
		t.Errorf("after an event failed alone, the ceiling is %d", alone.ceiling)
	}
	for i, want := range []int{leastPatience, 2 * leastPatience, 4 * leastPatience} {
		tries := 0
		for ; failed.Most() < 4000; tries++ {
			failed.Applied(failed.Most(), 0)
		}
		if tries != want {
			t.Errorf("after failure %d, the ceiling was raised after %d batches, want %d", i+1, tries, want)
		}
		failed.Failed(make([]event.Envelope, 4000), -1)
	}
	for n, want := range map[int]int16{4000: 500, 600: 300} {
		conflicted := grown()
		conflicted.Conflicted(n)
		if conflicted.size != want || conflicted.Most() != 500 ||
			int(conflicted.ceiling) != max(500, n/2) {
			t.Errorf("after a conflict of %d events batches of %d, at most %d", n, conflicted.size, conflicted.Most())
		}
	}
}

func TestEventsBeforeTheFailingOneAreAppliedWithoutIt(t *testing.T) {
	events := []event.Envelope{{Position: 3}, {Position: 5}, {Position: 9}, {Position: 10}}
	s := NewBatchSizer(10, 10)
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
