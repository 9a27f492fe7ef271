package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Breaker is a circuit breaker. The machine's states do the waiting. The zero value is no breaker.
type Breaker struct {
	policy projection.BreakerPolicy
	// state is empty if there is no breaker.
	state projection.BreakerState
	// recent are the failures within the window, while it is closed.
	recent []time.Time
	// inARow counts the failures since an event was last handled, and probes the failed probes among them.
	inARow, probes int
	// opened is when the breaker last changed from closed to open, and until is when it is due for a probe.
	opened, until time.Time
	why           string
}

// NewBreaker returns a closed breaker for a policy with its defaults in place, or no breaker if the policy has no IsOutage.
func NewBreaker(policy projection.BreakerPolicy) Breaker {
	if policy.IsOutage == nil {
		return Breaker{}
	}
	return Breaker{policy: policy, state: projection.BreakerClosed}
}

// Why names the failures that opened the breaker, and how many followed.
func (b *Breaker) Why() string {
	if b.probes == 0 {
		return b.why
	}
	return fmt.Sprintf("%s, and %d since", b.why, b.probes)
}

// Failed records a failure that IsOutage recognizes. It reports whether a closed breaker opened. A probe that fails opens the
// breaker again, which is not reported.
func (b *Breaker) Failed(now time.Time) (opened bool) {
	b.inARow++
	if b.state == projection.BreakerClosed {
		recent := slices.DeleteFunc(slices.Clone(b.recent), func(at time.Time) bool { return now.Sub(at) >= b.policy.Window })
		b.recent = append(recent, now) // a new slice, since other values of the breaker may share the old one
		switch {
		case len(b.recent) >= b.policy.Failures:
			b.why = fmt.Sprintf("%d failures within %v", len(b.recent), b.policy.Window)
		case b.inARow >= b.policy.Failures:
			b.why = fmt.Sprintf("%d failures in a row", b.inARow)
		default:
			return false
		}
		if b.policy.Failures == 1 {
			b.why = "a failure"
		}
		b.opened, b.recent, b.probes = now, nil, 0
		opened = true
	} else {
		b.probes++
	}
	b.state, b.until = projection.BreakerOpen, now.Add(b.policy.OpenFor)
	return opened
}

// Probe is called before a batch. It reports whether the batch is a probe, which has one event. The caller decides when it is time
// for one: a user may know that the service is back.
func (b *Breaker) Probe() bool {
	if b.state == projection.BreakerOpen {
		b.state = projection.BreakerHalfOpen
	}
	return b.state == projection.BreakerHalfOpen
}

// Answered records that a batch was handled, or failed with an error that IsOutage does not recognize. It reports whether the
// breaker closed. Successes do not cancel failures within the window: a service that is up and down in turns opens the breaker,
// too.
func (b *Breaker) Answered() (closed bool) {
	b.inARow = 0
	if b.state != projection.BreakerOpen && b.state != projection.BreakerHalfOpen {
		return false
	}
	b.state = projection.BreakerClosed
	return true
}
