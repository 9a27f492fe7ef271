package supervisor

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/messages"
)

// outage answers that what a projection's handler depends on failed. That is no fault of the server's, so neither the gate
// nor the count of such faults have to do with it, and how it is logged is the breaker's concern.
func (b *boss) outage(c *child, pid *actor.PID, o *messages.Outage) {
	def := b.env.Definitions[c.lease.ID.Name]
	delay := def.Breaker.Wait
	if !o.Open {
		delay = retryDelay(def.Retry, o.InARow)
	}
	c.outage = b.env.After(delay, pid, &messages.Resume{})
}

// wentOn ends what is left of a wait that somebody cut short. An outage is waited for without end, so that two timers would
// probe twice as often from then on; and a wait may be so long that its timer would outlive the runtime.
func (c *child) wentOn() {
	if c.outage != nil {
		c.outage.Stop()
		c.outage = nil
	}
}
