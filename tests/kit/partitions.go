package kit

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/partition"
)

// Split is a projection with n partitions that records what it applies. It notes events that come to a partition that
// must not have them.
type Split struct {
	*Bundle
	Name string
	N    int

	mu     sync.Mutex
	wrong  []string
	served map[int]int // events by partition, also of batches that were rolled back
}

// NewSplit returns a projection with n partitions.
func NewSplit(b *Bundle, name string, n int) *Split {
	return &Split{Bundle: b, Name: name, N: n, served: make(map[int]int)}
}

// Projection is the projection. Its handler calls then after it has recorded the events.
func (s *Split) Projection(then BatchFunc) millrace.Projection {
	return millrace.Projection{Name: s.Name, Partitions: s.N, MaxEvents: 20, Retry: Soon(1000), MaxFailureShare: -1,
		Handler: s.Store.Batch(func(ctx context.Context, tx Tx, events []event.Envelope) error {
			s.note(ctx, events)
			if err := tx.Record(ctx, s.Name, events...); err != nil {
				return err
			}
			return then(ctx, tx, events)
		})}
}

// Queued is Projection with a handler that queues its statements, one of which fails if fails returns true.
func (s *Split) Queued(fails func() bool) millrace.Projection {
	p := s.Projection(Nothing)
	p.Handler = s.Store.Queued(func(ctx context.Context, q Queue, events []event.Envelope) error {
		s.note(ctx, events)
		q.Record(s.Name, events...)
		if fails() {
			QueueFails(q)
		}
		return nil
	})
	return p
}

func (s *Split) note(ctx context.Context, events []event.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, _ := millrace.ProjectionFrom(ctx)
	for _, e := range events {
		s.served[id.Partition]++
		if partition.Of(partition.Slot(e.Stream), s.N) != id.Partition {
			s.wrong = append(s.wrong, fmt.Sprintf("%s at %d came to %s", e.Stream, e.Position, id))
		}
	}
}

// Verify checks that every event of the default tenant but the parked ones was applied once, by its partition, and that
// those of each stream were applied in order.
func (s *Split) Verify(parked ...int64) {
	s.T.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) > 0 {
		s.T.Errorf("with %d partitions: %v", s.N, s.wrong)
	}
	if err := s.CheckStreams(s.Name, parked...); err != nil {
		s.T.Error(err)
	}
}

// Served returns how many partitions handled events.
func (s *Split) Served() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.served)
}

// Handled returns how many events came to handlers, also in batches that were rolled back.
func (s *Split) Handled() (events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.served {
		events += n
	}
	return events
}

// CheckStreams is Check for a projection with partitions, whose order is only that of each stream.
func (b *Bundle) CheckStreams(name string, parked ...int64) error {
	events, err := AllEvents(b.Ctx, b.Store)
	if err != nil {
		return err
	}
	applied, err := b.Store.Applied(b.Ctx, name)
	if err != nil {
		return err
	}
	want, got := make(map[string][]Applied), make(map[string][]Applied)
	for _, e := range events {
		if !slices.Contains(parked, e.Position) {
			want[e.Stream] = append(want[e.Stream], Applied{e.Position, e.Stream, e.Version})
		}
	}
	for _, a := range applied {
		got[a.Stream] = append(got[a.Stream], a)
	}
	for stream := range want {
		if !slices.Equal(got[stream], want[stream]) {
			return fmt.Errorf("of stream %s %s applied %v, want %v", stream, name, got[stream], want[stream])
		}
	}
	if len(got) > len(want) {
		return fmt.Errorf("%s applied events of %d streams, want %d", name, len(got), len(want))
	}
	return nil
}
