package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// child is an actor that the supervisor started, or will start.
type child struct {
	name    string
	pid     *actor.PID // nil between two starts
	respawn func(ctx actor.Context)
	ended   bool // it is not started again
	faults  int  // of the infrastructure, in a row
	fault   *engine.Fault
	told    bool // that its configuration is at fault
	crashes int
	crashed time.Time
	wait    *time.Timer // ends what it waits for

	// Of a feed: the projections that it serves.
	members map[*child]bool

	// Of a projection. A draining one is not started again. next was started in its place and waits for its end; after are those
	// for whose end this one waits.
	lease    engine.Lease
	draining bool
	next     *child
	after    []*child
}

// who identifies the child in the log.
func (c *child) who() []zap.Field {
	if c.lease.Row == 0 {
		return []zap.Field{zap.String("actor", c.name)}
	}
	id := c.lease.ID
	return []zap.Field{zap.String("tenant", id.Tenant), zap.String("projection", id.Name), zap.Int("partition", id.Partition), zap.Int64("epoch", c.lease.Epoch)}
}

// spawn starts a child under a name of its own, so that what is meant for an earlier one of it does not reach it.
func (b *supervisor) spawn(ctx actor.Context, c *child, props *actor.Props) {
	b.incarnation++
	pid, err := ctx.SpawnNamed(props, fmt.Sprintf("%s#%d", c.name, b.incarnation))
	if err != nil {
		b.deps.Log.Error("actor not started", zap.String("actor", c.name), zap.Error(err))
		b.respawnLater(ctx, c)
		return
	}
	c.pid = pid
	b.children[pid.Id] = c
}

// starts reports whether a child may be started. While everything stops only the node is: it releases the leases.
func (b *supervisor) starts(c *child) bool {
	return c == b.node || !b.stopping && !c.ended && !c.draining && len(c.after) == 0
}

// startNode starts the node. One that replaces another is told what runs, and what the listener knows.
func (b *supervisor) startNode(ctx actor.Context) {
	running := make([]actors.Running, 0, len(b.projections))
	for _, c := range b.projections {
		if !c.ended {
			running = append(running, actors.Running{Lease: c.lease, Draining: c.draining})
		}
	}
	b.spawn(ctx, b.node, actors.NewNode(b.deps, running))
	if b.listener != nil && b.listener.pid != nil {
		ctx.Send(b.listener.pid, &messages.Report{})
	}
	if b.stopping {
		b.toNode(ctx, &messages.ReleaseAll{})
	}
}

// run starts the projection of a lease, and the feed of its tenant before it. What runs under another lease of that row, or of
// that projection, is stopped first.
func (b *supervisor) run(ctx actor.Context, lease engine.Lease) {
	def := b.deps.Definitions[lease.ID.Name]
	if def == nil {
		b.deps.Log.Error("claimed a projection that is not registered", zap.Stringer("projection", lease.ID))
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
		b.spawn(ctx, c, actors.NewProjection(b.deps, def, c.lease, feed.pid, fresh))
		fresh = false
	}
	feed.members[c] = true
	for _, old := range []*child{b.projections[lease.Row], b.ids[lease.ID]} {
		if old != nil && old.next != c {
			b.replace(ctx, old, c)
		}
	}
	b.projections[lease.Row], b.ids[lease.ID] = c, c
	if b.starts(c) {
		c.respawn(ctx)
	}
}

// replace ends a projection in favour of another, which waits for that and for what the first one waits for.
func (b *supervisor) replace(ctx actor.Context, old, c *child) {
	b.forget(ctx, old)
	old.ended = true
	for _, p := range old.after {
		p.next, c.after = c, append(c.after, p)
	}
	old.after = nil
	if old.pid != nil {
		old.next, c.after = c, append(c.after, old)
		ctx.Stop(old.pid)
	}
}

// retire stops a projection whose lease is over.
func (b *supervisor) retire(ctx actor.Context, c *child) {
	c.ended = true
	if c.pid != nil {
		ctx.Stop(c.pid)
		return
	}
	b.forget(ctx, c)
}

// forget removes a projection that this node does not run any more, and ends the feed of a tenant of which it runs none.
func (b *supervisor) forget(ctx actor.Context, c *child) {
	if b.projections[c.lease.Row] == c {
		delete(b.projections, c.lease.Row)
	}
	if b.ids[c.lease.ID] == c {
		delete(b.ids, c.lease.ID)
	}
	tenant := c.lease.ID.Tenant
	feed := b.feeds[tenant]
	if feed == nil || !feed.members[c] {
		return
	}
	if delete(feed.members, c); len(feed.members) > 0 {
		return
	}
	delete(b.feeds, tenant)
	b.deps.Limiter.Serve(len(b.feeds))
	feed.ended = true
	if feed.pid != nil {
		ctx.Stop(feed.pid)
	}
}

func (b *supervisor) feed(ctx actor.Context, tenant string) *child {
	if c := b.feeds[tenant]; c != nil {
		return c
	}
	c := &child{name: "feed " + tenant, members: make(map[*child]bool)}
	c.respawn = func(ctx actor.Context) { b.spawn(ctx, c, actors.NewFeed(b.deps, tenant)) }
	b.feeds[tenant] = c
	b.deps.Limiter.Serve(len(b.feeds))
	if b.starts(c) {
		c.respawn(ctx)
	}
	return c
}

// find returns the projection that runs under the lease with that key, or will. It returns nil if there is none.
func (b *supervisor) find(key engine.LeaseKey) *child {
	if c := b.projections[key.Row]; c != nil && c.lease.Epoch == key.Epoch && !c.ended {
		return c
	}
	return nil
}

// pass passes a message of the node on to a projection. One that is between two starts reads its lease anyway.
func (b *supervisor) pass(ctx actor.Context, key engine.LeaseKey, msg any) {
	if c := b.find(key); c != nil && c.pid != nil {
		ctx.Send(c.pid, msg)
	}
}

// drain lets a projection come to rest. One without an actor is at rest.
func (b *supervisor) drain(ctx actor.Context, msg *messages.Drain) {
	c := b.find(msg.Key)
	if c == nil {
		b.toNode(ctx, &messages.LeaseLost{Key: msg.Key}) // nothing runs under it
		return
	}
	c.draining = true
	if c.pid != nil {
		ctx.Send(c.pid, msg)
		return
	}
	b.drained(ctx, c)
}

// drained reports for a projection without an actor that it is at rest. Only the database has its last checkpoint, which the
// release leaves as it is.
func (b *supervisor) drained(ctx actor.Context, c *child) {
	b.toNode(ctx, &messages.Drained{Advance: engine.Advance{Lease: c.lease, To: c.lease.Checkpoint}})
}

// resume ends what a projection waits for, an hour of backoff or a mended fault, since a person resumed it.
func (b *supervisor) resume(ctx actor.Context, key engine.LeaseKey) {
	c := b.find(key)
	if c == nil || c.pid == nil {
		return
	}
	c.wentOn()
	ctx.Send(c.pid, &messages.Resume{})
	if feed := b.feeds[c.lease.ID.Tenant]; feed.told && feed.pid != nil {
		ctx.Send(feed.pid, &messages.Resume{})
	}
}

// unblock starts the projection that waited for the end of another.
func (b *supervisor) unblock(ctx actor.Context, old *child) {
	c := old.next
	old.next = nil
	c.after = slices.DeleteFunc(c.after, func(p *child) bool { return p == old })
	if c.pid == nil && b.starts(c) {
		c.respawn(ctx)
	}
}

// unanswered has the projections ask again that wait for an answer of the node.
func (b *supervisor) unanswered(ctx actor.Context) {
	for _, c := range b.projections {
		if c.pid != nil {
			ctx.Send(c.pid, &messages.Unanswered{})
		}
	}
}
