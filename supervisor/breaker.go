package supervisor

import "github.com/millrace-go/millrace/messages"

// outage answers that what a projection's handler depends on failed. That is no fault of the server's, so neither the gate
// nor the count of such faults have to do with it, and how it is logged is the breaker's concern.
func (b *boss) outage(c *child, o *messages.Outage) {
	def := b.env.Definitions[c.lease.ID.Name]
	delay := def.Breaker.Wait
	if !o.Open {
		delay = retryDelay(def.Retry, o.InARow)
	}
	b.resumeIn(c, delay)
}
