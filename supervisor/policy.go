// Package supervisor starts, watches and restarts the actors of a runtime. It decides when a fault is tried again, gates
// what needs the server behind one probe while the server is away, routes poison events to the dead letters, and stops
// everything in order.
package supervisor

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace/projection"
)

// retryDelay is the delay before the retry that follows the attempt of that number, from 1.
func retryDelay(p projection.RetryPolicy, attempt int) time.Duration {
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(p.Base), backoff.WithMaxInterval(p.Cap),
		backoff.WithMultiplier(p.Factor), backoff.WithRandomizationFactor(p.Jitter), backoff.WithMaxElapsedTime(0))
	delay := b.NextBackOff()
	for range min(attempt, 64) - 1 {
		delay = b.NextBackOff()
	}
	// The library adds its jitter after its cap.
	return min(delay, p.Cap)
}

const (
	// faultFirst and faultMost bound the delays after faults of the infrastructure.
	faultFirst = 50 * time.Millisecond
	faultMost  = 5 * time.Second
	// mendedEvery is how often it is looked whether a fault of the configuration was mended.
	mendedEvery = 15 * time.Second
)

func faultPolicy() projection.RetryPolicy {
	return projection.RetryPolicy{Base: faultFirst, Cap: faultMost, Factor: 2, Jitter: 0.3}
}
