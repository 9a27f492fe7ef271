package kit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/projection"
)

// Parking is a projection "p" that parks streams: its handler fails at the poison events until Mended is true. The
// streams a, b and c have ten events each, in turn.
type Parking struct {
	*Bundle
	ID          millrace.ProjectionID
	DeadLetters projection.DeadLetters
	Poison      sync.Map
	Mended      atomic.Bool
	Calls       atomic.Int64 // at poison events
	Handle      BatchFunc    // fails at the poison events
	P           millrace.Projection
	At          map[string][]int64 // the positions of each stream's events
}

// NewParking makes the projection in a store without events.
func NewParking(b *Bundle) *Parking {
	s := &Parking{Bundle: b, ID: millrace.ProjectionID{Name: "p"}, At: make(map[string][]int64)}
	s.DeadLetters = s.Store.DeadLetters(s.ID)
	for range 10 {
		s.More("a", "b", "c")
	}
	s.Handle = FailsAt("p", func(position int64) bool { _, bad := s.Poison.Load(position); return bad },
		func(context.Context, Tx, int, int64) error {
			if s.Mended.Load() {
				return nil
			}
			s.Calls.Add(1)
			return ErrOnPurpose
		})
	s.P = millrace.Projection{Name: "p", MaxEvents: 8, MaxFailureShare: projection.NoLimit, Retry: Soon(1),
		OnFailure: projection.ActionParkStream,
		Handler:   s.Store.Batch(s.Handle)}
	return s
}

// More appends one event to each of these streams and returns the last position.
func (s *Parking) More(streams ...string) (last int64) {
	s.T.Helper()
	for _, stream := range streams {
		last = s.Append(stream, 1).Positions[0]
		s.At[stream] = append(s.At[stream], last)
	}
	return last
}

// PoisonAt makes events fail.
func (s *Parking) PoisonAt(positions ...int64) {
	for _, p := range positions {
		s.Poison.Store(p, true)
	}
}

// CatchUp waits until the projection has come to the head.
func (s *Parking) CatchUp(rt *millrace.Runtime) {
	s.T.Helper()
	s.Reaches(rt, "p", s.Head())
}

// Parked returns the positions of the parked events, in order.
func (s *Parking) Parked() (positions []int64) {
	s.T.Helper()
	for _, l := range s.DeadLettersOf("p") {
		positions = append(positions, l.Position)
	}
	return positions
}

// MustHaveParked checks that these events are parked and all others were applied once, each stream in order.
func (s *Parking) MustHaveParked(want ...int64) {
	s.T.Helper()
	slices.Sort(want)
	if got := s.Parked(); !slices.Equal(got, want) {
		s.T.Errorf("parked: %v, want %v", got, want)
	}
	s.MustHaveApplied(want...)
}

// MustHaveApplied checks that all events but these were applied once, each stream in order, and that the count of
// parked events is that of the dead letters.
func (s *Parking) MustHaveApplied(but ...int64) {
	s.T.Helper()
	if counted, letters := s.Status(s.Runtime(millrace.Config{}), "p").Parked,
		len(s.Parked()); int(counted) != letters {
		s.T.Errorf("%d parked events are counted, and there are %d dead letters", counted, letters)
	}
	positions := s.Positions("p")
	total := 0
	for stream, at := range s.At {
		total += len(at)
		want := slices.DeleteFunc(slices.Clone(at), func(p int64) bool { return slices.Contains(but, p) })
		got := slices.DeleteFunc(slices.Clone(positions), func(p int64) bool { return !slices.Contains(at, p) })
		if !slices.Equal(got, want) {
			s.T.Errorf("of stream %s %v were applied, want %v", stream, got, want)
		}
	}
	if len(positions) != total-len(but) {
		s.T.Errorf("%d events were applied, want %d", len(positions), total-len(but))
	}
}

// MustReplay replays dead letters, and checks how many replays succeeded and failed.
func (s *Parking) MustReplay(filter projection.DeadLetterFilter, limit, done, failed int) {
	s.T.Helper()
	result, err := s.DeadLetters.Replay(s.Ctx, filter, limit)
	if err != nil || result.Done != int64(done) || result.Failed != int64(failed) {
		s.T.Errorf("replayed %+v, %v; want %d, and %d failures", result, err, done, failed)
	}
}

// MustDiscard discards dead letters, and checks how many.
func (s *Parking) MustDiscard(filter projection.DeadLetterFilter, limit, done int) {
	s.T.Helper()
	if result, err := s.DeadLetters.Discard(s.Ctx, filter, limit); err != nil || result.Done != int64(done) {
		s.T.Errorf("discarded %+v, %v; want %d", result, err, done)
	}
}
