package actors

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/fair"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// Limiter limits how many batches, deliveries and short statements run at once, in all and for each tenant. So no
// tenant takes all slots, and nothing queues inside the connection pool. Package internal/fair says which request gets
// the next free slot: slots are shared among the tenants that wait, and then among the projections of a tenant, by
// their weights.
//
// Deliveries have slots of their own, since they hold no connection while they wait for their receivers. Projections
// whose last delivery took long share half of those slots, in all and of each tenant: receivers that hang leave the
// other half to other projections. The statements of deliveries share a few connections beside those of the batches.
//
// Batches that share messages hold no connection while they run. They have slots of their own, several for each
// connection of the batches, so that messages fill. A message needs a slot of a connection while it is sent. For these
// slots, all messages together count as one more tenant, so neither they nor other batches wait in vain.
type Limiter struct {
	batches    *slots
	sharing    *slots
	deliveries *slots
	long       *slots
	acks       *slots
	reads      *slots
	quarantine *slots
	weights    *weights
}

// Limits configures a Limiter.
type Limits struct {
	// Connections is the size of the pool. A part of the connections is for settling and other short statements, the
	// rest for batches.
	Connections int
	// Batches, BatchesPerTenant and Deliveries are Config.MaxBatches, MaxBatchesPerTenant and MaxDeliveries. 0 means
	// the default.
	Batches, BatchesPerTenant, Deliveries int
	// TenantWeight is Config.TenantWeight. If it is nil, all tenants have the weight 1.
	TenantWeight func(tenant string) int
	// Log receives panics of TenantWeight.
	Log *zap.Logger
	// Waited is called after each wait for a slot. It may be nil.
	Waited func(observe.Wait)
}

// acquireFunc waits for a slot, and returns a function that releases it.
type acquireFunc func(ctx context.Context) (release func(), err error)

// sharingPerBatch is how many batches that share messages run at once for each connection of the batches. With fewer,
// messages do not fill: some are on their way, and others wait for the next one. Each holds its events, and 64 KiB of
// statements at most.
const sharingPerBatch = 4

// longAfter is how long a delivery takes at least to count as long.
const longAfter = time.Second

// defaultDeliveries is the least default of Config.MaxDeliveries. Each delivery costs a few goroutines and the memory
// of its events. With fewer, the many projections of a single receiver that is down could take all slots. With far
// more, the events that they hold could add up to gigabytes.
const defaultDeliveries = 100

// NewLimiter returns a Limiter whose slots are all free.
func NewLimiter(l Limits) *Limiter {
	reads := max(1, l.Connections/4)
	if l.Connections >= 4 {
		reads = max(2, reads) // one slow read leaves one slot to the others
	}
	batches := cmp.Or(l.Batches, max(1, l.Connections-reads))
	deliveries := cmp.Or(l.Deliveries, max(defaultDeliveries, 2*batches))
	half := max(1, deliveries/2)
	slotsOf := func(kind observe.Slot, all, perTenant int) *slots {
		s := newSlots(all, perTenant)
		s.kind, s.waited = kind, l.Waited
		return s
	}
	perTenant := cmp.Or(l.BatchesPerTenant, halfOf(batches))
	return &Limiter{
		batches:    slotsOf(observe.SlotBatch, batches, perTenant),
		sharing:    slotsOf(observe.SlotBatch, sharingPerBatch*batches, sharingPerBatch*perTenant),
		deliveries: slotsOf(observe.SlotDelivery, deliveries, half),
		long:       slotsOf(observe.SlotLongDelivery, half, max(1, half/2)),
		acks:       slotsOf(observe.SlotAck, max(1, l.Connections/4), 0),
		reads:      slotsOf(observe.SlotRead, reads, halfOf(reads)),
		quarantine: slotsOf(observe.SlotQuarantine, 1, 0),
		weights:    newWeights(l.TenantWeight, l.Log),
	}
}

// halfOf returns half of n, rounded up.
func halfOf(n int) int { return (n + 1) / 2 }

// Serve begins to serve a tenant. A single tenant has no limit of its own.
func (l *Limiter) Serve(tenant string) { l.limitTenants(l.weights.serve(tenant)) }

// Leave ends to serve a tenant, and forgets it.
func (l *Limiter) Leave(tenant string) { l.limitTenants(l.weights.leave(tenant)) }

func (l *Limiter) limitTenants(tenants int) {
	for _, s := range []*slots{l.batches, l.sharing, l.deliveries, l.long, l.reads} {
		s.limitTenants(tenants > 1)
	}
}

// flow returns the Flow of a projection's requests. The partitions of a projection share its weight.
func (l *Limiter) flow(tenant, name string, weight int) fair.Flow {
	return fair.Flow{Tenant: tenant, TenantWeight: l.weights.of(tenant), Projection: name, Weight: weight}
}

// feed returns the Flow of a feed's requests.
func (l *Limiter) feed(tenant string) fair.Flow { return l.flow(tenant, "", 0) }

// Read waits for a slot for a short statement of the node itself, and runs it.
func (l *Limiter) Read(ctx context.Context, statement func(ctx context.Context) error) error {
	release, err := l.read(ctx, fair.Flow{})
	if err != nil {
		return err
	}
	defer release()
	return statement(ctx)
}

// read waits for a slot for a short statement.
func (l *Limiter) read(ctx context.Context, flow fair.Flow) (release func(), err error) {
	return l.reads.acquire(ctx, flow)
}

// tryRead returns nil if there is no slot for a short statement at once.
func (l *Limiter) tryRead(flow fair.Flow) (release func()) { return l.reads.tryAcquire(flow) }

// Ack waits for a connection's slot for a short statement of a delivery. Only statements on the control schema may hold
// it: a tenant whose tables are locked must not keep others from acknowledging.
func (l *Limiter) Ack(ctx context.Context, id projection.ID, weight int) (release func(), err error) {
	return l.acks.acquire(ctx, l.flow(id.Tenant, id.Name, weight))
}

// batch waits for a slot for a batch.
func (l *Limiter) batch(ctx context.Context, flow fair.Flow) (release func(), err error) {
	return l.batches.acquire(ctx, flow)
}

// batchInTurn is batch for a batch whose slot can be promised to another one. The opening, which may be nil, is begun
// if another batch ends while this one waits.
func (l *Limiter) batchInTurn(ctx context.Context, flow fair.Flow, opening engine.Opening) (*slot, error) {
	return l.batches.claim(ctx, flow, opening)
}

// share waits for a slot for a batch that shares messages.
func (l *Limiter) share(ctx context.Context, flow fair.Flow) (release func(), err error) {
	return l.sharing.acquire(ctx, flow)
}

// message waits for a slot for a message with batches of these tenants. It has the highest of their weights: with a
// lower one, the batches of that tenant would wait longer than it may. The other tenants take no slots besides.
func (l *Limiter) message(ctx context.Context, tenants []string) (release func(), err error) {
	var flow fair.Flow
	for _, tenant := range tenants {
		flow.TenantWeight = max(flow.TenantWeight, l.weights.of(tenant))
	}
	return l.batches.acquire(ctx, flow)
}

// delivery waits for a slot for a delivery.
func (l *Limiter) delivery(ctx context.Context, flow fair.Flow) (release func(), err error) {
	return l.deliveries.acquire(ctx, flow)
}

// longDelivery is delivery for a projection whose last delivery took long.
func (l *Limiter) longDelivery(ctx context.Context, flow fair.Flow) (release func(), err error) {
	return both(ctx,
		func(ctx context.Context) (func(), error) { return l.long.acquire(ctx, flow) },
		func(ctx context.Context) (func(), error) { return l.delivery(ctx, flow) })
}

// quarantined waits for the only slot for events that may end the process, and then for another one. Such events are
// tried one by one, so that it becomes known which of them did it.
func (l *Limiter) quarantined(ctx context.Context, flow fair.Flow, then acquireFunc) (release func(), err error) {
	return both(ctx, func(ctx context.Context) (func(), error) { return l.quarantine.acquire(ctx, flow) }, then)
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
