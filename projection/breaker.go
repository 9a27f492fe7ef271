package projection

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// BreakerPolicy is the circuit breaker of a projection whose handler depends on something outside, say a web service or a
// broker. While that is down the projection waits at its place: nothing is counted against an event, and nothing is
// parked. The zero value is no breaker.
//
// After a failure that Counts knows, the same batch is tried again after the delays of the projection's RetryPolicy, as
// often as it takes. When there are too many of them the breaker opens: then one event is tried each Wait, until one is
// handled or fails on something else. Both say that what is outside answers, and close it.
//
// What a handler asks for by Retry, Park, Skip or Stop, and backoff.Permanent, are about the event, and win.
type BreakerPolicy struct {
	// Counts tells whether an error of the handler says that something outside cannot be worked with. What it knows counts
	// against no event; all else is the event's, as without a breaker. It is what turns the breaker on, and there is no
	// default: a breaker that took every error for an outage would wait for ever at one bad event. So say true of what is
	// known to pass, a refused connection or a 503, and not of what an event may cause by itself, a 400.
	//
	// It sees what the handler returned, perhaps wrapped: use errors.Is and errors.As. It may be called from several
	// goroutines at once, for different tenants. One that panics has said false, and the log says so.
	Counts func(err error) bool
	// Failures is how many such failures within Window open the breaker. So do as many in a row, with nothing handled in
	// between, however long they take: those that run into a deadline may be further apart than Window has room for.
	// Default 5.
	Failures int
	// Window is how far back failures are counted. Default 1 min.
	Window time.Duration
	// Wait is how long the breaker stays open before one event is tried, up to a fifth longer at random. Default 30 s: asking
	// more often does not bring a service back, and 30 s is soon enough to notice that it is. An operator who knows that it
	// is back can resume the projection at once.
	Wait time.Duration
}

// WithDefaults returns p with the defaults in place of zeros, where it is a breaker at all.
func (p BreakerPolicy) WithDefaults() BreakerPolicy {
	if p.Counts == nil {
		return p
	}
	if p.Failures == 0 {
		p.Failures = 5
	}
	if p.Window == 0 {
		p.Window = time.Minute
	}
	if p.Wait == 0 {
		p.Wait = 30 * time.Second
	}
	return p
}

// Validate names the first field that makes no sense, of a policy with its defaults in place.
func (p BreakerPolicy) Validate() error {
	switch {
	case p.Counts == nil && (p.Failures != 0 || p.Window != 0 || p.Wait != 0):
		return errors.New("there is no Breaker.Counts, but another field of Breaker is set: without it there is no breaker")
	case p.Failures < 0:
		return fmt.Errorf("value of Breaker.Failures is negative: %d", p.Failures)
	case p.Window < 0:
		return fmt.Errorf("value of Breaker.Window is negative: %v", p.Window)
	case p.Wait < 0:
		return fmt.Errorf("value of Breaker.Wait is negative: %v", p.Wait)
	}
	return nil
}

// BreakerState is what a circuit breaker is at.
type BreakerState string

const (
	// BreakerClosed: batches are handled as usual.
	BreakerClosed BreakerState = "closed"
	// BreakerOpen: the projection waits for what its handler depends on.
	BreakerOpen BreakerState = "open"
	// BreakerHalfOpen: one event is tried, to find out whether that is back.
	BreakerHalfOpen BreakerState = "half-open"
)

// Breaker is the state of a circuit breaker. It is pure: time is given to it, and who waits, and how, is up to others. The
// zero value is no breaker.
type Breaker struct {
	policy BreakerPolicy
	state  BreakerState
	// recent are the failures within the window, while it is closed.
	recent []time.Time
	// inARow are the failures since something was last handled, probes those of them that were probes.
	inARow, probes int
	opened, until  time.Time
	why            string
}

// NewBreaker makes a closed breaker of a policy with its defaults in place, and none where it has no Counts.
func NewBreaker(policy BreakerPolicy) Breaker {
	if policy.Counts == nil {
		return Breaker{}
	}
	return Breaker{policy: policy, state: BreakerClosed}
}

// State is what the breaker is at, empty where there is none.
func (b *Breaker) State() BreakerState { return b.state }

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
	if b.state == BreakerClosed {
		b.recent = slices.DeleteFunc(b.recent, func(at time.Time) bool { return now.Sub(at) >= b.policy.Window })
		b.recent = append(b.recent, now)
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
	b.state, b.until = BreakerOpen, now.Add(b.policy.Wait)
	return opened
}

// Probe takes in that a batch is about to be tried. It tells whether that is a probe, and so to be of one event. Whether it
// is time for one is for others to say: somebody may know that what was down is back.
func (b *Breaker) Probe() bool {
	if b.state == BreakerOpen {
		b.state = BreakerHalfOpen
	}
	return b.state == BreakerHalfOpen
}

// Answered takes in that a batch was handled, or failed on something that Counts does not know. It tells whether that
// closed a breaker that was not. Successes do not make up for failures within the window: what is up and down all the time
// opens the breaker, too.
func (b *Breaker) Answered() (closed bool) {
	b.inARow = 0
	if b.state != BreakerOpen && b.state != BreakerHalfOpen {
		return false
	}
	b.state = BreakerClosed
	return true
}
