package millrace

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
)

// ProjectionID names one projection of one tenant. An empty Tenant means the default tenant.
type ProjectionID = projection.ID

// Projection is a named handler and how its events are handled. Name and Handler must be set.
type Projection struct {
	// Name names the projection and its checkpoint. A projection with a new name starts at the first event, unless
	// RenamedFrom is set. 1 to 100 bytes, and not @ and digits at the end.
	Name string
	// Version numbers the versions of the projection. A higher version builds a new read model while readers still use
	// the old one: see docs/changing.md. Each version has its own checkpoint, leases and dead letters. Its handler
	// should write to tables of its own. A version n of 2 or more is stored under the name "name@n", and ProjectionIDs
	// and ProjectionFrom contain that name. A runtime may register several versions of a name. Readers use the earliest
	// version until Admin.Swap, so register that version too until then. Range: 0 to 9,999; 0 and 1 are both the first
	// version. Deliver, DeliverEach and DeliverOn have no read model, so a version of 2 or more is an error for them.
	Version int
	// RenamedFrom is the name that the projection had in the release before, without a version. If a tenant has a
	// projection of that name, it is renamed as by Admin.Rename as soon as no living node registers the old name. So in
	// a rolling deployment the old nodes run the projection until they end. For other tenants the projection is
	// created, and the old name is retired. In either case a node of the old release that starts later runs nothing of
	// it, and logs why. All versions of a projection have one RenamedFrom. It may stay after the rename. Default: none.
	RenamedFrom string
	// Start is where the projection begins when it runs for a tenant for the first time. Default: the first event. It
	// does not apply where the projection is renamed.
	Start projection.Start
	// Handler handles the events. It is made by pgstore.Each, Batch, On, OnBatch, Queued, QueuedEach, OnQueued,
	// OnQueuedBatch or Route, or by Deliver, DeliverEach, DeliverOn or DeliverRoute.
	Handler Handler

	// Tenants are the tenants for which the projection runs, among those of Config.Tenants. An entry is a tenant's name
	// or a pattern of path.Match: "eu-*" selects every tenant whose name begins with "eu-", now and later. "*" matches
	// no slash. ExactTenant returns the entry for a name that contains *, ?, [ or a backslash. Default: all tenants of
	// the runtime.
	//
	// If no running node registers the projection for a tenant any more, its checkpoint stays, and its state is
	// StateUnregistered.
	Tenants []string
	// Types selects events by type. It must be empty if the handler selects them, as pgstore.On does. If the store has
	// a registry of package eventtype, these are current types, and select the older events that lead to them as well.
	// Default: all events.
	Types []string
	// Partitions splits the projection by stream, so that its handler runs for several streams at once, also on several
	// nodes. Each partition has its own checkpoint, lease, failures and dead letters. The events of one stream stay in
	// order; those of different streams may not. So the handler must not depend on the order between streams.
	// Partitions that write the same row wait for each other. On one node, Config.MaxBatchesPerTenant limits how many
	// partitions of a tenant work at once. Partitions applies when the projection runs for a tenant for the first time.
	// Later only Runtime.Repartition changes the number of that tenant. From 1 to 1,024. Default 1: no partitions.
	Partitions int
	// MaxEvents limits the events of a batch, from 1 to 32,767. Far fewer than 500 cost throughput, far more hold locks
	// of the read model for longer. Default 500. If each function of the handler takes a batch (Batch, OnBatch, Queued,
	// OnQueuedBatch), batches grow to up to 4,000 events while the projection catches up, as long as each takes a few
	// milliseconds.
	MaxEvents int
	// MaxBytes limits a batch in bytes of events, roughly. Default 4 MiB. A larger event is a batch of its own.
	MaxBytes int
	// Timeout bounds one call of the handler. From 10 ms to 365 days. Default 30 s. In a transaction, half of it bounds
	// the wait for each lock of another session. A wait that is too long is not counted against an event, and the batch
	// is tried again until it succeeds.
	Timeout time.Duration
	// Weight is the weight by which waiting projections share the slots of their tenant. A projection of weight 3 gets
	// three slots while a projection of weight 1 gets one. The partitions of a projection share its weight. From 1 to
	// 100. Default 1.
	Weight int
	// Middleware is called around the functions of the handler, inside of Config.Middleware, the first outermost.
	// Default: none.
	Middleware []Middleware
	// AsyncCommit commits batches without waiting for the disk. After a crash of the server the last of them are
	// applied again: read model and checkpoint were lost together. So it is safe for a pure read model, but not if
	// others act on what the handler writes. A batch in which the handler appends events by AppendTx waits for the disk
	// all the same. Deliveries have no transaction, and AsyncCommit is refused for them. It has no effect on a file.
	AsyncCommit bool

	// Retry sets when a failing event is tried again. Default: 4 attempts, with delays of 1 s, 2 s and 4 s between
	// them, each up to 20 % shorter or longer at random. An event whose handler returns an error wrapped in
	// backoff.Permanent (cenkalti/backoff/v4) is not tried again.
	Retry projection.RetryPolicy
	// OnFailure sets what happens to an event whose attempts are used up. Default: projection.ActionParkStream, which
	// parks the event and the later events of its stream. A request of the handler by projection.Retry, Park,
	// ParkStream, Skip or Stop overrides it, and so does FailureHandler.
	OnFailure projection.Action
	// AnyOrder declares that the handler does not mind the order of a stream's events, for instance because it counts
	// them, or because each event has a row of its own. Then a failing event is parked alone, as by
	// projection.ActionPark: also if OnFailure is projection.ActionParkStream, which is its zero value. Replays are
	// never refused because later events of the stream are handled. It is for all functions of the handler, those of
	// Route and queued ones too, and for all partitions. A stream is still parked if the handler requests
	// projection.ParkStream, or if FailureHandler returns ActionParkStream. Default: the order matters. See
	// docs/failures.md.
	AnyOrder bool
	// FailureHandler decides about each failure, in place of Retry.MaxAttempts and OnFailure. It is called from the
	// first failure on, and returns ActionRetry as often as the event should be tried again, after the delays of Retry.
	// It is not called if the handler requests an action, nor for infrastructure faults. If it takes longer than 5 s,
	// panics or returns no action, Retry and OnFailure decide, and that is logged. For permanent errors, and for events
	// that crash the process, ActionRetry is treated as ActionParkStream, or as ActionPark if that is OnFailure or
	// AnyOrder is set. It may be called from several goroutines at once, for different tenants, and again for a failure
	// whose decision was lost. Default: none.
	FailureHandler func(ctx context.Context, f projection.Failure) projection.Action
	// MaxFailureShare is the share of the last 100 events that may fail and be parked or skipped, at most 1. A failed
	// event that would exceed it stops the projection like ActionStop, if at least 20 of the 100 have failed: so many
	// failures are a bug or an outage. The reason says how many failed. Events that did not fail, but are parked after
	// an earlier event of their stream, are left out of the 100. Each partition counts for itself. Counting begins anew
	// with a new owner of the lease, and when the projection is resumed. Default 0.5. projection.NoLimit turns the
	// limit off.
	MaxFailureShare float64
	// MaxParked is how many failed events of a partition may be parked at a time. The next one stops the projection
	// like ActionStop. Events that did not fail, but are parked after an earlier event of their stream, do not count:
	// see MaxBlocked. Default 10,000. projection.NoLimit turns the limit off.
	MaxParked int64
	// MaxBlocked is how many events of a partition that did not fail may be parked at a time, after an earlier event of
	// their stream. The next one stops the projection like ActionStop. projection.NoLimit turns the limit off. Default
	// 100,000, or MaxParked if that is more or projection.NoLimit.
	MaxBlocked int64
	// MissingObjectTimeout is how long the projection waits for a table, column, function, schema or privilege that its
	// handler needs. A migration may be about to create it. Meanwhile it tries again every few seconds, its state is
	// StateMissingObject, and nothing is counted. Then the error counts against the event like any other,
	// since dynamic SQL may name a missing object for one event alone. Default 5 min. With projection.None, the error
	// counts at once.
	MissingObjectTimeout time.Duration
	// Replay sets when parked events are replayed automatically. Default: never. See also
	// projection.DeadLetters.Replay.
	Replay projection.ReplayPolicy
	// Breaker is for a handler that depends on something outside of the database. While that is down, the projection
	// waits, and no event is counted as failed. A new owner of the lease begins with a closed breaker. Default: none,
	// and outages outside of the database count like any other error.
	Breaker projection.BreakerPolicy
	// Reset deletes what the handler has written for the tenant of its context, so that the projection can begin again:
	// by TRUNCATE, or by DELETE where other tenants or projections have rows in the table. Admin.Rebuild runs it, in
	// one transaction with the new checkpoint, while the projection stands still. Timeout bounds it, and its
	// transaction is like that of a handler. It may run again after a failure, whose transaction was rolled back.
	// TRUNCATE needs a right of its own, and waits for readers of the table. Made by pgstore.Hook or sqlitestore.Hook.
	// Default: none, and Admin.Rebuild returns projection.ErrNoHook.
	Reset Hook
	// Swap lets readers use the tables of this version, for instance by replacing a view. Version must be at least 2.
	// Admin.Swap runs the hook in the transaction in which this version replaces the earlier one. No batch of either
	// version runs meanwhile. For a tenant without an earlier version, it runs in the transaction that creates the
	// checkpoints. Timeout bounds it, and its transaction is like that of a handler. It may run again after a failure,
	// whose transaction was rolled back. Default: none, if readers need no change.
	Swap Hook
	// Drop removes what this version has written for the tenant of its context. Version must be at least 2.
	// Admin.DropVersion runs the hook in the transaction in which it removes the version. Otherwise it is like Swap.
	// Default: none.
	Drop Hook
}

// largestBatch is how far batches grow from the default of Projection.MaxEvents.
const largestBatch = 4000

func (p Projection) withDefaults() Projection {
	p.Partitions = cmp.Or(p.Partitions, 1)
	p.MaxBytes = cmp.Or(p.MaxBytes, 4<<20)
	p.Timeout = cmp.Or(p.Timeout, 30*time.Second)
	p.Weight = cmp.Or(p.Weight, 1)
	return p
}

// validate returns the first invalid field of a projection that has its defaults.
func (p Projection) validate() error {
	switch {
	case p.Partitions < 1 || p.Partitions > partition.Most:
		return fmt.Errorf("Projection.Partitions must be from 1 to %d: %d", partition.Most, p.Partitions)
	case p.MaxEvents < 0 || p.MaxEvents > math.MaxInt16:
		return fmt.Errorf("Projection.MaxEvents must be from 1 to %d: %d", math.MaxInt16, p.MaxEvents)
	case p.MaxBytes < 0:
		return fmt.Errorf("Projection.MaxBytes must not be negative: %d", p.MaxBytes)
	case p.Timeout < 10*time.Millisecond:
		return fmt.Errorf("Projection.Timeout must be at least 10ms: %v", p.Timeout)
	case p.Weight < 1 || p.Weight > actors.MaxWeight:
		return fmt.Errorf("Projection.Weight must be from 1 to %d: %d", actors.MaxWeight, p.Weight)
	case p.MissingObjectTimeout < 0 && p.MissingObjectTimeout != projection.None:
		return fmt.Errorf("Projection.MissingObjectTimeout must not be negative: %v", p.MissingObjectTimeout)
	}
	return cmp.Or(engine.ValidName(p.Name, p.Version), p.validRenamedFrom(), engine.ValidStart(p.Start),
		engine.ValidDuration("Projection.Timeout", p.Timeout),
		validateMiddleware("Projection.Middleware", p.Middleware))
}

// ExactTenant returns the entry of Projection.Tenants that selects only the tenant of that name. It puts a backslash
// before each character that has a meaning in patterns.
func ExactTenant(name string) string { return engine.ExactTenant(name) }

// validateTypes checks the event types of the handler.
func (p Projection) validateTypes(types []string) error {
	from := "the event type of a handler"
	if len(p.Types) > 0 {
		from = "Projection.Types"
	}
	for _, t := range types {
		if t == "" {
			return fmt.Errorf("%s must not be empty", from)
		}
		if err := valid.Text(from, t); err != nil {
			return err
		}
	}
	return nil
}

// definition is the projection as the actors see it.
func (p Projection) definition(r *Runtime) (*engine.Definition, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	if err := engine.ValidateTenants(p.Tenants, r.store.ValidTenant); err != nil {
		return nil, err
	}
	h, err := p.handle(r.store, r.config.Middleware)
	if err != nil {
		return nil, err
	}
	if err := p.validateTypes(h.Types); err != nil {
		return nil, err
	}
	h, err = h.Upcasting(r.store.EventTypes())
	if err != nil {
		return nil, err
	}
	policy := engine.Policy{
		Retry: p.Retry, OnFailure: p.OnFailure, FailureHandler: p.FailureHandler, MaxFailureShare: p.MaxFailureShare,
		MaxParked: p.MaxParked, MaxBlocked: p.MaxBlocked, Replay: p.Replay, AnyOrder: p.AnyOrder,
	}.WithDefaults()
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	breaker := engine.BreakerDefaults(p.Breaker)
	if err := engine.ValidateBreaker(breaker); err != nil {
		return nil, err
	}
	hooks, err := p.hooks(r.store)
	if err != nil {
		return nil, err
	}
	faults := h.Faults
	faults.MissingObject = p.MissingObjectTimeout
	def := &engine.Definition{
		Types:       slices.Clone(h.Types),
		Tenants:     engine.NewTenantFilter(p.Tenants),
		RenamedFrom: p.RenamedFrom,
		Start:       p.Start,
		Partitions:  p.Partitions,
		MaxEvents:   cmp.Or(p.MaxEvents, engine.DefaultBatch),
		MaxBytes:    p.MaxBytes,
		Timeout:     p.Timeout,
		Weight:      p.Weight,
		Delivers:    h.Deliver != nil,
		Policy:      policy,
		Breaker:     breaker,
		Faults:      faults.WithDefaults(),
		Hooks:       hooks,
	}
	def.Batches = p.batches(r, h, policy)
	return def, nil
}

// batches returns how the handler is called.
func (p Projection) batches(r *Runtime, h handler.Handler, policy engine.Policy) (b engine.Batches) {
	if p.MaxEvents == 0 && h.Batches {
		b.Largest = largestBatch
	}
	if h.Deliver != nil {
		slot := func(ctx context.Context, id ProjectionID) (func(), error) { return r.ackSlot(ctx, id, p.Weight) }
		b.Apply = r.store.Deliver(h, engine.DeliverOptions{Timeout: p.Timeout,
			Policy: policy, LeaseDeadline: r.deliveryDeadline, Slot: slot})
		return b
	}
	options := engine.ApplyOptions{Timeout: p.Timeout, AsyncCommit: p.AsyncCommit}
	b.Shares = r.store.Shares(h)
	b.Apply = r.store.Apply(h, options)
	if h.Queue == nil { // a message is not begun in advance
		b.Opening = r.store.Opening(options)
	}
	return b
}
