package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
)

const (
	// releaseTimeout limits a release. Leases that are not released end with the node.
	releaseTimeout = 5 * time.Second
	// releaseRetries is how often a release is tried again at once.
	releaseRetries = 2
)

// release releases the leases of drained projections by one statement. It continues when other work is cancelled. A
// release that failed may have been committed: the next read of the leases shows it.
func (n *node) release(ctx actor.Context) {
	advances := n.table.NextRelease()
	if len(advances) == 0 {
		return
	}
	n.deps.releaseThen(ctx, advances, func(ctx actor.Context, err error) {
		n.carryOut(ctx, n.table.Released(advances, err))
		if err != nil {
			n.deps.Log.Warn("releasing leases failed, retrying", zap.Int("leases", len(advances)), zap.Error(err))
			n.search.Resync()
			n.searchSoon(ctx)
			return
		}
		for _, a := range advances {
			n.deps.leaseChanged(a.Lease.ID, a.Lease.Epoch, observe.LeaseReleased)
		}
	})
}

// releaseThen releases leases, also when other work is cancelled, and calls done in the actor of ctx.
func (d *Deps) releaseThen(ctx actor.Context, advances []engine.Advance, done func(ctx actor.Context, err error)) {
	self := ctx.Self()
	d.Own(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		err := d.Ownership.Release(ctx, advances)
		for retry := 0; err != nil && retry < releaseRetries && ctx.Err() == nil; retry++ {
			// It may have been one connection. Leases that the previous try released are skipped.
			err = d.Ownership.Release(ctx, advances)
		}
		d.call(self, func(ctx actor.Context) { done(ctx, err) })
	})
}

// lose carries out the effects of losing leases.
func (n *node) lose(ctx actor.Context, effects []ownership.Effect, lost []ownership.LostLease) {
	n.carryOut(ctx, effects)
	for _, l := range lost {
		n.deps.leaseChanged(l.ID, l.Epoch, observe.LeaseLost)
	}
}

// checkLeases reads the leases that the node holds of these tenants. It retires lost leases, and drains projections
// that should not run. It waits for no slot.
func (n *node) checkLeases(ctx actor.Context, tenants map[string]bool) {
	if len(tenants) == 0 {
		return
	}
	keys := n.table.KeysOf(tenants)
	if len(keys) == 0 {
		return
	}
	rows := make([]int32, len(keys))
	for i, key := range keys {
		rows[i] = key.Row
	}
	var leases []engine.Lease
	n.deps.Go(ctx, n.deps.Timing.QueryTimeout, func(ctx context.Context) (err error) {
		leases, err = n.deps.Ownership.Leases(ctx, rows)
		return err
	}, func(ctx actor.Context, err error) {
		if err != nil {
			n.deps.Log.Warn("reading the leases of changed tenants failed, retrying", zap.Error(err))
			n.search.Resync() // it reads all owned leases
			n.searchSoon(ctx)
			return
		}
		n.seen(ctx, incarnationOf(leases), renamed(leases, n.deps.Node.Member())...)
		effects, lost := n.table.Check(n.deps.Node.ID, keys, leases)
		n.lose(ctx, effects, lost)
		if len(lost) > 0 {
			n.searchIn(ctx, 0) // the last search counted them, and took a smaller share of the free leases
		}
	})
}

// renamed returns the tenants of leases whose projections the member does not know, since they were renamed.
func renamed(leases []engine.Lease, member engine.Member) (tenants []string) {
	for _, l := range leases {
		if !member.Knows(l.ID.Tenant, l.ID.Name) {
			tenants = append(tenants, l.ID.Tenant)
		}
	}
	return tenants
}

// incarnationOf returns the incarnation of the server in which leases were read together, 0 if there are none.
func incarnationOf(leases []engine.Lease) engine.Incarnation {
	if len(leases) == 0 {
		return 0
	}
	return leases[0].Incarnation
}

// readOrders reads the orders of users for which notifications came. It waits for no slot.
func (n *node) readOrders(ctx actor.Context) {
	rows := n.orders.Next(n.table, &n.search)
	if len(rows) == 0 {
		return
	}
	var orders map[int32]engine.Orders
	n.deps.Go(ctx, n.deps.Timing.QueryTimeout, func(ctx context.Context) (err error) {
		orders, err = n.deps.Ownership.Orders(ctx, n.deps.Node, rows)
		return err
	}, func(ctx actor.Context, err error) {
		if err != nil {
			n.orders.Failed()
			n.deps.Log.Warn("reading desired states failed, retrying", zap.Error(err))
			return
		}
		n.carryOut(ctx, n.orders.Read(n.table, orders))
		n.readOrders(ctx)
	})
}

// leaseRequest is a projection that waits for its lease.
type leaseRequest struct {
	from *actor.PID
	*messages.LeaseRequest
}

// readLeases reads the leases that projections ask for. The error of an answer wraps projection.ErrLeaseLost if the
// lease is not the projection's any more.
func (n *node) readLeases(ctx actor.Context) {
	requests := n.leases.next()
	if len(requests) == 0 {
		return
	}
	rows := make([]int32, len(requests))
	for i, r := range requests {
		rows[i] = r.Lease.Row
	}
	var leases []engine.Lease
	n.deps.query(ctx, func(ctx context.Context) (err error) {
		leases, err = n.deps.Ownership.Leases(ctx, rows)
		return err
	}, func(ctx actor.Context, err error) {
		if err != nil {
			for _, r := range requests {
				ctx.Send(r.from, &messages.LeaseRead{Op: r.Op, Err: err})
			}
			n.readLeases(ctx)
			return
		}
		answers, gone := answersTo(requests, leases)
		n.seen(ctx, incarnationOf(leases), gone...)
		for i, answer := range answers {
			if answer.Err == nil {
				n.carryOut(ctx, n.table.Seen(answer.Lease))
			}
			ctx.Send(requests[i].from, answer)
		}
		n.readLeases(ctx)
	})
}

// answersTo returns the answers to requests for leases that were read, and the tenants whose rows are gone.
func answersTo(requests []leaseRequest, leases []engine.Lease) (answers []*messages.LeaseRead, gone []string) {
	byRow := make(map[int32]engine.Lease, len(leases))
	for _, l := range leases {
		byRow[l.Row] = l
	}
	for _, r := range requests {
		lease, exists := byRow[r.Lease.Row]
		if !exists {
			gone = append(gone, r.Lease.ID.Tenant)
		}
		answers = append(answers, &messages.LeaseRead{Lease: lease, Op: r.Op, Err: r.Lease.Check(lease, exists)})
	}
	return answers, gone
}
