package projection

import "time"

// Values that turn a setting off whose zero value means the default.
const (
	// NoLimit means no limit, in ReplayPolicy.MaxReplays and in MaxParked, MaxBlocked and MaxFailureShare of a
	// millrace.Projection.
	NoLimit = -1
	// None means no jitter in RetryPolicy.Jitter, and no wait in MissingObjectTimeout of a millrace.Projection.
	None = -1
)

// RetryPolicy sets when a failing event is tried again. The zero value means the defaults.
type RetryPolicy struct {
	// MaxAttempts is how often an event is tried, the first time included, before the projection's OnFailure applies. 1
	// means that it is not tried again. No event is tried zero times, so 0 means the default, which is 4. An event is
	// tried without limit if OnFailure is ActionRetry.
	MaxAttempts int
	// Base is the delay before the second attempt. Default 1 s.
	Base time.Duration
	// Cap is the longest delay, jitter included. At most 365 days. Default 30 s, or Base if that is longer.
	Cap time.Duration
	// Factor multiplies the delay after each attempt, at least 1. Default 2.
	Factor float64
	// Jitter is the share of the delay by which it may be shorter or longer, at most 1. Default 0.2. None turns it off.
	Jitter float64
}
