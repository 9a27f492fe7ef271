package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

func TestZeroPolicyMeansTheDefaults(t *testing.T) {
	want := projection.RetryPolicy{MaxAttempts: 4, Base: time.Second, Cap: 30 * time.Second, Factor: 2, Jitter: 0.2}
	got := Policy{}.WithDefaults()
	if got.Retry != want || got.MaxFailureShare != 0.5 || got.MaxParked != 10_000 || got.MaxBlocked != 100_000 {
		t.Errorf("%+v", got)
	}
	if again := got.WithDefaults(); again.Retry != want || again.Replay != got.Replay {
		t.Errorf("defaults change %+v to %+v", got, again)
	}
	given := projection.RetryPolicy{MaxAttempts: 7, Base: time.Minute, Factor: 1, Jitter: 1}
	want = projection.RetryPolicy{MaxAttempts: 7, Base: time.Minute, Cap: time.Minute, Factor: 1, Jitter: 1}
	if got := (Policy{Retry: given}).WithDefaults().Retry; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	without := Policy{Retry: projection.RetryPolicy{Jitter: projection.None}}.WithDefaults()
	if without.Retry.Jitter != 0 {
		t.Errorf("%+v", without.Retry)
	}
}

func TestInvalidPolicyIsRefusedByField(t *testing.T) {
	retry := func(p projection.RetryPolicy) Policy { return Policy{Retry: p} }
	replay := func(p projection.ReplayPolicy) Policy { return Policy{Replay: p} }
	for want, p := range map[string]Policy{
		"": {},
		"Retry.MaxAttempts must not be negative: -1": retry(projection.RetryPolicy{
			MaxAttempts: -1,
		}),
		"Retry.Base must not be negative: -1ns": retry(projection.RetryPolicy{Base: -1}),
		"Retry.Cap (1ms) must be at least Projection.Retry.Base (1s)": retry(projection.RetryPolicy{
			Base: time.Second, Cap: time.Millisecond,
		}),
		"Retry.Cap (-1ns) must be at least Projection.Retry.Base (1s)": retry(projection.RetryPolicy{Cap: -1}),
		"Retry.Factor must be at least 1: 0.5": retry(projection.RetryPolicy{
			Factor: 0.5,
		}),
		"Retry.Jitter must be from 0 to 1: 1.5": retry(projection.RetryPolicy{
			Jitter: 1.5,
		}),
		"Retry.Jitter must be from 0 to 1: -2": retry(projection.RetryPolicy{Jitter: -2}),
		"Replay.MaxReplays must not be negative: -2": replay(projection.ReplayPolicy{
			MaxReplays: -2,
		}),
		"MaxFailureShare must not be negative: -0.5": {MaxFailureShare: -0.5},
		"MaxParked must not be negative: -2":         {MaxParked: -2},
		"MaxBlocked must not be negative: -2":        {MaxBlocked: -2},
		"Replay.Interval must not be negative: -1ns": replay(projection.ReplayPolicy{
			Interval: -1,
		}),
		"Replay.Interval must be at least 10ms: 1ms": replay(projection.ReplayPolicy{
			Interval: time.Millisecond,
		}),
		"Replay.Cap (1s) must be at least Projection.Replay.Interval (1m0s)": replay(projection.ReplayPolicy{
			Interval: time.Minute, Cap: time.Second,
		}),
		"Replay.Factor must be from 1 to 100: 101": replay(projection.ReplayPolicy{
			Factor: 101,
		}),
		`Replay.Error "a\x00b" contains a NUL`: replay(projection.ReplayPolicy{
			Error: "a\x00b",
		}),
		"OnFailure must be an action: 99":        {OnFailure: 99},
		"MaxFailureShare must be at most 1: 1.5": {MaxFailureShare: 1.5},
	} {
		err := p.WithDefaults().Validate()
		if (want == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "Projection."+want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

func isOutage(error) bool { return true }

func TestInvalidBreakerPolicyIsRefusedByField(t *testing.T) {
	for field, p := range map[string]projection.BreakerPolicy{
		"Breaker.IsOutage": {Failures: 3}, "Projection.Breaker.IsOutage": {Window: time.Second},
		"Breaker.IsOutage must be": {OpenFor: time.Second},
		"Breaker.Failures":         {IsOutage: isOutage, Failures: -1},
		"Breaker.Window":           {IsOutage: isOutage, Window: -1},
		"Breaker.OpenFor":          {IsOutage: isOutage, OpenFor: -1},
	} {
		if err := ValidateBreaker(BreakerDefaults(p)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, p := range []projection.BreakerPolicy{{}, {IsOutage: isOutage}} {
		if err := ValidateBreaker(BreakerDefaults(p)); err != nil {
			t.Error(err)
		}
	}
	if p := (BreakerDefaults(projection.BreakerPolicy{IsOutage: isOutage})); p.Failures != 5 ||
		p.Window != time.Minute || p.OpenFor != 30*time.Second {
		t.Errorf("defaults are %d, %v, %v", p.Failures, p.Window, p.OpenFor)
	}
}

func TestZeroLimitsOfFaultsAreTheDefaults(t *testing.T) {
	want := faults.Limits{Faults: 10, Over: time.Minute, MissingObject: 5 * time.Minute}
	if got := (faults.Limits{}).WithDefaults(); got != want {
		t.Errorf("%+v", got)
	}
	given := faults.Limits{Faults: 1, Over: 2, MissingObject: -1}
	if got := given.WithDefaults(); got != given {
		t.Errorf("%+v", got)
	}
}

func TestReplayDefaults(t *testing.T) {
	want := projection.ReplayPolicy{MaxReplays: 10, Factor: 2, Cap: time.Hour}
	if got := (Policy{}).WithDefaults().Replay; got != want {
		t.Errorf("%+v", got)
	}
	given := projection.ReplayPolicy{Interval: 2 * time.Hour, MaxReplays: -1, Factor: 3}
	want = projection.ReplayPolicy{Interval: 2 * time.Hour, MaxReplays: -1, Factor: 3, Cap: 2 * time.Hour}
	if got := (Policy{Replay: given}).WithDefaults().Replay; got != want {
		t.Errorf("%+v", got)
	}
}

func TestPolicyAtItsBoundsIsValid(t *testing.T) {
	const least = 10 * time.Millisecond
	for _, p := range []Policy{
		{
			MaxFailureShare: 1, Retry: projection.RetryPolicy{Factor: 1, Jitter: 1},
			Replay: projection.ReplayPolicy{Factor: 1},
		},
		{
			Retry:  projection.RetryPolicy{Base: least, Cap: least, Factor: 1},
			Replay: projection.ReplayPolicy{Interval: least, Cap: least, Factor: 100},
		},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := ValidateBreaker(projection.BreakerPolicy{IsOutage: isOutage}); err != nil {
		t.Error(err)
	}
}
