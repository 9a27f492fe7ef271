package actors

import (
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/messages"
)

// node decides which leases this process claims and releases, and is the only actor that knows which it holds. It also polls
// the heads of its tenants, and moves checkpoints of many projections in one statement.
type node struct {
	deps *Deps
	log  *zap.Logger
	// running are the projections that ran under an earlier actor of the node.
	running []Running
	table   *ownership.Table
	session presence
	tenants tenants
	claims  claims
	orders  orders
	// leases are the requests of projections for their leases, loading reports whether some are being read.
	leases   []leaseRequest
	loading  bool
	advances advances
	heads    heads
}

// presence is what the listener reported last.
type presence struct {
	up     bool // the session stands: the node is registered
	pooled bool // no notices arrive over it
	beat   time.Time
	// trustHeartbeats is when the node may take others for dead because their heartbeats ran out.
	trustHeartbeats time.Time
	neighbours      []engine.Member
}

// Running is a projection that runs when the node's actor is started again, or drains.
type Running struct {
	Lease    engine.Lease
	Draining bool
}

// NewNode makes the node's actor. Its parent is the supervisor, which runs the projections in running already.
func NewNode(deps *Deps, running []Running) *actor.Props {
	return Props("node", deps.Log, &node{deps: deps, log: deps.Log, running: running, table: ownership.NewTable(),
		tenants: tenants{ensured: make(map[string]bool), slice: ensureMost}, orders: orders{changed: make(map[int32]bool)}})
}

func (n *node) Start(ctx actor.Context) {
	n.heads.timer = n.deps.after(n.deps.Timing.Poll, ctx.Self(), &pollDue{})
	for _, r := range n.running {
		n.carryOut(ctx, n.table.Adopt(r.Lease, r.Draining))
	}
	n.running = nil
}

func (n *node) Stop(actor.Context) {
	stopTimer(n.claims.timer)
	stopTimer(n.advances.timer)
	stopTimer(n.heads.timer)
}

func (n *node) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.SessionUp:
		n.sessionUp(ctx, msg)
	case *messages.SessionLost:
		n.session.up = false
	case *messages.Beaten:
		n.beaten(ctx, msg.At)
	case *messages.FleetChanged:
		n.session.neighbours, n.claims.rebalance = msg.Found.Members, true
		n.reconcile(ctx)
	case *messages.Notified:
		n.notified(ctx, msg.Notice)
	case *messages.ReleaseAll:
		n.releaseAll(ctx)
	case *messages.Drained:
		n.table.Drained(msg.Advance)
		n.release(ctx)
	case *messages.LeaseLost:
		n.lost(ctx, msg)
	case *reconcileDue:
		n.reconcile(ctx)
	case *found:
		n.found(ctx, msg)
	case *claimed:
		n.claimed(ctx, msg)
	case *released:
		n.released(ctx, msg)
	case *ordersRead:
		n.ordersRead(ctx, msg)
	case *messages.LeaseRequest:
		n.leases = append(n.leases, leaseRequest{ctx.Sender(), msg})
		n.readLeases(ctx)
	case *leasesRead:
		n.leasesRead(ctx, msg)
	case *messages.AdvanceRequest:
		n.advance(ctx, msg)
	case *flushDue:
		n.move(ctx)
	case *moved:
		n.moved(ctx, msg)
	case *pollDue, *pollNext:
		n.poll(ctx, msg)
	case *looked:
		n.looked(ctx, msg)
	}
}

func (n *node) sessionUp(ctx actor.Context, msg *messages.SessionUp) {
	n.session.up, n.session.pooled, n.claims.resync = true, msg.Pooled, 0
	if msg.Again || len(n.deps.Feeds.marks()) > 0 { // or this actor was started again
		n.missed(ctx)
	}
	n.reconcile(ctx)
}

// beaten takes in that a heartbeat arrived.
func (n *node) beaten(ctx actor.Context, at time.Time) {
	lease := n.deps.Node.LeaseDuration
	silent := at.Sub(n.session.beat)
	if n.session.beat.IsZero() {
		silent = 0
	}
	if silent > lease/2 {
		// What kept this node from its heartbeats may have kept the others from theirs.
		n.session.trustHeartbeats = time.Now().Add(lease)
	}
	if n.session.up && silent > lease {
		n.missed(ctx)
	}
	n.session.beat = at
}

// notified takes in a notice about leases.
func (n *node) notified(ctx actor.Context, notice engine.Notice) {
	if notice.Row != 0 {
		n.orders.changed[notice.Row] = n.orders.changed[notice.Row] || !notice.Commanded
		n.readOrders(ctx)
	}
	if _, phase := n.table.Lease(notice.Row); phase == "" && !notice.Nodes && !notice.Commanded {
		n.soon(ctx)
	}
}

// jittered keeps nodes from doing the same at the same time.
func (n *node) jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}

// over is sent when work without a result has ended.
type over struct{}
