// Package backoff computes the delays between tries, and waits for them. The delays come from cenkalti/backoff. They go
// on without limit, and jitter never exceeds the longest delay.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace/projection"
)

// jitter is the part of a delay of Delays by which it is longer or shorter at random.
const jitter = 0.2

// Delay returns the delay after the attempt of that number, from 1. random is a number from 0 to 1: half of the
// policy's jitter lies below the delay, half above.
func Delay(p projection.RetryPolicy, attempt int, random float64) time.Duration {
	b := &backoff.ExponentialBackOff{
		InitialInterval: p.Base, MaxInterval: p.Cap, Multiplier: p.Factor, Clock: noClock{}, Stop: backoff.Stop,
	}
	b.Reset()
	delay := b.NextBackOff()
	for range min(max(attempt, 1), 64) - 1 {
		delay = b.NextBackOff()
	}
	// The library draws its jitter itself and adds it after its cap, so it is added here.
	spread := p.Jitter * (2*random - 1)
	return min(time.Duration(float64(delay)*(1+spread)), p.Cap)
}

// noClock is the clock of a backoff without a limit on the time elapsed.
type noClock struct{}

func (noClock) Now() time.Time { return time.Time{} }

// Delays are the delays between the tries of one thing. They double.
type Delays struct {
	policy projection.RetryPolicy
	tries  int
}

// New returns delays from first to most.
func New(first, most time.Duration) *Delays {
	return &Delays{policy: projection.RetryPolicy{Base: first, Cap: most, Factor: 2, Jitter: jitter}}
}

// Next returns the next delay.
func (d *Delays) Next() time.Duration {
	d.tries++
	return Delay(d.policy, d.tries, rand.Float64())
}

// Reset begins with the first delay again.
func (d *Delays) Reset() { d.tries = 0 }

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

// Poll calls fn until it is done or fails, with delays from first to most in between. It returns fn's error, or ctx's
// error if ctx ends first.
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
