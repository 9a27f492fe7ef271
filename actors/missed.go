package actors

import (
	"context"
	"maps"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// missed finds out what this node missed while it was cut off: notifications, and changes by a crash of the server. It does
// so for the whole node: one statement reads all leases, and a few read the heads of all tenants.
func (n *node) missed(ctx actor.Context) {
	n.resync, n.confirm, n.hurry = 0, true, true
	n.heads = slices.Collect(maps.Keys(n.env.Feeds.marks()))
	n.look(ctx)
}

// leaseRequest is a projection that waits for its lease.
type leaseRequest struct {
	from *actor.PID
	msg  *messages.LeaseRequest
}

// leasesRead is what a read of leases found.
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
	n.env.run(ctx.Self(), n.env.Timing.QueryTimeout, func(ctx context.Context) any {
		release, err := n.env.Limiter.read(ctx)
		if err != nil {
			msg.err = err
			return msg
		}
		defer release()
		rows := make([]int32, len(msg.requests))
		for i, r := range msg.requests {
			rows[i] = r.msg.Lease.Row
		}
		leases, err := n.env.Store.Leases(ctx, rows)
		for _, l := range leases {
			msg.leases[l.Row] = l
		}
		msg.err = err
		return msg
	})
}

// learned is called with the incarnation of the server, and reports whether it is a new one. In a new incarnation the rows of
// projections that this node made may be lost.
func (n *node) learned(ctx actor.Context, in engine.Incarnation) (fresh bool) {
	if in == 0 || in == n.in {
		return false
	}
	if fresh = n.in != 0; fresh {
		clear(n.ensured)
		n.soon(ctx)
	}
	n.in = in
	return fresh
}

// removed is called when rows of a tenant's projections are gone: the tenant was removed, and may have been created again.
func (n *node) removed(ctx actor.Context, tenant string) {
	if n.ensured[tenant] {
		delete(n.ensured, tenant)
		n.soon(ctx)
	}
}

func (n *node) leasesRead(ctx actor.Context, msg *leasesRead) {
	n.loading = false
	for _, lease := range msg.leases {
		n.learned(ctx, lease.Incarnation)
		break // they come from one read
	}
	for _, r := range msg.requests {
		if _, there := msg.leases[r.msg.Lease.Row]; !there && msg.err == nil {
			n.removed(ctx, r.msg.Lease.ID.Tenant)
		}
		ctx.Send(r.from, answer(r.msg, msg.leases, msg.err))
	}
	n.readLeases(ctx)
}

// answer is what a projection learns of its lease.
func answer(asked *messages.LeaseRequest, found map[int32]engine.Lease, err error) *messages.LeaseRead {
	lease, exists := found[asked.Lease.Row]
	if err == nil {
		err = asked.Lease.Check(lease, exists)
	}
	return &messages.LeaseRead{Lease: lease, Op: asked.Op, Err: err}
}
