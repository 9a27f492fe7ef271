package supervisor

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// faulted answers a fault that is not an event's, when the server can be worked with.
func (b *supervisor) faulted(ctx actor.Context, msg *messages.Faulted) {
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
func (b *supervisor) misconfigured(c *child, fault *engine.Fault) {
	if !c.told {
		c.told = true
		b.deps.Log.With(c.who()...).Error("feed stopped by its configuration, retrying", zap.Error(fault.Err))
	}
	b.resumeIn(c, mendedEvery)
}

// serverAnswers is called when a fault is the child's own. A projection decides itself when to try again.
func (b *supervisor) serverAnswers(ctx actor.Context, c *child) {
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
		return faultDelay(c.faults - 1)
	}
	return 0
}

// tryAgain resumes a child after a delay: its fault is its own, since the server can be worked with.
func (b *supervisor) tryAgain(c *child) {
	b.deps.Log.With(c.who()...).Warn("fault not counted, retrying", zap.Stringer("class", c.fault.Class), zap.Int("attempt", c.faults), zap.Error(c.fault.Err))
	b.resumeIn(c, faultDelay(c.faults))
}

// resumeIn ends a child's wait after a delay. It stops the timer of an earlier wait, which would end this one too soon.
func (b *supervisor) resumeIn(c *child, delay time.Duration) {
	c.wentOn()
	if c.pid != nil {
		c.wait = b.deps.After(delay, c.pid, &messages.Resume{})
	}
}

// wentOn ends what is left of a wait.
func (c *child) wentOn() {
	if c.wait != nil {
		c.wait.Stop()
		c.wait = nil
	}
}
