package actors

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/messages"
)

// node decides which leases this process claims and releases, and is the only actor that knows which it holds. It also
// serves many projections by one statement: it reads leases, advances checkpoints, and polls the heads of the tenants.
type node struct {
	deps *Deps
	log  *zap.Logger
	// running are the projections that ran under an earlier actor of the node.
	running     []Running
	table       *ownership.Table
	heartbeats  heartbeats
	tenants     tenants
	changes     changes
	search      search
	orders      orders
	leases      leaseRequests
	checkpoints checkpoints
	heads       heads
}

// heartbeats sends the heartbeats of this node.
type heartbeats struct {
	last time.Time
	// trust is when the node may begin to declare other nodes dead because their heartbeats expired.
	trust time.Time
}

// Running is a projection that runs, or drains, when the node's actor is restarted.
type Running struct {
	Lease    engine.Lease
	Draining bool
}

// NewNode returns the node's actor. Its parent is the supervisor, which runs the projections in running already.
func NewNode(deps *Deps, running []Running) Behaviour {
	return &node{deps: deps, log: deps.Log, running: running, table: ownership.NewTable(),
		tenants: tenants{ensured: make(map[string]int32), atOnce: ensureMost, logged: make(map[leftOut]bool),
			waiting: make(map[engine.Rename]bool)}, changes: newChanges(),
		orders: orders{changed: make(map[int32]bool)},
		heads:  heads{missed: make(map[string]missed)}}
}

func (n *node) Start(ctx actor.Context) {
	n.heads.timer = n.deps.After(ctx, n.deps.Timing.PollInterval, n.poll)
	for _, r := range n.running {
		n.carryOut(ctx, n.table.Adopt(r.Lease, r.Draining))
	}
	n.running = nil
	if n.deps.Registry.Session().Connected { // this actor was restarted
		n.sessionUp(ctx, true)
	}
}

func (n *node) Stop(actor.Context) {
	stopTimer(n.search.timer)
	stopTimer(n.checkpoints.timer)
	stopTimer(n.heads.timer)
	stopTimer(n.changes.timer)
}

func (n *node) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.SessionUp:
		n.sessionUp(ctx, msg.Again)
	case *messages.HeartbeatSent:
		n.heartbeatSent(ctx, msg.At)
	case *messages.FleetChanged:
		n.search.rebalance = true
		n.reconcile(ctx)
	case *messages.Notified:
		n.notified(ctx, msg.Notice)
	case *messages.ReleaseAll:
		n.releaseAll(ctx)
	case *messages.Drained:
		n.table.Drained(msg.Advance)
		n.release(ctx)
	case *messages.LeaseLost:
		n.lost(ctx, msg.Key)
	case *messages.LeaseRequest:
		n.readLeaseLater(ctx, msg)
	case *messages.AdvanceRequest:
		n.advanceLater(ctx, msg)
	case *messages.Pulse:
		n.deps.Registry.Pulse(NodeLoop)
	}
}

// query waits for a slot, runs a short statement, and then calls done in the node's actor.
func (n *node) query(ctx actor.Context, statement func(ctx context.Context) error,
	done func(ctx actor.Context, err error)) {
	n.deps.Run(ctx, n.deps.Timing.QueryTimeout, func(ctx context.Context) error {
		return n.deps.Limiter.Read(ctx, statement)
	}, done)
}

// sessionUp is called when the node is registered. It may have missed something if it was registered before, also by an
// earlier listener.
func (n *node) sessionUp(ctx actor.Context, again bool) {
	n.changes.listAll = time.Time{}
	n.search.resync = 0
	if again || len(n.deps.Feeds.tenants()) > 0 {
		n.catchUp(ctx)
	}
	n.reconcile(ctx)
}

func (n *node) heartbeatSent(ctx actor.Context, at time.Time) {
	lease := n.deps.Node.LeaseDuration
	if before := n.heartbeats.last; !before.IsZero() {
		silent := at.Sub(before)
		if silent > lease/2 {
			// The cause that delayed this node's heartbeats may have delayed those of the other nodes too.
			n.heartbeats.trust = time.Now().Add(lease)
		}
		if silent > lease && n.deps.Registry.Session().Connected {
			n.catchUp(ctx)
		}
	}
	n.heartbeats.last = at
}

// notified handles a notification about leases.
func (n *node) notified(ctx actor.Context, notice engine.Notice) {
	if notice.Operations {
		return
	}
	if notice.Tenant != "" {
		n.tenantChanged(ctx, notice.Tenant)
		return
	}
	if notice.Row != 0 {
		n.orders.changed[notice.Row] = n.orders.changed[notice.Row] || !notice.Commanded
		n.readOrders(ctx)
	}
	if _, phase := n.table.Lease(notice.Row); phase == "" && !notice.Nodes && !notice.Commanded {
		n.reconcileSoon(ctx)
	}
}

// jittered returns a delay up to a fifth shorter than d, so that nodes do not all do the same at the same time.
func jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}
