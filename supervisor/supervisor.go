package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// Supervisor is the handle on the actors of a runtime.
type Supervisor struct {
	env  *actors.Deps
	pid  *actor.PID
	done chan struct{}
	err  error
}

// Start starts the actors: the supervisor and, under it, the node and the listener. Feeds and projections follow as
// leases are claimed.
func Start(env *actors.Deps) (*Supervisor, error) {
	s := &Supervisor{env: env, done: make(chan struct{})}
	root := &rootStrategy{log: env.Log}
	boss := &boss{env: env, handle: s, root: root, gate: newGate(env),
		children: make(map[string]*child), feeds: make(map[string]*child), projections: make(map[projection.ID]*child), tenants: make(map[string]int)}
	props := actors.Props("supervisor", env.Log, boss, actor.WithSupervisor(&strategy{boss}), actor.WithGuardian(root))
	pid, err := env.System.Root.SpawnNamed(props, "supervisor")
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	s.pid = pid
	return s, nil
}

// Done is closed when all actors are gone.
func (s *Supervisor) Done() <-chan struct{} { return s.done }

// Err tells, once Done is closed, why the actors ended if nobody asked them to.
func (s *Supervisor) Err() error { return s.err }

// Stop lets batches under way finish within grace, gives the leases back, and stops all actors. It returns when they are
// gone, or with ctx's error. It is idempotent.
func (s *Supervisor) Stop(ctx context.Context, grace time.Duration) error {
	s.env.System.Root.Send(s.pid, &stop{grace: grace})
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		s.env.GiveUp(ctx.Err())
		s.env.Depart()
		return fmt.Errorf("stop the actors: %w", ctx.Err())
	}
}

// stop asks the supervisor to stop everything in order.
type stop struct{ grace time.Duration }

// child is an actor that the supervisor started.
type child struct {
	name    string
	pid     *actor.PID
	respawn func(ctx actor.Context)
	faults  int           // of the infrastructure, in a row
	fault   *engine.Fault // the last of them
	told    bool          // that its configuration is at fault
	crashes int
	crashed time.Time
	crash   *actors.Crash
	ended   bool // no actor is started for it any more

	// Of a projection:
	lease   engine.Lease
	renewed *engine.Lease   // claimed anew while the actor of the old lease was still there
	leaving bool            // its lease is to be given back when it is at rest
	handed  bool            // its lease is being given back
	advance *engine.Advance // reported by Drained
	wait    *time.Timer     // ends what it waits for
}

// who identifies the child in the log.
func (c *child) who() []zap.Field {
	if c.lease.Row == 0 {
		return []zap.Field{zap.String("actor", c.name)}
	}
	id := c.lease.ID
	return []zap.Field{zap.String("tenant", id.Tenant), zap.String("projection", id.Name), zap.Int("partition", id.Partition), zap.Int64("epoch", c.lease.Epoch)}
}

// boss is the supervisor's behaviour.
type boss struct {
	env    *actors.Deps
	handle *Supervisor
	root   *rootStrategy
	gate   *gate

	node, listener *child
	children       map[string]*child // by PID
	feeds          map[string]*child // by tenant
	projections    map[projection.ID]*child
	incarnation    int
	watch          *time.Timer
	stopping       bool
	undrained      map[string]bool // by PID: the projections that have yet to come to rest before the end
	left           bool            // the node claims nothing any more
	tenants        map[string]int  // how many of the projections are of each tenant
	handbacks      []handback      // to be released next
	releasing      bool
}

// errNoNode is the answer to what only the node could do, while it is started again.
var errNoNode = errors.New("the node's actor is being started again")

// What the supervisor posts to itself.
type (
	respawnDue struct{ child *child }
	graceOver  struct{}
	watchDue   struct{}
)

func (b *boss) Start(ctx actor.Context) {
	b.node = &child{name: "node"}
	b.node.respawn = func(ctx actor.Context) { b.spawn(ctx, b.node, actors.NewNode(b.env)) }
	b.node.respawn(ctx)
	b.listener = &child{name: "listener"}
	b.listener.respawn = func(ctx actor.Context) {
		if b.node.pid == nil {
			b.respawnLater(ctx, b.listener)
			return
		}
		b.spawn(ctx, b.listener, actors.NewListener(b.env, b.node.pid))
	}
	b.listener.respawn(ctx)
	b.watch = b.env.After(watchEvery, ctx.Self(), &watchDue{})
}

// Stop is called before the children are stopped.
func (b *boss) Stop(actor.Context) {
	b.stopping = true
	b.watch.Stop()
	b.env.Refuse()
	b.env.GiveUp(errors.New("the runtime stopped"))
}

// Gone is called when the children are gone.
func (b *boss) Gone(actor.Context) {
	if b.root.reason != nil {
		b.handle.err = b.root.reason
	}
	close(b.handle.done)
}

func (b *boss) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.Claimed:
		for _, lease := range msg.Leases {
			if b.stopping {
				b.handBackUnused(ctx, lease)
			} else {
				b.run(ctx, lease)
			}
		}
	case *messages.Left:
		b.left = true
		b.endWhenDone(ctx)
	case *messages.Faulted:
		b.faulted(ctx, msg)
	case *messages.Recovered:
		if c := b.children[ctx.Sender().Id]; c != nil {
			c.faults, c.told = 0, false
		}
	case *messages.AdvanceRequest:
		if b.node.pid == nil {
			ctx.Send(ctx.Sender(), &messages.Advanced{Op: msg.Op})
			return
		}
		ctx.Forward(b.node.pid)
	case *messages.Ended:
		b.ended(ctx, msg)
	case *messages.WantedStates:
		b.wanted(ctx, msg)
	case *messages.Surrender:
		b.surrender(ctx, msg.Rows)
	case *messages.Doubted:
		b.doubted(ctx, msg.Rows)
	case *messages.Owned:
		b.confirm(ctx, msg.Leases)
	case *messages.LeaseRequest:
		if b.node.pid == nil {
			ctx.Send(ctx.Sender(), &messages.LeaseRead{Op: msg.Op, Err: errNoNode})
			return
		}
		ctx.Forward(b.node.pid)
	case *probed:
		if !b.stopping {
			b.gate.probed(ctx, msg)
		}
	case *answered:
		if !b.stopping {
			for _, c := range b.gate.answered(ctx, msg.err) {
				b.serverAnswers(ctx, c)
			}
		}
	case *probeDue:
		b.gate.probe(ctx)
	case *respawnDue:
		if !b.stopping && msg.child.pid == nil && !msg.child.ended {
			msg.child.respawn(ctx)
		}
	case *watchDue:
		b.lookForStuck(ctx)
	case *actor.Terminated:
		b.terminated(ctx, msg.Who)
	case *stop:
		b.drain(ctx, msg.grace)
	case *messages.Drained:
		b.drained(ctx, msg)
	case *graceOver:
		b.env.GiveUp(errors.New("the grace period is over"))
	case *released:
		b.released(ctx, msg)
	}
}

func (b *boss) tellNode(ctx actor.Context, msg any) {
	if b.node.pid != nil {
		ctx.Send(b.node.pid, msg)
	}
}

// spawn starts a child under a name of its own, so that what is meant for an earlier one of it does not reach it.
func (b *boss) spawn(ctx actor.Context, c *child, props *actor.Props) {
	if b.stopping {
		return
	}
	b.incarnation++
	pid, err := ctx.SpawnNamed(props, fmt.Sprintf("%s#%d", c.name, b.incarnation))
	if err != nil {
		b.env.Log.Error("actor not started", zap.String("actor", c.name), zap.Error(err))
		b.respawnLater(ctx, c)
		return
	}
	c.pid, c.crash, c.ended = pid, nil, false
	b.children[pid.Id] = c
}

// run starts the actor of a projection whose lease was claimed, and the feed of its tenant before it.
func (b *boss) run(ctx actor.Context, lease engine.Lease) {
	def := b.env.Definitions[lease.ID.Name]
	if def == nil {
		b.env.Log.Error("claimed a projection that is not registered", zap.Stringer("projection", lease.ID))
		return
	}
	if old := b.projections[lease.ID]; old != nil {
		if old.lease.Epoch == lease.Epoch && old.lease.Row == lease.Row && !old.ended {
			return
		}
		old.renewed = &lease
		if old.pid != nil {
			ctx.Stop(old.pid)
		}
		return
	}
	feed := b.feed(ctx, lease.ID.Tenant)
	c := &child{name: lease.ID.String(), lease: lease}
	fresh := true
	c.respawn = func(ctx actor.Context) {
		if feed.pid == nil {
			b.respawnLater(ctx, c)
			return
		}
		b.spawn(ctx, c, actors.NewProjection(b.env, def, c.lease, feed.pid, fresh))
		fresh = false
	}
	b.projections[lease.ID] = c
	b.tenants[lease.ID.Tenant]++
	c.respawn(ctx)
}

// gone forgets a projection that this node does not run any more, and ends the feed of a tenant of which it runs none.
func (b *boss) gone(ctx actor.Context, c *child) {
	tenant := c.lease.ID.Tenant
	delete(b.projections, c.lease.ID)
	if b.tenants[tenant]--; b.tenants[tenant] > 0 {
		return
	}
	delete(b.tenants, tenant)
	feed := b.feeds[tenant]
	delete(b.feeds, tenant)
	b.env.Limiter.Serve(len(b.feeds))
	feed.ended = true
	if feed.pid != nil {
		ctx.Stop(feed.pid)
	}
}

func (b *boss) feed(ctx actor.Context, tenant string) *child {
	if c := b.feeds[tenant]; c != nil {
		return c
	}
	c := &child{name: "feed " + tenant}
	c.respawn = func(ctx actor.Context) { b.spawn(ctx, c, actors.NewFeed(b.env, tenant)) }
	b.feeds[tenant] = c
	b.env.Limiter.Serve(len(b.feeds))
	c.respawn(ctx)
	return c
}

// faulted answers a fault that is not an event's, when the server can be worked with.
func (b *boss) faulted(ctx actor.Context, msg *messages.Faulted) {
	c := b.children[ctx.Sender().Id]
	if c == nil || b.stopping {
		return
	}
	c.wentOn()
	if isFeed := c.lease.Row == 0; isFeed {
		if msg.Fault.Class == engine.Configuration {
			b.misconfigured(c, msg.Fault)
			return
		}
		c.faults++
		c.fault = msg.Fault
	}
	switch {
	case b.gate.closed:
		b.gate.wait(c)
	case msg.Fault.Unreachable:
		b.gate.shut(ctx, msg.Fault.Err)
		b.gate.wait(c)
	case msg.Fault.Probe:
		b.gate.ask(ctx, c)
	default:
		b.serverAnswers(ctx, c)
	}
}

// misconfigured has a feed look again and again whether its configuration was repaired.
func (b *boss) misconfigured(c *child, fault *engine.Fault) {
	if !c.told {
		c.told = true
		b.env.Log.With(c.who()...).Error("feed stopped by its configuration, retrying", zap.Error(fault.Err))
	}
	b.resumeIn(c, mendedEvery)
}

// serverAnswers is called when a fault is the child's own. A projection decides itself when to try again.
func (b *boss) serverAnswers(ctx actor.Context, c *child) {
	switch {
	case c.lease.Row == 0:
		b.tryAgain(c)
	case c.pid != nil:
		ctx.Send(c.pid, &messages.ServerAnswers{})
	}
}

// atLeast is how long a child waits where the gate is closed. The first fault of an outage costs no delay beyond the gate's:
// when the server is back, all go on at once.
func (c *child) atLeast() time.Duration {
	if c.faults > 1 {
		return retryDelay(faultPolicy(), c.faults-1)
	}
	return 0
}

// tryAgain resumes a child after a delay: its fault is its own, since the server can be worked with.
func (b *boss) tryAgain(c *child) {
	b.env.Log.With(c.who()...).Warn("fault not counted, retrying", zap.Stringer("class", c.fault.Class), zap.Int("attempt", c.faults), zap.Error(c.fault.Err))
	b.resumeIn(c, retryDelay(faultPolicy(), c.faults))
}

// resumeIn ends a child's wait after a delay. It has one timer: what is left of an earlier wait would end this one too soon,
// and each that somebody cut short would add to the tries from then on.
func (b *boss) resumeIn(c *child, delay time.Duration) {
	c.wentOn()
	if c.pid != nil {
		c.wait = b.env.After(delay, c.pid, &messages.Resume{})
	}
}

// wentOn ends what is left of a wait.
func (c *child) wentOn() {
	if c.wait != nil {
		c.wait.Stop()
		c.wait = nil
	}
}

// ended takes in that a projection lost its lease. That its actor is gone may have been told before, since that overtakes
// what the actor sent: then another one is waiting to be started under the lease that is lost.
func (b *boss) ended(ctx actor.Context, msg *messages.Ended) {
	b.tellNode(ctx, msg)
	c := b.projections[msg.Lease.ID]
	if c == nil || c.lease.Epoch != msg.Lease.Epoch {
		return
	}
	c.ended = true
	if c.pid != nil || b.stopping {
		return
	}
	b.gone(ctx, c)
	if c.renewed != nil {
		b.run(ctx, *c.renewed)
	}
}

// wanted passes on which projections are wanted to pause, to those for which that is news. One that is stopped waits like
// one that is paused until its lease is given back. One that somebody resumes goes on at once, whatever it waits for.
func (b *boss) wanted(ctx actor.Context, msg *messages.WantedStates) {
	asked := rowSet(msg.Rows)
	for id, c := range b.projections {
		if c.pid == nil || !asked[c.lease.Row] {
			continue
		}
		// What the actor is at counts, and not what it was told: it reads its lease for itself, too.
		entry, there := b.env.Registry.Get(id)
		state := msg.States[c.lease.Row]
		if state.HasCommands {
			ctx.Send(c.pid, &messages.Commanded{})
		}
		want := !state.Desired.Runs()
		switch {
		case !there || want != (entry.State == actors.Paused):
			ctx.Send(c.pid, &messages.Wanted{Paused: want})
		case msg.Asked[c.lease.Row] && !want:
			// What it waits for, an hour of backoff or somebody who mends something, is over.
			c.wentOn()
			ctx.Send(c.pid, &messages.Resume{})
			if feed := b.feeds[c.lease.ID.Tenant]; feed.told && feed.pid != nil {
				ctx.Send(feed.pid, &messages.Resume{})
			}
		}
	}
}

// doubted has projections find out that their leases are not this node's any more.
func (b *boss) doubted(ctx actor.Context, rows []int32) {
	asked := rowSet(rows)
	for _, c := range b.projections {
		if asked[c.lease.Row] && c.pid != nil {
			ctx.Send(c.pid, &messages.Doubt{})
		}
	}
}

func rowSet(rows []int32) map[int32]bool {
	set := make(map[int32]bool, len(rows))
	for _, row := range rows {
		set[row] = true
	}
	return set
}

// confirm hands the projections their leases as the database has them.
func (b *boss) confirm(ctx actor.Context, leases []engine.Lease) {
	for _, lease := range leases {
		if c := b.projections[lease.ID]; c != nil && c.pid != nil && c.lease.Row == lease.Row {
			ctx.Send(c.pid, &messages.Confirm{Lease: lease})
		}
	}
}

// unanswered has the projections ask again that wait for an answer of the node.
func (b *boss) unanswered(ctx actor.Context) {
	for _, c := range b.projections {
		if c.pid != nil {
			ctx.Send(c.pid, &messages.Unanswered{})
		}
	}
}
