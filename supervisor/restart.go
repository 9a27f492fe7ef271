package supervisor

import (
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/messages"
)

// strategy stops a child that crashed and never lets protoactor restart it: a late restart would bring back an actor that is
// stopping. The supervisor starts another actor when this one has ended.
type strategy struct{ sup *supervisor }

// HandleFailure is called by the supervisor's own actor.
func (s *strategy) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	defer func() {
		if r := recover(); r != nil {
			s.sup.deps.Log.Error("supervision panicked", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
		}
	}()
	crash, ok := reason.(*actors.Crash)
	if !ok {
		crash = &actors.Crash{Actor: pid.Id, Value: reason}
	}
	s.sup.deps.Log.Error("actor crashed, restarting", zap.String("actor", crash.Actor), zap.Any("panic", crash.Value), zap.String("stack", crash.Stack))
	supervisor.StopChildren(pid)
}

// rootStrategy is the strategy for the supervisor itself. If it crashes it is stopped, and the runtime ends with the reason.
type rootStrategy struct {
	log    *zap.Logger
	reason *actors.Crash
}

func (s *rootStrategy) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	s.reason, _ = reason.(*actors.Crash)
	s.log.Error("supervisor crashed, ending the runtime", zap.Any("reason", reason))
	supervisor.StopChildren(pid)
}

// terminated is called when a child has ended. It restarts the child if it should run.
func (s *supervisor) terminated(ctx actor.Context, pid *actor.PID) {
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
	case c.ended && c.lease.Row != 0:
		s.forget(ctx, c)
	case c.ended:
	case c.draining:
		s.drained(ctx, c)
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
	// stuckAfter is how long work may take beyond its own limit, and how long a projection with work to do may not change.
	stuckAfter = 30 * time.Second
)

func (s *supervisor) watchLater(ctx actor.Context) {
	s.watching = s.deps.After(ctx, watchEvery, s.watch)
}

// watch stops actors that make no progress although they have work to do. terminated then restarts them.
func (s *supervisor) watch(ctx actor.Context) {
	if s.stopping {
		return
	}
	s.watchLater(ctx)
	for id, entry := range s.deps.Registry.Working() {
		if c := s.projections[id]; c != nil && c.pid != nil && Stuck(entry) {
			s.deps.Log.Error("projection stuck, restarting", append(c.fields(), zap.String("state", string(entry.Phase)))...)
			s.deps.Registry.Stuck.Add(1)
			ctx.Stop(c.pid)
		}
	}
	for tenant, entry := range s.deps.Registry.WorkingFeeds() {
		if c := s.feeds[tenant]; c != nil && c.pid != nil && time.Since(entry.Busy) > s.deps.Timing.QueryTimeout+stuckAfter {
			s.deps.Log.Error("feed stuck, restarting", zap.String("tenant", tenant))
			s.deps.Registry.Stuck.Add(1)
			ctx.Stop(c.pid)
		}
	}
}

// Stuck reports whether a projection that has work to do, or work in progress, makes no progress.
func Stuck(e actors.ProjectionEntry) bool {
	switch {
	case !e.Working():
		return false
	case !e.Busy.IsZero():
		return time.Since(e.Busy) > e.Limit+stuckAfter
	}
	return time.Since(e.Changed) > stuckAfter
}
