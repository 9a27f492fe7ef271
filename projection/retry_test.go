package projection_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/projection"
)

func TestZeroRetryPolicyMeansTheDefaults(t *testing.T) {
	want := projection.RetryPolicy{MaxRetries: 3, Base: time.Second, Cap: 30 * time.Second, Factor: 2, Jitter: 0.2}
	if got := (projection.RetryPolicy{}).WithDefaults(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := want.WithDefaults(); got != want {
		t.Errorf("defaults change %+v to %+v", want, got)
	}
	given := projection.RetryPolicy{MaxRetries: 7, Base: time.Minute, Factor: 1, Jitter: 1}
	want = projection.RetryPolicy{MaxRetries: 7, Base: time.Minute, Cap: time.Minute, Factor: 1, Jitter: 1}
	if got := given.WithDefaults(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	never := projection.RetryPolicy{MaxRetries: -5, Jitter: -1}.WithDefaults()
	if never.MaxRetries != -1 || never.Jitter != 0 {
		t.Errorf("%+v", never)
	}
}

func TestRetryPolicyThatMakesNoSenseIsRefusedByField(t *testing.T) {
	for want, p := range map[string]projection.RetryPolicy{
		"":                                     {},
		"Retry.Base must not be negative: -1ns":               {Base: -1},
		"Retry.Cap (1ms) must be at least Retry.Base (1s)":  {Base: time.Second, Cap: time.Millisecond},
		"Retry.Cap (-1ns) must be at least Retry.Base": {Cap: -1},
		"Retry.Factor must be at least 1: 0.5":              {Factor: 0.5},
		"Retry.Jitter must be at most 1: 1.5":              {Jitter: 1.5},
	} {
		err := p.WithDefaults().Validate()
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

func TestExhaustedAfterTheFirstTryAndTheRetries(t *testing.T) {
	for _, test := range []struct{ retries, attempts int }{{3, 4}, {1, 2}, {0, 1}, {-1, 1}} {
		p := projection.RetryPolicy{MaxRetries: test.retries}
		if p.Exhausted(test.attempts-1) || !p.Exhausted(test.attempts) || !p.Exhausted(test.attempts+1) {
			t.Errorf("%d retries: not exhausted exactly from %d attempts on", test.retries, test.attempts)
		}
	}
}
