// Package backoff waits between tries. The delays are those of cenkalti/backoff, which double with some jitter. They have no
// end, and their jitter stays below the longest delay.
package backoff

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// jitter is the part of a delay by which it is longer or shorter at random.
const jitter = 0.2

// Delays are the delays between the tries of one thing.
type Delays struct {
	delays *backoff.ExponentialBackOff
	most   time.Duration
}

// New returns delays from first to most.
func New(first, most time.Duration) *Delays {
	return &Delays{most: most, delays: backoff.NewExponentialBackOff(backoff.WithInitialInterval(first), backoff.WithMaxInterval(most),
		backoff.WithMultiplier(2), backoff.WithRandomizationFactor(jitter), backoff.WithMaxElapsedTime(0))}
}

// Next returns the next delay.
func (d *Delays) Next() time.Duration { return min(d.most, d.delays.NextBackOff()) }

// Reset begins with the first delay again.
func (d *Delays) Reset() { d.delays.Reset() }

// Wait waits for the next delay. It returns ctx's error if ctx ends first.
func (d *Delays) Wait(ctx context.Context) error {
	timer := time.NewTimer(d.Next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Poll calls fn until it is done or fails, with delays from first to most in between. It returns fn's error, or ctx's error if
// ctx ends first.
func Poll(ctx context.Context, first, most time.Duration, fn func() (done bool, err error)) error {
	for delays := New(first, most); ; {
		done, err := fn()
		if done || err != nil {
			return err
		}
		if err := delays.Wait(ctx); err != nil {
			return err
		}
	}
}
