package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Breaker is the state of a circuit breaker. It is pure: time is given to it, and who waits, and how, is up to others. The
// zero value is no breaker.
type Breaker struct {
	policy projection.BreakerPolicy
	state  projection.BreakerState
	// recent are the failures within the window, while it is closed.
	recent []time.Time
	// inARow are the failures since something was last handled, probes those of them that were probes.
	inARow, probes int
	opened, until  time.Time
	why            string
}

// NewBreaker makes a closed breaker of a policy with its defaults in place, and none where it has no Counts.
func NewBreaker(policy projection.BreakerPolicy) Breaker {
	if policy.IsOutage == nil {
		return Breaker{}
	}
	return Breaker{policy: policy, state: projection.BreakerClosed}
}

// State is what the breaker is at, empty where there is none.
func (b *Breaker) State() projection.BreakerState { return b.state }

// InARow is how many failures there were since something was last handled.
func (b *Breaker) InARow() int { return b.inARow }

// Opened is when the breaker opened last that was closed.
func (b *Breaker) Opened() time.Time { return b.opened }

// Until is how long the breaker stays open, unless it is probed before.
func (b *Breaker) Until() time.Time { return b.until }

// Why tells which failures opened the breaker, and how many there were since.
func (b *Breaker) Why() string {
	if b.probes == 0 {
		return b.why
	}
	return fmt.Sprintf("%s, and %d since", b.why, b.probes)
}

// Failed takes in a failure that Counts knows. It tells whether that opened a breaker that was closed; a probe that fails
// opens it as well, and is no news.
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

// Probe takes in that a batch is about to be tried. It tells whether that is a probe, and so to be of one event. Whether it
// is time for one is for others to say: somebody may know that what was down is back.
func (b *Breaker) Probe() bool {
	if b.state == projection.BreakerOpen {
		b.state = projection.BreakerHalfOpen
	}
	return b.state == projection.BreakerHalfOpen
}

// Answered takes in that a batch was handled, or failed on something that Counts does not know. It tells whether that
// closed a breaker that was not. Successes do not make up for failures within the window: what is up and down all the time
// opens the breaker, too.
func (b *Breaker) Answered() (closed bool) {
	b.inARow = 0
	if b.state != projection.BreakerOpen && b.state != projection.BreakerHalfOpen {
		return false
	}
	b.state = projection.BreakerClosed
	return true
}
