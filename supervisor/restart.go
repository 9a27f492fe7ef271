package supervisor

import (
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
)

// strategy stops a child that failed and never restarts it: a restart that comes late would bring back an actor that is
// stopping. The supervisor starts another one when the failed one is gone.
type strategy struct{ sup *supervisor }

// HandleFailure is called in the supervisor's own turn.
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

// rootStrategy stands above the supervisor. A supervisor that fails is stopped: the runtime ends with the reason.
type rootStrategy struct {
	log    *zap.Logger
	reason *actors.Crash
}

func (s *rootStrategy) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	s.reason, _ = reason.(*actors.Crash)
	s.log.Error("supervisor crashed, ending the runtime", zap.Any("reason", reason))
	supervisor.StopChildren(pid)
}

// terminated takes in that a child is gone and starts another one where that is wanted.
func (b *supervisor) terminated(ctx actor.Context, who *actor.PID) {
	c := b.children[who.Id]
	if c == nil {
		return
	}
	delete(b.children, who.Id)
	b.gate.forget(who)
	c.wentOn()
	c.pid = nil
	switch {
	case c == b.node:
		b.unanswered(ctx)
		b.respawnLater(ctx, c)
	case c.next != nil:
		b.unblock(ctx, c)
	case c.ended && c.lease.Row != 0:
		b.forget(ctx, c)
	case c.ended:
	case c.draining:
		b.drained(ctx, c)
	default:
		for p := range c.members {
			if p.pid != nil {
				ctx.Stop(p.pid) // it is started again with the next feed
			}
		}
		b.respawnLater(ctx, c)
	}
}

func (b *supervisor) respawnLater(ctx actor.Context, c *child) {
	if time.Since(c.crashed) > time.Minute {
		c.crashes = 0
	}
	c.crashes, c.crashed = c.crashes+1, time.Now()
	b.deps.After(faultDelay(c.crashes), ctx.Self(), &respawnDue{child: c})
}

const (
	watchEvery = time.Second
	// stuckAfter is how long past its own limit work may take, or how long a projection may stand still that has work to
	// do, before it is taken for dead.
	stuckAfter = 30 * time.Second
)

// lookForStuck ends actors that stand still while there is work for them: the worst faults are loops that die quietly
// while everything looks well.
func (b *supervisor) lookForStuck(ctx actor.Context) {
	if b.stopping {
		return
	}
	b.watch = b.deps.After(watchEvery, ctx.Self(), &watchDue{})
	for id, entry := range b.deps.Registry.Working() {
		if c := b.ids[id]; c != nil && c.pid != nil && Stuck(entry) {
			b.deps.Log.With(c.who()...).Error("projection stuck, restarting", zap.String("state", string(entry.State)))
			b.deps.Registry.CountStuck()
			ctx.Stop(c.pid)
		}
	}
	for tenant, entry := range b.deps.Registry.WorkingFeeds() {
		if c := b.feeds[tenant]; c != nil && c.pid != nil && time.Since(entry.Busy) > b.deps.Timing.QueryTimeout+stuckAfter {
			b.deps.Log.Error("feed stuck, restarting", zap.String("tenant", tenant))
			b.deps.Registry.CountStuck()
			ctx.Stop(c.pid)
		}
	}
}

// Stuck reports whether a projection that has work to do, or work under way, stands still.
func Stuck(e actors.ProjectionEntry) bool {
	switch {
	case !e.Working():
		return false
	case !e.Busy.IsZero():
		return time.Since(e.Busy) > e.Limit+stuckAfter
	}
	return time.Since(e.Changed) > stuckAfter
}
