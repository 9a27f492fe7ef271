package engine

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// longest is the longest duration of a setting. The sums and multiples of durations that are computed from settings do
// not overflow.
const longest = 365 * 24 * time.Hour

// Defaults that runtimes share with what works without one.
const (
	DefaultLeaseDuration = 5 * time.Second
	// DefaultBatch is how many events a batch has at most.
	DefaultBatch = 500
)

// ValidDuration returns an error that names a setting if its duration is too long.
func ValidDuration(name string, d time.Duration) error {
	if d > longest {
		return fmt.Errorf("%s must be at most %v: %v", name, longest, d)
	}
	return nil
}

// WithDefaults returns p with the defaults in place of zeros.
func (p Policy) WithDefaults() Policy {
	p.Retry, p.Replay = retryDefaults(p.Retry), replayDefaults(p.Replay)
	if p.MaxFailureShare == 0 {
		p.MaxFailureShare = 0.5
	}
	if p.MaxParked == 0 {
		p.MaxParked = 10_000
	}
	switch {
	case p.MaxBlocked != 0:
	case p.MaxParked == projection.NoLimit:
		p.MaxBlocked = projection.NoLimit
	default:
		p.MaxBlocked = max(100_000, p.MaxParked)
	}
	return p
}

func retryDefaults(p projection.RetryPolicy) projection.RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 4
	}
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
	if p.Jitter == projection.None {
		p.Jitter = 0
	}
	return p
}

func replayDefaults(p projection.ReplayPolicy) projection.ReplayPolicy {
	if p.MaxReplays == 0 {
		p.MaxReplays = 10
	}
	if p.Factor == 0 {
		p.Factor = 2
	}
	if p.Cap == 0 {
		p.Cap = max(time.Hour, p.Interval)
	}
	return p
}

// BreakerDefaults returns p with the defaults in place of zeros. A policy without IsOutage is no breaker and is
// returned as it is.
func BreakerDefaults(p projection.BreakerPolicy) projection.BreakerPolicy {
	if p.IsOutage == nil {
		return p
	}
	if p.Failures == 0 {
		p.Failures = 5
	}
	if p.Window == 0 {
		p.Window = time.Minute
	}
	if p.OpenFor == 0 {
		p.OpenFor = 30 * time.Second
	}
	return p
}

// Validate returns an error for the first invalid field of a policy whose defaults are set. It names the fields as
// those of a millrace.Projection.
func (p Policy) Validate() error {
	retry, replay := p.Retry, p.Replay
	switch {
	case !KnownAction(p.OnFailure):
		return fmt.Errorf("Projection.OnFailure must be an action: %d", int(p.OnFailure))
	case !(p.MaxFailureShare <= 1):
		return fmt.Errorf("Projection.MaxFailureShare must be at most 1: %v", p.MaxFailureShare)
	case p.MaxFailureShare < 0 && p.MaxFailureShare != projection.NoLimit:
		return fmt.Errorf("Projection.MaxFailureShare must not be negative: %v", p.MaxFailureShare)
	case p.MaxParked < 0 && p.MaxParked != projection.NoLimit:
		return fmt.Errorf("Projection.MaxParked must not be negative: %d", p.MaxParked)
	case p.MaxBlocked < 0 && p.MaxBlocked != projection.NoLimit:
		return fmt.Errorf("Projection.MaxBlocked must not be negative: %d", p.MaxBlocked)
	case retry.MaxAttempts < 0:
		return fmt.Errorf("Projection.Retry.MaxAttempts must not be negative: %d", retry.MaxAttempts)
	case retry.Base < 0:
		return fmt.Errorf("Projection.Retry.Base must not be negative: %v", retry.Base)
	case retry.Cap < retry.Base:
		return fmt.Errorf("Projection.Retry.Cap (%v) must be at least Projection.Retry.Base (%v)", retry.Cap,
			retry.Base)
	case !(retry.Factor >= 1):
		return fmt.Errorf("Projection.Retry.Factor must be at least 1: %v", retry.Factor)
	case !(retry.Jitter >= 0 && retry.Jitter <= 1):
		return fmt.Errorf("Projection.Retry.Jitter must be from 0 to 1: %v", retry.Jitter)
	case replay.Interval < 0:
		return fmt.Errorf("Projection.Replay.Interval must not be negative: %v", replay.Interval)
	case replay.Interval > 0 && replay.Interval < 10*time.Millisecond:
		return fmt.Errorf("Projection.Replay.Interval must be at least 10ms: %v", replay.Interval)
	case replay.Cap < replay.Interval:
		return fmt.Errorf("Projection.Replay.Cap (%v) must be at least Projection.Replay.Interval (%v)", replay.Cap,
			replay.Interval)
	case !(replay.Factor >= 1 && replay.Factor <= 100):
		return fmt.Errorf("Projection.Replay.Factor must be from 1 to 100: %v", replay.Factor)
	case replay.MaxReplays < 0 && replay.MaxReplays != projection.NoLimit:
		return fmt.Errorf("Projection.Replay.MaxReplays must not be negative: %d", replay.MaxReplays)
	}
	return cmp.Or(ValidDuration("Projection.Retry.Cap", retry.Cap), ValidDuration("Projection.Replay.Cap", replay.Cap),
		valid.Text("Projection.Replay.Error", replay.Error))
}

// ValidateBreaker returns an error for the first invalid field of a breaker whose defaults are set.
func ValidateBreaker(p projection.BreakerPolicy) error {
	switch {
	case p.IsOutage == nil && (p.Failures != 0 || p.Window != 0 || p.OpenFor != 0):
		return errors.New("Projection.Breaker.IsOutage must be set if another field of Breaker is set")
	case p.Failures < 0:
		return fmt.Errorf("Projection.Breaker.Failures must not be negative: %d", p.Failures)
	case p.Window < 0:
		return fmt.Errorf("Projection.Breaker.Window must not be negative: %v", p.Window)
	case p.OpenFor < 0:
		return fmt.Errorf("Projection.Breaker.OpenFor must not be negative: %v", p.OpenFor)
	}
	return ValidDuration("Projection.Breaker.OpenFor", p.OpenFor)
}

// KnownAction reports whether a is one of the actions.
func KnownAction(a projection.Action) bool {
	return a >= projection.ActionParkStream && a <= projection.ActionPark
}

// FullID returns id with projection.DefaultTenant in place of an empty tenant.
func FullID(id projection.ID) projection.ID {
	if id.Tenant == "" {
		id.Tenant = projection.DefaultTenant
	}
	return id
}

// Storable returns an error if no store can have a tenant or a projection of these names. A database would refuse each
// question about them, as it does in an outage.
func Storable(id projection.ID) error {
	if err := valid.Text("tenant", id.Tenant); err != nil {
		return fmt.Errorf("%w: %w", tenancy.ErrUnknown, err)
	}
	if err := valid.Text("projection", id.Name); err != nil {
		return fmt.Errorf("%w: %w", projection.ErrUnknownProjection, err)
	}
	return nil
}

// FullTenant returns name, or projection.DefaultTenant if it is empty.
func FullTenant(name string) string { return FullID(projection.ID{Tenant: name}).Tenant }

// CompareIDs orders IDs by tenant, name and partition, and texts by their bytes, as stores order rows.
func CompareIDs(a, b projection.ID) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
}
