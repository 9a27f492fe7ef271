package machine

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace/projection"
)

const (
	// faultBase and faultCap bound the delays after faults of the infrastructure.
	faultBase = 50 * time.Millisecond
	faultCap  = 5 * time.Second
)

// FaultPolicy is the policy of delays after faults that are not an event's.
func FaultPolicy() projection.RetryPolicy {
	return projection.RetryPolicy{Base: faultBase, Cap: faultCap, Factor: 2, Jitter: 0.3}
}

// Delay returns the delay after the attempt of that number, from 1. jitter is a random number from 0 to 1: half of the
// policy's jitter lies below the delay, half above.
func Delay(p projection.RetryPolicy, attempt int, jitter float64) time.Duration {
	b := &backoff.ExponentialBackOff{InitialInterval: p.Base, MaxInterval: p.Cap, Multiplier: p.Factor, Clock: noClock{}, Stop: backoff.Stop}
	b.Reset()
	delay := b.NextBackOff()
	for range min(max(attempt, 1), 64) - 1 {
		delay = b.NextBackOff()
	}
	// The library draws its jitter itself and adds it after its cap, so it is added here.
	spread := p.Jitter * (2*jitter - 1)
	return min(time.Duration(float64(delay)*(1+spread)), p.Cap)
}

// ProbeDelay returns how long an open breaker waits before it tries one event: up to a fifth longer than openFor. So the
// projections of many tenants, whose breakers opened together, do not all call a service at once when it returns.
func ProbeDelay(openFor time.Duration, jitter float64) time.Duration {
	return openFor + time.Duration(jitter*float64(openFor/5))
}

// noClock is the clock of a backoff without a limit on the time elapsed.
type noClock struct{}

func (noClock) Now() time.Time { return time.Time{} }
