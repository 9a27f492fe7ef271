package machine

import "github.com/millrace-go/millrace/event"

// BatchSizer decides how many events the next batch takes. A failed batch is narrowed until the event that fails stands
// alone; only then do attempts count. After successes the size grows back by doubling. It is pure.
//
// Whether the policy parks, skips or stops at a failing event, exactly those events fail that fail alone. All others are
// applied once and in order, except those that are parked after an event of their stream. If the projection stops, all events
// before the failing one are applied.
//
// Of n events, k fail, and each of them is tried t times. Batches have at most m events, and l is the number of binary digits
// of m. Without conflicts, the handler is called at most
//
//	⌈n/m⌉ + 1 + k·(t+l+3)  times if it names the event that failed,
//	⌈n/m⌉ + 1 + k·(t+5l+1) times if it does not.
//
// The first part is the full batches. Each failing event costs its t tries. If it is named, it also costs one call that fails and
// one for the events before it. If it is not, it costs up to l failures and up to three calls for each of the l sizes, since the
// size doubles after each success and is halved again. After the event the size grows back in l+1 calls. If the projection stops, n counts
// the events up to there, and k is 1.
type BatchSizer struct {
	size, most int32
	// before is the position of the event that a handler named as failed, 0 if there is none. The events before it are applied
	// again without it, and then it is tried alone.
	before int64
	// pace is how many batches must succeed before the size doubles, 0 meaning one, and left is how many of them are missing.
	// Conflicts raise it.
	pace, left int8
}

// slowest is the highest pace of a BatchSizer.
const slowest = 16

// NewBatchSizer returns a sizer that starts with batches of the largest size.
func NewBatchSizer(most int) BatchSizer { return BatchSizer{size: int32(most), most: int32(most)} }

// Take returns how many of the events, which are in order, the next batch takes: at least one where there are any. An event that
// cannot be read is taken alone.
func (s *BatchSizer) Take(events []event.Envelope) int {
	n := min(int(s.size), len(events))
	if n > 0 && events[0].Unreadable != nil {
		return 1
	}
	for i := range events[:n] {
		if i != 0 && (s.before != 0 && events[i].Position >= s.before || events[i].Unreadable != nil) {
			return i
		}
	}
	return n
}

// Succeeded records that a batch was applied.
func (s *BatchSizer) Succeeded() {
	if s.before != 0 {
		// The events before the failing one were applied, and the failing one is tried alone next.
		s.before, s.size = 0, 1
		return
	}
	switch {
	case s.size == s.most:
		s.pace /= 2
	case s.left > 1:
		s.left--
	default:
		s.size, s.left = min(s.size*2, s.most), s.pace
	}
}

// Conflicted records that a batch of n events was rolled back because of other transactions. No event is to blame. If it happens
// again and again, the size grows more slowly.
func (s *BatchSizer) Conflicted(n int) {
	s.size, s.before = int32(max(1, n/2)), 0
	s.pace = min(max(1, 2*s.pace), slowest)
	s.left = s.pace
}

// Failed records that a batch of these events failed, at the position failing unless that is 0. It reports whether the failure
// counts, which it does only if the batch was one event.
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
	s.size = int32(max(1, len(events)/2))
	return false
}

// Alone makes the next batch one event.
func (s *BatchSizer) Alone() { s.size, s.before = 1, 0 }

// ParkedStreams has the parked streams of the next events, and how many more events may be parked.
type ParkedStreams struct {
	Streams map[string]bool
	Room    int64
}

// Split returns the next batch of the events, which are in order and not empty: the first n of them. Of these, handled go to the
// handler, as many as Take allows, and blocked are parked: their streams are parked. Parked events before an event that must stand
// alone go first. n is 0 if the first event must be parked and there is no room for it.
func (s *BatchSizer) Split(events []event.Envelope, parked ParkedStreams) (handled, blocked []event.Envelope, n int) {
	if len(parked.Streams) == 0 {
		n = s.Take(events)
		return events[:n:n], nil, n
	}
	var live []event.Envelope
	for _, e := range events {
		if !parked.Streams[e.Stream] {
			live = append(live, e)
		}
	}
	take := s.Take(live)
	if alone := s.size == 1 || len(live) > 0 && live[0].Unreadable != nil; alone && parked.Streams[events[0].Stream] {
		take = 0
	}
	for _, e := range events {
		if parked.Streams[e.Stream] {
			if int64(len(blocked)) == parked.Room {
				break
			}
			blocked = append(blocked, e)
		} else {
			if len(handled) == take {
				break
			}
			handled = append(handled, e)
		}
	}
	return handled, blocked, len(handled) + len(blocked)
}
