package actors

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/internal/rounds"
	"github.com/millrace-go/millrace/messages"
)

// node decides which leases this process claims and releases, and is the only actor that knows which it holds. It also
// serves many projections by one statement: it reads leases, advances checkpoints, and polls the heads of the tenants.
//
// The types of internal/ownership and internal/rounds decide what follows from what happened. The node carries it out.
type node struct {
	deps *Deps
	// running are the projections that ran under an earlier actor of the node.
	running    []Running
	table      *ownership.Table
	heartbeats ownership.Heartbeats
	search     ownership.Search
	changes    ownership.Changes
	orders     ownership.Orders
	rows       *rounds.Rows
	// searchTimer begins the next search, and changesTimer the next round of changes.
	searchTimer, changesTimer *time.Timer
	leases                    requests[leaseRequest]
	checkpoints               checkpoints
	heads                     heads
}

// Running is a projection that runs, or drains, when the node's actor is restarted.
type Running struct {
	Lease    engine.Lease
	Draining bool
}

// NewNode returns the node's actor. Its parent is the supervisor, which runs the projections in running already.
func NewNode(deps *Deps, running []Running) Behaviour {
	n := &node{deps: deps, running: running, table: ownership.NewTable(),
		rows: rounds.NewRows(deps.Node, deps.Operating, deps.Definitions), checkpoints: checkpoints{deps: deps}}
	n.heads = heads{deps: deps, rounds: rounds.NewHeads(deps.Timing.PollInterval),
		seen: func(ctx actor.Context, in engine.Incarnation) { n.seen(ctx, in) }}
	return n
}

func (n *node) Start(ctx actor.Context) {
	n.heads.timer = n.deps.After(ctx, n.deps.Timing.PollInterval, n.heads.poll)
	for _, r := range n.running {
		n.carryOut(ctx, n.table.Adopt(r.Lease, r.Draining))
	}
	n.running = nil
	if n.deps.Registry.Session().Connected { // this actor was restarted
		n.Handle(ctx, &messages.SessionUp{Again: true})
	}
}

func (n *node) Stop(actor.Context) {
	stopTimer(n.searchTimer)
	stopTimer(n.checkpoints.timer)
	stopTimer(n.heads.timer)
	stopTimer(n.changesTimer)
}

func (n *node) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.SessionUp:
		n.rows.ListAll()
		n.search.Resync()
		// It may have missed something if it was registered before, also by an earlier listener.
		if msg.Again || len(n.deps.Feeds.Tenants()) > 0 {
			n.catchUp(ctx)
		}
		n.searchIn(ctx, 0)
	case *messages.HeartbeatSent:
		expired := n.heartbeats.Sent(msg.At, time.Now(), n.deps.Node.LeaseDuration)
		if expired && n.deps.Registry.Session().Connected {
			n.catchUp(ctx)
		}
	case *messages.FleetChanged:
		n.search.Rebalance()
		n.searchIn(ctx, 0)
	case *messages.Notified:
		n.notified(ctx, msg.Notice)
	case *messages.ReleaseAll:
		n.carryOut(ctx, n.table.Close())
		n.deps.announceDrain(ctx)
	case *messages.Drained:
		n.table.Drained(msg.Advance)
		n.release(ctx)
	case *messages.LeaseLost:
		effects, lost := n.table.Lost(msg.Key)
		n.lose(ctx, effects, lost)
		n.search.Resync() // others may be lost, too
		n.searchIn(ctx, 0)
	case *messages.LeaseRequest:
		if n.leases.add(leaseRequest{ctx.Sender(), msg}) {
			n.readLeases(ctx)
		}
	case *messages.AdvanceRequest:
		n.checkpoints.advanceLater(ctx, msg)
	case *messages.Pulse:
		n.deps.Registry.Pulse(NodeLoop)
	}
}

// catchUp finds out what this node missed while it was cut off: notifications, and changes by a crash of the server.
// One statement reads all leases, and a few read the heads of all tenants.
func (n *node) catchUp(ctx actor.Context) {
	n.search.Revalidate()
	n.heads.pollAll(ctx)
}

// notified handles a notification about leases.
func (n *node) notified(ctx actor.Context, notice engine.Notice) {
	switch {
	case notice.Operations:
		return
	case notice.Tenant != "":
		if after, first := n.changes.Add(notice.Tenant, time.Now()); first {
			n.changesTimer = n.deps.After(ctx, after, n.handleChanges)
		}
		return
	case notice.Row != 0:
		n.orders.Notified(notice)
		n.readOrders(ctx)
	}
	if _, phase := n.table.Lease(notice.Row); phase == "" && !notice.Nodes && !notice.Commanded {
		n.searchSoon(ctx)
	}
}

// handleChanges claims leases of the tenants that notifications named, and drains projections that should not run any
// more.
func (n *node) handleChanges(ctx actor.Context) {
	named := n.changes.Begin(time.Now(), &n.search)
	n.rows.Named(named)
	n.searchIn(ctx, 0)
	n.checkLeases(ctx, named)
}

// seen is called with the incarnation of the server in which something was read, and with tenants of which the read
// shows that rows are gone.
func (n *node) seen(ctx actor.Context, in engine.Incarnation, gone ...string) {
	lack := n.rows.Seen(in)
	for _, tenant := range gone {
		lack = n.rows.Gone(tenant) || lack
	}
	if lack {
		n.searchSoon(ctx)
	}
}

// carryOut sends the table's decisions to the supervisor, and releases the leases of drained projections.
func (n *node) carryOut(ctx actor.Context, effects []ownership.Effect) {
	for _, e := range effects {
		ctx.Send(ctx.Parent(), messageOf(e))
	}
	n.release(ctx)
	if n.table.Closed() && !n.search.Busy() {
		ctx.Send(ctx.Parent(), &messages.AllReleased{})
	}
}

// messageOf returns the message by which the supervisor carries out an effect.
func messageOf(e ownership.Effect) any {
	switch e.Action {
	case ownership.Run:
		return &messages.StartProjection{Lease: *e.Lease}
	case ownership.Drain:
		return &messages.Drain{Key: e.Key}
	case ownership.Retire:
		return &messages.Retire{Key: e.Key}
	case ownership.Revalidate:
		return &messages.Revalidate{Key: e.Key, Lease: *e.Lease}
	case ownership.Command:
		return &messages.CommandPending{Key: e.Key}
	case ownership.Resume:
		return &messages.Resumed{Key: e.Key}
	}
	panic("unknown action " + string(e.Action))
}

// jittered returns a delay up to a fifth shorter than d, so that nodes do not all do the same at the same time.
func jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}

// query waits for a slot, runs a short statement, and then calls done in the actor of ctx.
func (d *Deps) query(ctx actor.Context, statement func(ctx context.Context) error,
	done func(ctx actor.Context, err error)) {
	d.Go(ctx, d.Timing.QueryTimeout, func(ctx context.Context) error {
		return d.Limiter.Read(ctx, statement)
	}, done)
}

// announceDrain notifies the other nodes, which take over this node's share.
func (d *Deps) announceDrain(ctx actor.Context) {
	d.Go(ctx, d.Timing.QueryTimeout, func(ctx context.Context) error {
		return d.Ownership.AnnounceDrain(ctx, d.Node)
	}, func(_ actor.Context, err error) {
		if err != nil {
			d.Log.Debug("announcing the drain failed", zap.Error(err))
		}
	})
}

// pingPool finds out whether the pool works. A wait for a slot, or a slow statement, does not show that.
func (d *Deps) pingPool(ctx actor.Context) {
	d.Go(ctx, d.Timing.QueryTimeout, func(ctx context.Context) error {
		d.Registry.session.onPoolUsed(d.Health.Ping(ctx))
		return nil
	}, func(actor.Context, error) {})
}
