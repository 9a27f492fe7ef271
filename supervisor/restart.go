package supervisor

import (
	"runtime/debug"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/observing"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
)

// strategy stops a child that crashed and never lets protoactor restart it: a late restart would bring back an actor
// that is stopping. The supervisor starts another actor when this one has ended.
type strategy struct{ sup *supervisor }

// HandleFailure is called by the supervisor's own actor.
func (s *strategy) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, pid *actor.PID,
	_ *actor.RestartStatistics, reason, _ any) {
	defer func() {
		if r := recover(); r != nil {
			s.sup.deps.Log.Error("supervision panicked", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
		}
	}()
	crash, ok := reason.(*actors.Crash)
	if !ok {
		crash = &actors.Crash{Actor: pid.Id, Value: reason}
	}
	s.sup.deps.Log.Error("actor crashed, restarting", zap.String("actor", crash.Actor), zap.Any("panic", crash.Value),
		zap.String("stack", crash.Stack))
	s.sup.restarts(s.sup.children[pid.Id], observe.Restart{Err: crash})
	supervisor.StopChildren(pid)
}

// rootStrategy is the strategy for the supervisor itself. If it crashes it is stopped, and the runtime ends with the
// reason.
type rootStrategy struct {
	log    *zap.Logger
	reason *actors.Crash
}

func (s *rootStrategy) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, pid *actor.PID,
	_ *actor.RestartStatistics, reason, _ any) {
	s.reason, _ = reason.(*actors.Crash)
	s.log.Error("supervisor crashed, ending the runtime", zap.Any("reason", reason))
	supervisor.StopChildren(pid)
}

// onTerminated is called when a child has ended. It restarts the child if it should run.
func (s *supervisor) onTerminated(ctx actor.Context, pid *actor.PID) {
	c := s.children[pid.Id]
	if c == nil {
		return
	}
	delete(s.children, pid.Id)
	c.pid = nil
	switch {
	case c == s.node:
		for _, p := range s.projections {
			if p.pid != nil {
				ctx.Send(p.pid, &messages.Unanswered{})
			}
		}
		s.respawnLater(ctx, c)
	case c == s.operator && s.stopping:
		s.orderly(ctx)
	case c.ended && c.row != 0:
		s.forget(ctx, c)
	case c.ended:
	case c.draining:
		s.onDrained(ctx, c)
	case c.replaced:
		c.replaced = false
		s.start(ctx, c)
	default:
		for p := range c.members {
			if p.pid != nil {
				ctx.Stop(p.pid) // it is restarted with the next feed
			}
		}
		s.respawnLater(ctx, c)
	}
}

func (s *supervisor) respawnLater(ctx actor.Context, c *child) {
	if time.Since(c.crashed) > time.Minute {
		c.crashes = 0
	}
	c.crashes, c.crashed = c.crashes+1, time.Now()
	s.deps.After(ctx, actors.FaultDelay(c.crashes), func(ctx actor.Context) { s.start(ctx, c) })
}

const (
	watchEvery = time.Second
	// StuckAfter is how long work may take beyond its own limit, and how long a projection with work to do may not
	// change.
	StuckAfter = 30 * time.Second
)

func (s *supervisor) watchLater(ctx actor.Context) {
	s.watching = s.deps.After(ctx, watchEvery, s.watch)
}

// watch stops actors that make no progress although they have work to do. onTerminated then restarts them.
func (s *supervisor) watch(ctx actor.Context) {
	if s.stopping {
		return
	}
	s.watchLater(ctx)
	s.pulse()
	late := s.deps.Registry.OperatorLate()
	// The operator is not added to standing: its step may be a user's hook that does not return, and a restart of the
	// process would not help.
	s.restartStuck(ctx, s.operator, "operator", func(after time.Duration) bool { return late > after }, nil)
	var standing []string
	for id, entry := range s.deps.Registry.Working() {
		c := s.projections[id]
		stuck := func(after time.Duration) bool { return Stuck(entry, after) }
		standing = s.restartStuck(ctx, c, "projection "+id.String(), stuck, standing)
	}
	for tenant, entry := range s.deps.Registry.WorkingFeeds() {
		limit := s.deps.Timing.QueryTimeout
		stuck := func(after time.Duration) bool { return time.Since(entry.Busy) > limit+after }
		standing = s.restartStuck(ctx, s.feeds[tenant], "feed of tenant "+tenant, stuck, standing)
	}
	slices.Sort(standing)
	s.deps.Registry.Standing(standing)
}

// restarts reports to the observer that a child is restarted.
func (s *supervisor) restarts(c *child, r observe.Restart) {
	switch {
	case c == nil, c == s.operator:
		return
	case c == s.node:
		r.Kind = observe.ActorNode
	case c == s.listener:
		r.Kind = observe.ActorListener
	case c.members != nil:
		r.Kind, r.Projection.Tenant = observe.ActorFeed, c.tenant
	default:
		r.Kind, r.Projection = observe.ActorProjection, c.id
	}
	observing.Call(s.deps.Observer.ActorRestarted, r)
}

// restartStuck stops an actor that has been stuck for StuckAfter. If the actor still runs after twice that time, it
// cannot be stopped, and restartStuck adds its name to standing.
func (s *supervisor) restartStuck(ctx actor.Context, c *child, name string, stuck func(after time.Duration) bool,
	standing []string) []string {
	if c == nil || c.pid == nil || !stuck(StuckAfter) {
		return standing
	}
	s.deps.Log.Error("actor stuck, restarting", c.fields()...)
	s.deps.Registry.Stuck.Add(1)
	s.restarts(c, observe.Restart{Stuck: true})
	ctx.Stop(c.pid)
	if stuck(2 * StuckAfter) {
		standing = append(standing, name)
	}
	return standing
}

// pulse records that the supervisor makes progress, and asks the others. An actor that is being restarted need not.
func (s *supervisor) pulse() {
	s.deps.Registry.Pulse(actors.SupervisorLoop)
	if s.listener.pid == nil {
		s.deps.Registry.Pulse(actors.SessionLoop)
	}
	if s.node.pid == nil {
		s.deps.Registry.Pulse(actors.NodeLoop)
		return
	}
	s.deps.System.Root.Send(s.node.pid, &messages.Pulse{})
}

// Stuck reports whether a projection that has work to do, or work in progress, has made no progress for that long.
func Stuck(e actors.ProjectionEntry, after time.Duration) bool {
	switch {
	case !e.Working():
		return false
	case !e.Busy.IsZero():
		return time.Since(e.Busy) > e.Limit+after
	}
	return time.Since(e.Changed) > after
}
