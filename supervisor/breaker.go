package supervisor

import (
	"math/rand/v2"
	"time"

	"github.com/millrace-go/millrace/messages"
)

// outage answers that what a projection's handler depends on failed. That is no fault of the server's, so neither the gate
// nor the count of such faults have to do with it, and how it is logged is the breaker's concern.
func (b *boss) outage(c *child, o *messages.Outage) {
	def := b.env.Definitions[c.lease.ID.Name]
	delay := probeIn(def.Breaker.OpenFor)
	if !o.Open {
		delay = retryDelay(def.Retry, o.InARow)
	}
	b.resumeIn(c, delay)
}

// probeIn is how long an open breaker waits for its probe: up to a fifth longer than wait. So the projections of many
// tenants, whose breakers opened together, do not all probe a service at the moment when it is back.
func probeIn(wait time.Duration) time.Duration { return wait + rand.N(wait/5+1) }
