package machine

import "github.com/millrace-go/millrace/event"

// BatchSizer decides how many events the next batch takes. A failed batch is narrowed until the event that fails stands
// alone; only then do attempts count. After successes the size grows back by doubling. It is pure.
//
// Whatever a policy does about a failing event, parks it, alone or with its stream, skips it or stops, exactly those events
// fail that fail alone, and all others are applied once and in order, but for those that are parked behind one of their
// stream; where it stops, all those before it. Of n events of which k fail, each tried t
// times, in batches of at most m, with l the number of binary digits of m, the handler is called at most
//
//	⌈n/m⌉ + 1 + k·(t+l+3)  times where it names the event that failed,
//	⌈n/m⌉ + 1 + k·(t+5l+1) times where it cannot.
//
// Full batches are the first part. Each failing event then costs its t tries. On the way to it, one that is named costs a
// call that fails and one for the events before it; one that is not costs up to l failures and, since after each success the
// size doubles and is halved again, up to three calls for each of the l sizes. Behind it the size grows back in l+1 calls.
// Where the projection stops, n counts the events up to there, and k is 1.
type BatchSizer struct {
	size, most int
	// before is the position of the event that a handler said it failed at: the events before it are applied again
	// without it, and it is tried alone. 0 means none.
	before int64
}

// NewBatchSizer starts at the full size.
func NewBatchSizer(most int) BatchSizer { return BatchSizer{size: most, most: most} }

// Take returns how many of the events, which are in order, the next batch takes: at least one where there are any.
func (s *BatchSizer) Take(events []event.Envelope) int {
	n := min(s.size, len(events))
	for i := 1; i < n; i++ {
		if s.before != 0 && events[i].Position >= s.before {
			return i
		}
	}
	return n
}

// Size is the most that the next batch takes.
func (s *BatchSizer) Size() int { return s.size }

// Succeeded takes in that a batch was applied.
func (s *BatchSizer) Succeeded() {
	if s.before != 0 {
		// The events before the failing one are in. It stands alone now.
		s.before, s.size = 0, 1
		return
	}
	s.size = min(s.size*2, s.most)
}

// Failed takes in that a batch of these events failed, at failing where that is not 0. It tells whether the failure is
// to be counted: only if the batch was one event.
func (s *BatchSizer) Failed(events []event.Envelope, failing int64) (counts bool) {
	if len(events) == 1 {
		s.size, s.before = 1, 0
		return true
	}
	s.before = 0
	for i := range events {
		if events[i].Position != failing {
			continue
		}
		if i == 0 {
			s.size = 1
		} else {
			s.before = failing
		}
		return false
	}
	s.size = max(1, len(events)/2)
	return false
}

// Alone makes the next batch one event.
func (s *BatchSizer) Alone() { s.size, s.before = 1, 0 }

// ParkedStreams is what is known of parked streams when a batch is taken: which of the streams ahead are parked, and how many more
// events may be.
type ParkedStreams struct {
	Streams map[string]bool
	Room    int64
}

// Split says which of the events ahead, in order, make the next batch: n of them, of which handled go to the handler and
// behind are parked, since their streams are. handled are as many as Take allows. An event that is to stand alone does so
// without events before it: those that are parked there go first. Where n is 0 though there are events, the first would
// have to be parked and there is no room. It is pure.
func (s *BatchSizer) Split(events []event.Envelope, aside ParkedStreams) (handled, behind []event.Envelope, n int) {
	if len(aside.Streams) == 0 {
		n = s.Take(events)
		return events[:n:n], nil, n
	}
	var live []event.Envelope
	for _, e := range events {
		if !aside.Streams[e.Stream] {
			live = append(live, e)
		}
	}
	take := s.Take(live)
	if s.size == 1 && len(events) > 0 && aside.Streams[events[0].Stream] {
		take = 0
	}
	for ; n < len(events); n++ {
		if aside.Streams[events[n].Stream] {
			if int64(len(behind)) == aside.Room {
				break
			}
			behind = append(behind, events[n])
		} else {
			if len(handled) == take {
				break
			}
			handled = append(handled, events[n])
		}
	}
	return handled, behind, n
}
