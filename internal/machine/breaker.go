package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Breaker is a circuit breaker. The machine's states do the waiting.
type Breaker struct {
	policy projection.BreakerPolicy
	state  projection.BreakerState
	// recent are the failures within the window, while it is closed.
	recent []time.Time
	// inARow counts the failures since an event was last handled, and probes the failed probes among them.
	inARow, probes int
	// opened is when the breaker last changed from closed to open, and until is when it is due for a probe.
	opened, until time.Time
	why           string
}

// NewBreaker returns a closed breaker for a policy with its defaults in place, or nil if the policy has no IsOutage.
func NewBreaker(policy projection.BreakerPolicy) *Breaker {
	if policy.IsOutage == nil {
		return nil
	}
	return &Breaker{policy: policy, state: projection.BreakerClosed}
}

// State returns the state of the breaker, empty if there is none.
func (b *Breaker) State() projection.BreakerState {
	if b == nil {
		return ""
	}
	return b.state
}

// Why names the failures that opened the breaker, and how many followed.
func (b *Breaker) Why() string {
	if b.probes == 0 {
		return b.why
	}
	return fmt.Sprintf("%s, and %d since", b.why, b.probes)
}

// Failed returns the breaker after a failure that IsOutage recognizes. It reports whether a closed breaker opened. A
// probe that fails opens the breaker again, which is not reported.
func (b *Breaker) Failed(now time.Time) (next *Breaker, opened bool) {
	n := *b
	n.inARow++
	if n.state == projection.BreakerClosed {
		n.recent = append(slices.DeleteFunc(slices.Clone(n.recent),
			func(at time.Time) bool { return now.Sub(at) >= n.policy.Window }), now)
		switch {
		case len(n.recent) >= n.policy.Failures:
			n.why = fmt.Sprintf("%d failures within %v", len(n.recent), n.policy.Window)
		case n.inARow >= n.policy.Failures:
			n.why = fmt.Sprintf("%d failures in a row", n.inARow)
		default:
			return &n, false
		}
		if n.policy.Failures == 1 {
			n.why = "a failure"
		}
		n.opened, n.recent, n.probes = now, nil, 0
		opened = true
	} else {
		n.probes++
	}
	n.state, n.until = projection.BreakerOpen, now.Add(n.policy.OpenFor)
	return &n, opened
}

// Probe returns the breaker for the next batch. If it is half open, the batch is a probe, which has one event. The
// caller decides when it is time for one: a user may know that the service is back.
func (b *Breaker) Probe() *Breaker {
	if b.State() != projection.BreakerOpen {
		return b
	}
	n := *b
	n.state = projection.BreakerHalfOpen
	return &n
}

// Answered returns the breaker after a batch that was handled, or failed with an error that IsOutage does not
// recognize: closed. Successes do not cancel failures within the window: a service that is up and down in turns opens
// the breaker, too.
func (b *Breaker) Answered() *Breaker {
	if b == nil || b.inARow == 0 && b.state == projection.BreakerClosed {
		return b
	}
	n := *b
	n.inARow, n.state = 0, projection.BreakerClosed
	return &n
}
