package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/messages"
)

const (
	// releaseTime bounds a release. Leases that are not released end with the node.
	releaseTime = 5 * time.Second
	// releaseRetries is how often a release is tried again at once.
	releaseRetries = 2
)

// carryOut sends the table's decisions to the supervisor, and releases the leases whose projections are at rest.
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
	if n.table.Closed() && !n.claims.busy {
		ctx.Send(ctx.Parent(), &messages.AllReleased{})
	}
}

// released is the result of a release.
type released struct {
	advances []engine.Advance
	err      error
}

// release gives the leases back whose projections are at rest, with one statement for all that are gathered. It goes on when
// other work is given up.
func (n *node) release(ctx actor.Context) {
	advances := n.table.NextRelease()
	if len(advances) == 0 {
		return
	}
	store, self, root := n.deps.Store, ctx.Self(), n.deps.System.Root
	n.deps.Own(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
		defer cancel()
		err := store.Release(ctx, advances)
		for retry := 0; err != nil && retry < releaseRetries && ctx.Err() == nil; retry++ {
			// It may have been one connection. Leases that were released by the last try are passed over.
			err = store.Release(ctx, advances)
		}
		root.Send(self, &released{advances: advances, err: err})
	})
}

// released handles the result of a release. A release that failed may have been committed: the next read of the leases shows it.
func (n *node) released(ctx actor.Context, msg *released) {
	n.carryOut(ctx, n.table.Released(msg.advances, msg.err))
	if msg.err != nil {
		n.log.Warn("releasing leases failed, retrying", zap.Int("leases", len(msg.advances)), zap.Error(msg.err))
		n.claims.resync = 0
		n.soon(ctx)
	}
}

// lost takes in that a projection found its lease lost. Others may be, too.
func (n *node) lost(ctx actor.Context, msg *messages.LeaseLost) {
	n.carryOut(ctx, n.table.Lost(msg.Key))
	n.claims.resync = 0
	n.reconcile(ctx)
}

// releaseAll stops claiming, releases all leases, and notifies the other nodes, which take over this node's share.
func (n *node) releaseAll(ctx actor.Context) {
	n.carryOut(ctx, n.table.Close())
	n.deps.run(ctx.Self(), n.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		if err := n.deps.Store.AnnounceDrain(ctx, n.deps.Node); err != nil {
			n.log.Debug("deregistering the node failed", zap.Error(err))
		}
		return &over{}
	})
}

// orders are the leases for which a notice came, and whether a person asked for another state of the projection. What is asked
// of it is read from the database.
type orders struct {
	changed map[int32]bool
	reading bool
}

// ordersRead is the result of reading what is asked of projections.
type ordersRead struct {
	rows   map[int32]bool // as in orders.changed
	orders map[int32]engine.Orders
	err    error
}

// readOrders reads what is asked of this node's projections for which notices came, and waits for nothing else.
func (n *node) readOrders(ctx actor.Context) {
	if n.orders.reading {
		return
	}
	msg := &ordersRead{rows: make(map[int32]bool)}
	var rows []int32
	for row, asked := range n.orders.changed {
		if _, phase := n.table.Lease(row); phase != "" {
			msg.rows[row] = asked
			rows = append(rows, row)
		} else if n.claims.busy {
			continue // it may be among those that are being claimed
		}
		delete(n.orders.changed, row)
	}
	if len(rows) == 0 {
		return
	}
	n.orders.reading = true
	n.deps.run(ctx.Self(), n.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		msg.orders, msg.err = n.deps.Store.Orders(ctx, n.deps.Node, rows)
		return msg
	})
}

func (n *node) ordersRead(ctx actor.Context, msg *ordersRead) {
	n.orders.reading = false
	if msg.err == nil {
		n.ordered(ctx, msg.orders, msg.rows)
		n.readOrders(ctx)
		return
	}
	for row, asked := range msg.rows {
		n.orders.changed[row] = n.orders.changed[row] || asked
	}
	n.log.Warn("reading desired states failed, retrying", zap.Error(msg.err))
}

// ordered passes on what is asked of projections. A lease whose projection is paused is given back. asked has those that a
// person asked to run, if they are not paused.
func (n *node) ordered(ctx actor.Context, orders map[int32]engine.Orders, asked map[int32]bool) {
	for row, o := range orders {
		key, phase := n.table.Lease(row)
		if !o.Desired.Runs() {
			n.carryOut(ctx, n.table.Drain(row))
		} else if o.HasCommands && phase == ownership.Running {
			ctx.Send(ctx.Parent(), &messages.Commanded{Key: key})
		}
	}
	for row, resumed := range asked {
		if key, phase := n.table.Lease(row); phase == ownership.Running && resumed && orders[row].Desired.Runs() {
			ctx.Send(ctx.Parent(), &messages.Resumed{Key: key})
		}
	}
}

// leaseRequest is a projection that waits for its lease.
type leaseRequest struct {
	from *actor.PID
	msg  *messages.LeaseRequest
}

// leasesRead is the result of reading leases.
type leasesRead struct {
	requests []leaseRequest
	leases   map[int32]engine.Lease
	err      error
}

// readLeases reads the leases that projections ask for. Those that ask meanwhile are served by the next statement.
func (n *node) readLeases(ctx actor.Context) {
	if n.loading || len(n.leases) == 0 {
		return
	}
	n.loading = true
	msg := &leasesRead{requests: n.leases, leases: make(map[int32]engine.Lease, len(n.leases))}
	n.leases = nil
	n.deps.run(ctx.Self(), n.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		release, err := n.deps.Limiter.read(ctx)
		if err != nil {
			msg.err = err
			return msg
		}
		defer release()
		rows := make([]int32, len(msg.requests))
		for i, r := range msg.requests {
			rows[i] = r.msg.Lease.Row
		}
		leases, err := n.deps.Store.Leases(ctx, rows)
		for _, l := range leases {
			msg.leases[l.Row] = l
		}
		msg.err = err
		return msg
	})
}

func (n *node) leasesRead(ctx actor.Context, msg *leasesRead) {
	n.loading = false
	for _, lease := range msg.leases {
		n.learned(ctx, lease.Incarnation)
		break // they come from one read
	}
	for _, r := range msg.requests {
		lease, err := leaseFor(r.msg, msg)
		if _, there := msg.leases[r.msg.Lease.Row]; !there && msg.err == nil {
			n.removed(ctx, r.msg.Lease.ID.Tenant)
		}
		if key, _ := n.table.Lease(lease.Row); err == nil && key == lease.Key() && !lease.Desired.Runs() {
			n.carryOut(ctx, n.table.Drain(lease.Row))
		}
		ctx.Send(r.from, &messages.LeaseRead{Lease: lease, Op: r.msg.Op, Err: err})
	}
	n.readLeases(ctx)
}

// leaseFor returns the lease that a projection asked for, and an error that wraps ErrLeaseLost if it is no longer its own.
func leaseFor(asked *messages.LeaseRequest, msg *leasesRead) (lease engine.Lease, err error) {
	lease, exists := msg.leases[asked.Lease.Row]
	if msg.err != nil {
		return lease, msg.err
	}
	return lease, asked.Lease.Check(lease, exists)
}
