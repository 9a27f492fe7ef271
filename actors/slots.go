package actors

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/millrace-go/millrace/internal/engine"
)

// Slots limit how many batches run at once, in all and for each tenant, so that no tenant takes them all and nothing
// queues inside the connection pool. Waiters are served in the order in which they came.
//
// Deliveries have slots of their own, since they hold no connection while they wait for their receivers. Projections whose
// last delivery took long share half of those slots, in all and of each tenant: receivers that hang leave the others the rest.
// The statements of deliveries, acknowledgements above all, share a few connections beside those of the batches.
type Limiter struct {
	batches    *lane
	deliveries *lane
	long       *lane
	acks       *semaphore.Weighted
	reads      *semaphore.Weighted
	suspects   *semaphore.Weighted

	// served is how many tenants the node serves; a single one is not limited.
	served atomic.Int64
}

// lane is what is limited together.
type lane struct {
	all       *semaphore.Weighted
	perTenant int64

	mu      sync.Mutex
	tenants map[string]*tenantLimit // those that are in use
}

// tenantLimit is a tenant's own limit, and how many hold or wait for a part of it.
type tenantLimit struct {
	*semaphore.Weighted
	users int
}

func newLane(all, perTenant int) *lane {
	return &lane{all: semaphore.NewWeighted(int64(all)), perTenant: int64(perTenant), tenants: make(map[string]*tenantLimit)}
}

// longDelivery is how long a delivery may take before its projection counts among those that take long.
const longDelivery = time.Second

// defaultDeliveries is the least default of how many deliveries run at once. Each costs a few goroutines and the memory of
// its events. With fewer, the many projections of a single receiver that is down could take all slots. With far more, the
// events that they hold could add up to gigabytes.
const defaultDeliveries = 100

// NewSlots shares out a pool of that many connections: a part for reading the ends of the tenants' events and what else
// is short, the rest for batches.
func NewLimiter(connections, batches, perTenant, deliveries int) *Limiter {
	reads := max(1, connections/4)
	if connections >= 4 {
		reads = max(2, reads) // a read that is slow leaves one to the others
	}
	if batches == 0 {
		batches = max(1, connections-reads)
	}
	if perTenant == 0 {
		perTenant = max(1, (batches+1)/2)
	}
	if deliveries == 0 {
		deliveries = max(defaultDeliveries, 2*batches)
	}
	ofTenant := max(1, deliveries/2)
	return &Limiter{
		batches:    newLane(batches, perTenant),
		deliveries: newLane(deliveries, ofTenant),
		long:       newLane(max(1, deliveries/2), max(1, ofTenant/2)),
		acks:       semaphore.NewWeighted(int64(max(1, connections/4))),
		reads:      semaphore.NewWeighted(int64(reads)),
		suspects:   semaphore.NewWeighted(1),
	}
}

// Serve tells how many tenants the node serves.
func (s *Limiter) Serve(tenants int) { s.served.Store(int64(tenants)) }

// acquire waits for a part of the tenant's own limit.
func (l *lane) acquire(ctx context.Context, name string) (release func(), err error) {
	l.mu.Lock()
	t, ok := l.tenants[name]
	if !ok {
		t = &tenantLimit{Weighted: semaphore.NewWeighted(l.perTenant)}
		l.tenants[name] = t
	}
	t.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(l.tenants, name)
		}
	}
	if err := t.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	return func() { t.Release(1); leave() }, nil
}

// batch waits for a slot for a batch of the tenant.
func (s *Limiter) batch(ctx context.Context, name string) (release func(), err error) {
	return s.in(ctx, s.batches, name)
}

// delivery waits for a slot for a delivery of the tenant. long reports whether the projection's last delivery took long.
func (s *Limiter) delivery(ctx context.Context, name string, long bool) (release func(), err error) {
	if !long {
		return s.in(ctx, s.deliveries, name)
	}
	among, err := s.in(ctx, s.long, name)
	if err != nil {
		return nil, err
	}
	slot, err := s.in(ctx, s.deliveries, name)
	if err != nil {
		among()
		return nil, err
	}
	return func() { slot(); among() }, nil
}

// Ack waits for a connection's slot for a short statement of a delivery. Only statements on the control schema may hold it: a
// tenant whose tables are locked must not keep others from acknowledging.
func (s *Limiter) Ack(ctx context.Context) (release func(), err error) { return single(ctx, s.acks) }

func (s *Limiter) in(ctx context.Context, l *lane, name string) (release func(), err error) {
	ofTenant := func() {}
	if s.served.Load() > 1 {
		if ofTenant, err = l.acquire(ctx, name); err != nil {
			return nil, noSlot(err)
		}
	}
	if err := l.all.Acquire(ctx, 1); err != nil {
		ofTenant()
		return nil, noSlot(err)
	}
	return func() { l.all.Release(1); ofTenant() }, nil
}

// suspect waits for the one slot for an event at which a process ended before, and then for another one.
func (s *Limiter) suspect(ctx context.Context, then slotFunc) (release func(), err error) {
	if err := s.suspects.Acquire(ctx, 1); err != nil {
		return nil, noSlot(err)
	}
	other, err := then(ctx)
	if err != nil {
		s.suspects.Release(1)
		return nil, err
	}
	return func() { other(); s.suspects.Release(1) }, nil
}

// read waits for a slot for something short.
func (s *Limiter) read(ctx context.Context) (release func(), err error) { return single(ctx, s.reads) }

func single(ctx context.Context, slots *semaphore.Weighted) (release func(), err error) {
	if err := slots.Acquire(ctx, 1); err != nil {
		return nil, noSlot(err)
	}
	return func() { slots.Release(1) }, nil
}

// Read waits for a slot for a short statement of the runtime's own.
func (s *Limiter) Read(ctx context.Context) (release func(), err error) { return s.read(ctx) }

// noSlot is nobody's fault, and says nothing of the server.
func noSlot(err error) error {
	return &engine.Fault{Class: engine.Infrastructure, Err: fmt.Errorf("no slot came free in time: %w", err)}
}

// tryRead gets a slot for something short if there is one at once; doneReading gives it back.
func (s *Limiter) tryRead() bool { return s.reads.TryAcquire(1) }

func (s *Limiter) doneReading() { s.reads.Release(1) }
