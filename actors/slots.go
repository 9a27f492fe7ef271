package actors

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/millrace-go/millrace/projection"
)

// Slots limit how many batches run at once, in all and for each tenant, so that no tenant takes them all and nobody
// queues inside the connection pool. Those who wait get their turn in the order in which they came.
type Slots struct {
	all       *semaphore.Weighted
	reads     *semaphore.Weighted
	suspects  *semaphore.Weighted
	perTenant int64

	// served is how many tenants the node serves; a single one is not limited.
	served atomic.Int64

	mu      sync.Mutex
	tenants map[string]*semaphore.Weighted
}

// NewSlots shares out a pool of that many connections: a part for reading the ends of the tenants' events and what else
// is short, the rest for batches.
func NewSlots(connections, batches, perTenant int) *Slots {
	reads := max(1, connections/4)
	if batches == 0 {
		batches = max(1, connections-reads)
	}
	if perTenant == 0 {
		perTenant = max(1, (batches+1)/2)
	}
	return &Slots{
		all:       semaphore.NewWeighted(int64(batches)),
		reads:     semaphore.NewWeighted(int64(reads)),
		suspects:  semaphore.NewWeighted(1),
		perTenant: int64(perTenant),
		tenants:   make(map[string]*semaphore.Weighted),
	}
}

// Serve tells how many tenants the node serves.
func (s *Slots) Serve(tenants int) { s.served.Store(int64(tenants)) }

// tenant returns the tenant's own limit, nil while the node serves no other.
func (s *Slots) tenant(name string) *semaphore.Weighted {
	if s.served.Load() <= 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tenants[name]
	if !ok {
		t = semaphore.NewWeighted(s.perTenant)
		s.tenants[name] = t
	}
	return t
}

// batch waits for a slot for a batch of the tenant.
func (s *Slots) batch(ctx context.Context, name string) (release func(), err error) {
	ofTenant := func() {}
	if tenant := s.tenant(name); tenant != nil {
		if err := tenant.Acquire(ctx, 1); err != nil {
			return nil, noSlot(err)
		}
		ofTenant = func() { tenant.Release(1) }
	}
	if err := s.all.Acquire(ctx, 1); err != nil {
		ofTenant()
		return nil, noSlot(err)
	}
	return func() { s.all.Release(1); ofTenant() }, nil
}

// suspect waits for the one slot for an event at which a process ended before, and for one for a batch.
func (s *Slots) suspect(ctx context.Context, name string) (release func(), err error) {
	if err := s.suspects.Acquire(ctx, 1); err != nil {
		return nil, noSlot(err)
	}
	batch, err := s.batch(ctx, name)
	if err != nil {
		s.suspects.Release(1)
		return nil, err
	}
	return func() { batch(); s.suspects.Release(1) }, nil
}

// read waits for a slot for something short.
func (s *Slots) read(ctx context.Context) (release func(), err error) {
	if err := s.reads.Acquire(ctx, 1); err != nil {
		return nil, noSlot(err)
	}
	return func() { s.reads.Release(1) }, nil
}

// noSlot is nobody's fault, and says nothing of the server.
func noSlot(err error) error {
	return &projection.Fault{Class: projection.Infrastructure, Err: fmt.Errorf("no slot came free in time: %w", err)}
}

// tryRead gets a slot for something short if there is one at once; doneReading gives it back.
func (s *Slots) tryRead() bool { return s.reads.TryAcquire(1) }

func (s *Slots) doneReading() { s.reads.Release(1) }
