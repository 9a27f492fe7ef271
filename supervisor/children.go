package supervisor

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// child is an actor that the supervisor starts and restarts.
type child struct {
	name    string                  // empty for a projection
	pid     *actor.PID              // nil between two starts
	respawn func(ctx actor.Context) // nil for a projection
	crashes int
	crashed time.Time
	ended   bool // it is not restarted

	// members are the projections that a feed serves, and tenantRow is the key of its tenant.
	members   map[*child]bool
	tenant    string
	tenantRow int32

	// A draining projection is not restarted. replaced reports that the actor of an earlier lease stops, which the
	// projection waits for. feed is the feed to which the projection subscribes.
	draining, replaced bool
	feed               *child
	held
	// fresh is the lease as it was just read, until the projection starts.
	fresh *engine.Lease
}

// held is what the supervisor keeps of the lease of a projection.
type held struct {
	id                projection.ID
	epoch, checkpoint int64
	incarnation       engine.Incarnation
	partitions        int
	row               int32
}

// lease returns the lease that a projection holds, without what may have changed since it was read.
func (s *supervisor) lease(c *child) engine.Lease {
	return engine.Lease{Row: c.row, ID: c.id, Partitions: c.partitions, Owner: s.deps.Node.ID, Epoch: c.epoch,
		Checkpoint: c.checkpoint, Incarnation: c.incarnation}
}

// fields identify the child in logs.
func (c *child) fields() []zap.Field {
	if c.row == 0 {
		return []zap.Field{zap.String("actor", c.name)}
	}
	return []zap.Field{zap.String("tenant", c.id.Tenant), zap.String("projection", c.id.Name),
		zap.Int("partition", c.id.Partition),
		zap.Int64("epoch", c.epoch)}
}

// spawn starts a child under a new name, so that messages to an earlier actor do not reach it.
func (s *supervisor) spawn(ctx actor.Context, c *child, b actors.Behaviour) {
	s.spawned++
	name := c.name
	if c.row != 0 {
		name = c.id.String()
	}
	pid, err := s.deps.Spawn(ctx, fmt.Sprintf("%s#%d", name, s.spawned), b)
	if err != nil {
		s.deps.Log.Error("actor not started", zap.String("actor", name), zap.Error(err))
		s.respawnLater(ctx, c)
		return
	}
	c.pid = pid
	s.children[pid.Id] = c
}

// start starts a child unless it runs. While the runtime stops, only the node is started: it releases the leases.
func (s *supervisor) start(ctx actor.Context, c *child) {
	if c.pid == nil && (c == s.node || !s.stopping && !c.ended && !c.draining) {
		if c.row != 0 {
			s.startProjection(ctx, c)
			return
		}
		c.respawn(ctx)
	}
}

// startProjection starts a projection with the lease that was just read. Later it reads its lease first.
func (s *supervisor) startProjection(ctx actor.Context, c *child) {
	if c.feed.pid == nil {
		s.respawnLater(ctx, c)
		return
	}
	lease, fresh := s.lease(c), c.fresh != nil
	if fresh {
		lease, c.fresh = *c.fresh, nil
	}
	s.spawn(ctx, c, actors.NewProjection(s.deps, s.deps.Definitions[c.id.Name], lease, c.feed.pid, fresh))
}

// startNode starts the node with the projections that run.
func (s *supervisor) startNode(ctx actor.Context) {
	running := make([]actors.Running, 0, len(s.projections))
	for _, c := range s.projections {
		if !c.ended {
			running = append(running, actors.Running{Lease: s.lease(c), Draining: c.draining})
		}
	}
	s.spawn(ctx, s.node, actors.NewNode(s.deps, running))
	if s.stopping {
		s.toNode(ctx, &messages.ReleaseAll{})
	}
}

// run starts the projection of a lease. An actor of an earlier lease is stopped first.
func (s *supervisor) run(ctx actor.Context, lease engine.Lease) {
	if s.deps.Definitions[lease.ID.Name] == nil {
		s.deps.Log.Error("claimed a projection that is not registered", zap.Stringer("projection", lease.ID))
		return
	}
	if other := s.rows[lease.Row]; other != nil && other.id != lease.ID {
		s.retire(ctx, other)
	}
	c := s.projections[lease.ID]
	if c == nil {
		c = &child{}
		s.projections[lease.ID] = c
	} else if s.rows[c.row] == c {
		delete(s.rows, c.row)
	}
	s.rows[lease.Row] = c
	feed := s.feed(ctx, lease)
	feed.members[c] = true
	if c.feed != nil && c.feed != feed {
		s.leave(ctx, c)
	}
	c.held = held{id: lease.ID, epoch: lease.Epoch, checkpoint: lease.Checkpoint, incarnation: lease.Incarnation,
		partitions: lease.Partitions, row: lease.Row}
	c.fresh, c.feed, c.ended, c.draining = &lease, feed, false, false
	c.replaced = c.pid != nil
	if c.replaced {
		ctx.Stop(c.pid)
	}
	s.start(ctx, c)
}

// retire stops a projection whose lease is over.
func (s *supervisor) retire(ctx actor.Context, c *child) {
	c.ended = true
	if c.pid != nil {
		ctx.Stop(c.pid)
	} else {
		s.forget(ctx, c)
	}
}

// forget removes a projection that has ended.
func (s *supervisor) forget(ctx actor.Context, c *child) {
	delete(s.projections, c.id)
	if s.rows[c.row] == c {
		delete(s.rows, c.row)
	}
	s.leave(ctx, c)
}

// leave removes a projection from its feed, and stops the feed if it serves no other.
func (s *supervisor) leave(ctx actor.Context, c *child) {
	feed, tenant := c.feed, c.id.Tenant
	delete(feed.members, c)
	if len(feed.members) > 0 {
		return
	}
	if s.feeds[tenant] == feed {
		delete(s.feeds, tenant)
		s.deps.Limiter.Leave(tenant)
	}
	feed.ended = true
	if feed.pid != nil {
		ctx.Stop(feed.pid)
	}
}

// feed returns the feed of a lease's tenant, and starts it if there is none. If a tenant was dropped and created again
// under its name, the old feed serves only the projections that it has already, since it may hold events of the dropped
// tenant.
func (s *supervisor) feed(ctx actor.Context, lease engine.Lease) *child {
	tenant := lease.ID.Tenant
	if c := s.feeds[tenant]; c != nil && c.tenantRow == lease.TenantRow {
		return c
	}
	c := &child{name: "feed " + tenant, members: make(map[*child]bool), tenant: tenant, tenantRow: lease.TenantRow}
	c.respawn = func(ctx actor.Context) { s.spawn(ctx, c, actors.NewFeed(s.deps, tenant)) }
	s.feeds[tenant] = c
	s.deps.Limiter.Serve(tenant)
	s.start(ctx, c)
	return c
}

// find returns the projection of the lease with that key, nil if there is none.
func (s *supervisor) find(key engine.LeaseKey) *child {
	if c := s.rows[key.Row]; c != nil && c.epoch == key.Epoch && !c.ended {
		return c
	}
	return nil
}

// pass passes a message of the node on to a projection. A projection that is between two starts reads its lease anyway.
func (s *supervisor) pass(ctx actor.Context, key engine.LeaseKey, msg any) {
	if c := s.find(key); c != nil && c.pid != nil {
		ctx.Send(c.pid, msg)
	}
}

// drain has a projection finish the work in progress. A projection without an actor is drained already.
func (s *supervisor) drain(ctx actor.Context, msg *messages.Drain) {
	c := s.find(msg.Key)
	if c == nil {
		s.toNode(ctx, &messages.LeaseLost{Key: msg.Key})
		return
	}
	c.draining = true
	if c.pid != nil {
		ctx.Send(c.pid, msg)
		return
	}
	s.onDrained(ctx, c)
}

// onDrained reports that a projection without an actor is drained. Only the database has its last checkpoint, which the
// release leaves as it is.
func (s *supervisor) onDrained(ctx actor.Context, c *child) {
	s.toNode(ctx, &messages.Drained{Advance: engine.Advance{Lease: s.lease(c), To: c.checkpoint}})
}

// onResumed passes the message on to a projection and its feed.
func (s *supervisor) onResumed(ctx actor.Context, msg *messages.Resumed) {
	s.pass(ctx, msg.Key, msg)
	if c := s.find(msg.Key); c != nil {
		if c.feed.pid != nil {
			ctx.Send(c.feed.pid, msg)
		}
	}
}
