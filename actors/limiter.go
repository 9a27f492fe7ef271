package actors

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/millrace-go/millrace/internal/engine"
)

// Limiter limits how many batches run at once, in all and for each tenant. So no tenant takes all slots, and nothing queues
// inside the connection pool. Slots are given out in the order of the requests.
//
// Deliveries have slots of their own, since they hold no connection while they wait for their receivers. Projections whose
// last delivery took long share half of those slots, in all and of each tenant: receivers that hang leave the other half to
// other projections. The statements of deliveries share a few connections beside those of the batches.
type Limiter struct {
	batches    *limit
	deliveries *limit
	long       *limit
	acks       *semaphore.Weighted
	reads      *semaphore.Weighted
	quarantine *semaphore.Weighted

	// served is how many tenants the node serves. A single tenant has no limit of its own.
	served atomic.Int64
}

// acquireFunc waits for a slot, and returns a function that releases it.
type acquireFunc func(ctx context.Context) (release func(), err error)

// limit is a number of slots, of which each tenant may have a part.
type limit struct {
	all       *semaphore.Weighted
	perTenant int64
	tenants   sync.Map // tenant to *semaphore.Weighted
}

func newLimit(all, perTenant int) *limit {
	return &limit{all: semaphore.NewWeighted(int64(all)), perTenant: int64(perTenant)}
}

// of returns the slots of one tenant.
func (l *limit) of(tenant string) *semaphore.Weighted {
	if slots, ok := l.tenants.Load(tenant); ok {
		return slots.(*semaphore.Weighted)
	}
	slots, _ := l.tenants.LoadOrStore(tenant, semaphore.NewWeighted(l.perTenant))
	return slots.(*semaphore.Weighted)
}

// longAfter is how long a delivery takes at least to count as long.
const longAfter = time.Second

// defaultDeliveries is the least default of Config.MaxDeliveries. Each delivery costs a few goroutines and the memory of its
// events. With fewer, the many projections of a single receiver that is down could take all slots. With far more, the events
// that they hold could add up to gigabytes.
const defaultDeliveries = 100

// NewLimiter shares out a pool of connections: a part is for settling and other short statements, the rest for batches. The
// other arguments are Config.MaxBatches, MaxBatchesPerTenant and MaxDeliveries; 0 means the default.
func NewLimiter(connections, batches, perTenant, deliveries int) *Limiter {
	reads := max(1, connections/4)
	if connections >= 4 {
		reads = max(2, reads) // one slow read leaves one slot to the others
	}
	batches = cmp.Or(batches, max(1, connections-reads))
	perTenant = cmp.Or(perTenant, max(1, (batches+1)/2))
	deliveries = cmp.Or(deliveries, max(defaultDeliveries, 2*batches))
	half := max(1, deliveries/2)
	return &Limiter{
		batches:    newLimit(batches, perTenant),
		deliveries: newLimit(deliveries, half),
		long:       newLimit(half, max(1, half/2)),
		acks:       semaphore.NewWeighted(int64(max(1, connections/4))),
		reads:      semaphore.NewWeighted(int64(reads)),
		quarantine: semaphore.NewWeighted(1),
	}
}

// Serve sets how many tenants the node serves.
func (l *Limiter) Serve(tenants int) { l.served.Store(int64(tenants)) }

// Read waits for a slot for a short statement, and runs it.
func (l *Limiter) Read(ctx context.Context, statement func(ctx context.Context) error) error {
	release, err := l.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	return statement(ctx)
}

// read waits for a slot for a short statement.
func (l *Limiter) read(ctx context.Context) (release func(), err error) { return acquire(ctx, l.reads) }

// tryRead returns nil if there is no slot for a short statement at once.
func (l *Limiter) tryRead() (release func()) {
	if !l.reads.TryAcquire(1) {
		return nil
	}
	return func() { l.reads.Release(1) }
}

// Ack waits for a connection's slot for a short statement of a delivery. Only statements on the control schema may hold it: a
// tenant whose tables are locked must not keep others from acknowledging.
func (l *Limiter) Ack(ctx context.Context) (release func(), err error) { return acquire(ctx, l.acks) }

// batch waits for a slot for a batch of the tenant.
func (l *Limiter) batch(ctx context.Context, tenant string) (release func(), err error) {
	return l.acquire(ctx, l.batches, tenant)
}

// delivery waits for a slot for a delivery of the tenant.
func (l *Limiter) delivery(ctx context.Context, tenant string) (release func(), err error) {
	return l.acquire(ctx, l.deliveries, tenant)
}

// longDelivery is delivery for a projection whose last delivery took long.
func (l *Limiter) longDelivery(ctx context.Context, tenant string) (release func(), err error) {
	return both(ctx,
		func(ctx context.Context) (func(), error) { return l.acquire(ctx, l.long, tenant) },
		func(ctx context.Context) (func(), error) { return l.delivery(ctx, tenant) })
}

// quarantined waits for the only slot for events that may end the process, and then for another one. Such events are tried one
// by one, so that it becomes known which of them did it.
func (l *Limiter) quarantined(ctx context.Context, then acquireFunc) (release func(), err error) {
	return both(ctx, slotOf(l.quarantine), then)
}

// acquire waits for a slot of a limit: first for one of the tenant's.
func (l *Limiter) acquire(ctx context.Context, from *limit, tenant string) (release func(), err error) {
	if l.served.Load() <= 1 {
		return acquire(ctx, from.all)
	}
	return both(ctx, slotOf(from.of(tenant)), slotOf(from.all))
}

func slotOf(slots *semaphore.Weighted) acquireFunc {
	return func(ctx context.Context) (func(), error) { return acquire(ctx, slots) }
}

// both waits for the first slot and then for the second one.
func both(ctx context.Context, first, second acquireFunc) (release func(), err error) {
	releaseFirst, err := first(ctx)
	if err != nil {
		return nil, err
	}
	releaseSecond, err := second(ctx)
	if err != nil {
		releaseFirst()
		return nil, err
	}
	return func() { releaseSecond(); releaseFirst() }, nil
}

// acquire waits for one of the slots. If it times out, neither the server nor an event is at fault.
func acquire(ctx context.Context, slots *semaphore.Weighted) (release func(), err error) {
	if err := slots.Acquire(ctx, 1); err != nil {
		return nil, &engine.Fault{Class: engine.Infrastructure, Err: fmt.Errorf("wait for a slot: %w", err)}
	}
	return func() { slots.Release(1) }, nil
}
