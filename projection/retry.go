package projection

import (
	"fmt"
	"time"
)

// RetryPolicy says when a failing event is tried again. The zero value means the defaults.
type RetryPolicy struct {
	// MaxRetries is how often an event is tried again after its first failure, before the projection's OnFailure says what
	// becomes of it. Default 3; negative means never.
	MaxRetries int
	// Base is the delay before the first retry. Default 1 s.
	Base time.Duration
	// Cap is the longest delay, jitter included. Default 30 s.
	Cap time.Duration
	// Factor is what the delay grows by from retry to retry. Default 2; at least 1.
	Factor float64
	// Jitter is the share of the delay by which it may be shorter or longer, from 0 to 1. Default 0.2; negative means
	// none.
	Jitter float64
}

// WithDefaults returns p with the defaults in place of zeros.
func (p RetryPolicy) WithDefaults() RetryPolicy {
	if p.MaxRetries == 0 {
		p.MaxRetries = 3
	}
	p.MaxRetries = max(p.MaxRetries, -1)
	if p.Base == 0 {
		p.Base = time.Second
	}
	if p.Cap == 0 {
		p.Cap = max(30*time.Second, p.Base)
	}
	if p.Factor == 0 {
		p.Factor = 2
	}
	if p.Jitter == 0 {
		p.Jitter = 0.2
	}
	p.Jitter = max(p.Jitter, 0)
	return p
}

// Validate returns an error about the first invalid field of a policy that has its defaults.
func (p RetryPolicy) Validate() error {
	switch {
	case p.Base < 0:
		return fmt.Errorf("Retry.Base must not be negative: %v", p.Base)
	case p.Cap < p.Base:
		return fmt.Errorf("Retry.Cap (%v) must be at least Retry.Base (%v)", p.Cap, p.Base)
	case !(p.Factor >= 1):
		return fmt.Errorf("Retry.Factor must be at least 1: %v", p.Factor)
	case !(p.Jitter <= 1):
		return fmt.Errorf("Retry.Jitter must be at most 1: %v", p.Jitter)
	}
	return nil
}

// Exhausted tells whether an event that failed that many times is not tried again.
func (p RetryPolicy) Exhausted(attempts int) bool { return attempts > max(p.MaxRetries, 0) }
