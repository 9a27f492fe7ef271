package machine

import (
	"time"

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

// ProbeDelay returns how long an open breaker waits before it tries one event: up to a fifth longer than openFor. So the
// projections of many tenants, whose breakers opened together, do not all call a service at once when it returns.
func ProbeDelay(openFor time.Duration, jitter float64) time.Duration {
	return openFor + time.Duration(jitter*float64(openFor/5))
}
