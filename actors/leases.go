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

// carryOut sends the table's decisions to the supervisor, and releases the leases of drained projections.
func (n *node) carryOut(ctx actor.Context, effects []ownership.Effect) {
	for _, e := range effects {
		switch e.Action {
		case ownership.Run:
			ctx.Send(ctx.Parent(), &messages.Run{Lease: *e.Lease})
		case ownership.Drain:
			ctx.Send(ctx.Parent(), &messages.Drain{Key: e.Key})
		case ownership.Retire:
			ctx.Send(ctx.Parent(), &messages.Retire{Key: e.Key})
		case ownership.Revalidate:
			ctx.Send(ctx.Parent(), &messages.Revalidate{Key: e.Key, Lease: *e.Lease})
		}
	}
	n.release(ctx)
	if n.table.Closed() && !n.search.busy {
		ctx.Send(ctx.Parent(), &messages.AllReleased{})
	}
}

// release releases the leases of drained projections by one statement. It continues when other work is cancelled.
func (n *node) release(ctx actor.Context) {
	advances := n.table.NextRelease()
	if len(advances) == 0 {
		return
	}
	self := ctx.Self()
	n.deps.Own(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		err := n.deps.Ownership.Release(ctx, advances)
		for retry := 0; err != nil && retry < releaseRetries && ctx.Err() == nil; retry++ {
			// It may have been one connection. Leases that the previous try released are skipped.
			err = n.deps.Ownership.Release(ctx, advances)
		}
		n.deps.call(self, func(ctx actor.Context) { n.released(ctx, advances, err) })
	})
}

// released handles the result of a release. A release that failed may have been committed: the next read of the leases
// shows it.
func (n *node) released(ctx actor.Context, advances []engine.Advance, err error) {
	n.carryOut(ctx, n.table.Released(advances, err))
	if err == nil {
		for _, a := range advances {
			n.deps.leaseChanged(a.Lease.ID, a.Lease.Epoch, observe.LeaseReleased)
		}
	}
	if err != nil {
		n.log.Warn("releasing leases failed, retrying", zap.Int("leases", len(advances)), zap.Error(err))
		n.search.resync = 0
		n.reconcileSoon(ctx)
	}
}

// lost is called when a projection found its lease lost. Others may be lost, too.
func (n *node) lost(ctx actor.Context, key engine.LeaseKey) {
	n.retire(ctx, key)
	n.search.resync = 0
	n.reconcile(ctx)
}

// retire ends a lease that is lost.
func (n *node) retire(ctx actor.Context, key engine.LeaseKey) {
	effects, lost := n.table.Lost(key)
	n.carryOut(ctx, effects)
	for _, l := range lost {
		n.deps.leaseChanged(l.ID, l.Epoch, observe.LeaseLost)
	}
}

// releaseAll stops claiming, drains all projections, and notifies the other nodes, which take over this node's share.
func (n *node) releaseAll(ctx actor.Context) {
	n.carryOut(ctx, n.table.Close())
	n.deps.Run(ctx, n.deps.Timing.QueryTimeout, func(ctx context.Context) error {
		return n.deps.Ownership.AnnounceDrain(ctx, n.deps.Node)
	}, func(_ actor.Context, err error) {
		if err != nil {
			n.log.Debug("announcing the drain failed", zap.Error(err))
		}
	})
}

// orders are the requests of users about projections. They are read from the database.
type orders struct {
	// changed are the rows for which a notification came. true means that the desired state was set.
	changed map[int32]bool
	reading bool
}

// readOrders reads the orders for which notifications came. It waits for no slot.
func (n *node) readOrders(ctx actor.Context) {
	if n.orders.reading {
		return
	}
	changed := make(map[int32]bool)
	var rows []int32
	for row, desired := range n.orders.changed {
		if _, phase := n.table.Lease(row); phase != "" {
			changed[row] = desired
			rows = append(rows, row)
		} else if n.search.busy {
			continue // it may be among those that are being claimed
		}
		delete(n.orders.changed, row)
	}
	if len(rows) == 0 {
		return
	}
	n.orders.reading = true
	var orders map[int32]engine.Orders
	n.deps.Run(ctx, n.deps.Timing.QueryTimeout, func(ctx context.Context) (err error) {
		orders, err = n.deps.Ownership.Orders(ctx, n.deps.Node, rows)
		return err
	}, func(ctx actor.Context, err error) {
		n.orders.reading = false
		if err == nil {
			n.ordered(ctx, orders, changed)
			n.readOrders(ctx)
			return
		}
		for row, desired := range changed {
			n.orders.changed[row] = n.orders.changed[row] || desired
		}
		n.log.Warn("reading desired states failed, retrying", zap.Error(err))
	})
}

// ordered carries out orders. The projection of a paused one is drained. changed are those whose desired state was set:
// a projection that should run tries again at once.
func (n *node) ordered(ctx actor.Context, orders map[int32]engine.Orders, changed map[int32]bool) {
	for row, o := range orders {
		key, phase := n.table.Lease(row)
		if !o.Desired.Runs() {
			n.carryOut(ctx, n.table.Drain(row))
		} else if o.HasCommands && phase == ownership.Running {
			ctx.Send(ctx.Parent(), &messages.CommandPending{Key: key})
		}
	}
	for row, desired := range changed {
		if key, phase := n.table.Lease(row); phase == ownership.Running && desired && orders[row].Desired.Runs() {
			ctx.Send(ctx.Parent(), &messages.Resumed{Key: key})
		}
	}
}

// leaseRequests are the projections that wait for their leases.
type leaseRequests struct {
	requests []leaseRequest
	reading  bool
}

type leaseRequest struct {
	from *actor.PID
	*messages.LeaseRequest
}

// readLeaseLater gathers the request of a projection while other leases are being read.
func (n *node) readLeaseLater(ctx actor.Context, msg *messages.LeaseRequest) {
	n.leases.requests = append(n.leases.requests, leaseRequest{ctx.Sender(), msg})
	if !n.leases.reading {
		n.readLeases(ctx)
	}
}

// readLeases reads the leases that projections ask for.
func (n *node) readLeases(ctx actor.Context) {
	requests := n.leases.requests
	rows := make([]int32, len(requests))
	for i, r := range requests {
		rows[i] = r.Lease.Row
	}
	n.leases.requests, n.leases.reading = nil, true
	var leases []engine.Lease
	n.query(ctx, func(ctx context.Context) (err error) {
		leases, err = n.deps.Ownership.Leases(ctx, rows)
		return err
	}, func(ctx actor.Context, err error) {
		n.leasesSeen(ctx, leases)
		byRow := make(map[int32]engine.Lease, len(leases))
		for _, l := range leases {
			byRow[l.Row] = l
		}
		for _, r := range requests {
			lease, exists := byRow[r.Lease.Row]
			n.answer(ctx, r, lease, exists, err)
		}
		n.leases.reading = false
		if len(n.leases.requests) > 0 {
			n.readLeases(ctx)
		}
	})
}

// answer answers a request for a lease. The error wraps projection.ErrLeaseLost if the lease is not the projection's
// any more.
func (n *node) answer(ctx actor.Context, r leaseRequest, lease engine.Lease, exists bool, err error) {
	if err == nil {
		err = r.Lease.Check(lease, exists)
		if !exists {
			n.rowGone(ctx, r.Lease.ID.Tenant)
		}
	}
	if key, _ := n.table.Lease(lease.Row); err == nil && key == lease.Key() && !lease.Desired.Runs() {
		n.carryOut(ctx, n.table.Drain(lease.Row))
	}
	ctx.Send(r.from, &messages.LeaseRead{Lease: lease, Op: r.Op, Err: err})
}
