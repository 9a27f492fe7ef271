package machine

import (
	"time"

	"github.com/millrace-go/millrace/event"
)

// BatchSizer decides how many events the next batch takes. A failed batch is narrowed until the event that fails stands
// alone; only then do attempts count. After successes the size grows back by doubling. It is pure.
//
// Whether the policy parks, skips or stops at a failing event, exactly those events fail that fail alone. All others
// are applied once and in order, except those that are parked after an event of their stream. If the projection stops,
// all events before the failing one are applied.
//
// Full batches that take little time grow, by doubling the largest size within its bounds. If one takes long, the
// largest size is halved. After a conflict it is the usual one again, since a large batch holds its locks for longer.
// What has met a conflict, or has failed although no event fails alone, becomes a ceiling: it is raised after more and
// more full batches.
//
// Of n events, k fail, and each of them is tried t times. Batches have at most m events, and l is the number of binary
// digits of m. Without conflicts, the handler is called at most
//
//	⌈n/m⌉ + 1 + k·(t+l+3)  times if it names the event that failed,
//	⌈n/m⌉ + 1 + k·(t+5l+1) times if it does not.
//
// The first part is the full batches. Each failing event costs its t tries. If it is named, it also costs one call that
// fails and one for the events before it. If it is not, it costs up to l failures and up to three calls for each of the
// l sizes, since the size doubles after each success and is halved again. After the event the size grows back in l+1
// calls. If the projection stops, n counts the events up to there, and k is 1.
type BatchSizer struct {
	// size is how many events the next batch takes, and most how many it may take while nothing fails.
	size, most int16
	// most is between usual and ceiling, and that is at most largest. patience is how many full batches must be applied
	// before the ceiling is raised, and missing how many of them are missing.
	usual, ceiling, largest int16
	// doubted is the ceiling from before a large batch failed, until it is known whether one of its events fails alone.
	// 0 if none did.
	doubted           int16
	patience, missing int8
	// pace is how many batches must succeed before the size doubles, 0 meaning one, and left is how many of them are
	// missing. Conflicts raise it.
	pace, left int8
	// before is the position of the event that a handler named as failed, 0 if there is none. The events before it are
	// applied again without it, and then it is tried alone.
	before int64
}

// slowest is the highest pace of a BatchSizer.
const slowest = 16

const (
	// quick is how long a full batch may take so that the next ones may be twice as large. The database shares its
	// costs for each batch among more events then.
	quick = 25 * time.Millisecond
	// slow is how long a full batch takes whose size is halved. Others wait for its locks, and on a file for the
	// writer.
	slow = 100 * time.Millisecond
)

// NewBatchSizer returns a sizer that starts with batches of the usual size.
func NewBatchSizer(usual, largest int) BatchSizer {
	return BatchSizer{
		size: int16(usual), most: int16(usual), usual: int16(usual), ceiling: int16(largest), largest: int16(largest),
		patience: leastPatience,
	}
}

// leastPatience and mostPatience are how many full batches are applied before a ceiling is raised for the first time,
// and at most.
const leastPatience, mostPatience = 8, 120

// Most returns how many events the next batch may take at most.
func (s *BatchSizer) Most() int { return int(s.most) }

// Take returns how many of the events, which are in order, the next batch takes: at least one where there are any. An
// event that cannot be read is taken alone.
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

// Applied records that a batch of n events was applied in a time.
func (s *BatchSizer) Applied(n int, took time.Duration) {
	s.Succeeded()
	if n < int(s.most) {
		return
	}
	s.doubted = 0
	if s.most == s.ceiling && s.ceiling < s.largest {
		s.missing--
		if s.missing <= 0 {
			s.ceiling = doubled(s.ceiling, s.largest)
		}
	}
	switch {
	case took <= quick:
		s.most = doubled(s.most, s.ceiling)
	case took > slow:
		s.most = max(s.most/2, s.usual)
	}
	s.size = s.most
}

// Succeeded records that a batch was applied, or that its event was parked or skipped.
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
		s.size, s.left = doubled(s.size, s.most), s.pace
	}
}

// Conflicted records that a batch of n events was rolled back because of other transactions. No event is to blame. If
// it happens again and again, the size grows more slowly.
func (s *BatchSizer) Conflicted(n int) {
	s.lower(int16(n / 2))
	s.most, s.doubted = s.usual, 0
	s.size, s.before = min(int16(max(1, n/2)), s.most), 0
	s.pace = min(max(1, 2*s.pace), slowest)
	s.left = s.pace
}

// Failed records that a batch of these events failed, at the position failing unless that is 0. It reports whether the
// failure counts, which it does only if the batch was one event.
func (s *BatchSizer) Failed(events []event.Envelope, failing int64) (counts bool) {
	if len(events) == 1 {
		s.size, s.before = 1, 0
		s.ceiling, s.doubted = max(s.ceiling, s.doubted), 0
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
	s.size = int16(max(1, len(events)/2))
	if before := s.ceiling; len(events) > int(s.usual) {
		s.lower(s.size)
		s.doubted = max(s.doubted, before)
	}
	return false
}

// lower makes n the ceiling, unless that is lower, and raises the patience.
func (s *BatchSizer) lower(n int16) {
	s.ceiling = min(s.ceiling, max(n, s.usual))
	s.most = min(s.most, s.ceiling)
	s.missing = s.patience
	s.patience = int8(min(2*int(s.patience), mostPatience))
}

// doubled returns twice n, and most at most.
func doubled(n, most int16) int16 { return int16(min(2*int(n), int(most))) }

// Alone makes the next batch one event.
func (s *BatchSizer) Alone() { s.size, s.before = 1, 0 }

// Parking has the parked streams, at least those of the next events, and how many more events of parked streams may be
// parked.
type Parking struct {
	Streams map[string]bool
	Room    int64
}

// Split returns the next batch of the events, which are in order and not empty: the first n of them. Of these, handled
// go to the handler, as many as Take allows, and blocked are parked: their streams are parked. Parked events before an
// event that must stand alone go first. n is 0 if the first event must be parked and there is no room for it.
func (s *BatchSizer) Split(events []event.Envelope, parked Parking) (handled, blocked []event.Envelope, n int) {
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
