package machine

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func TestRetryDelayStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := projection.RetryPolicy{
			Base:   time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)).Draw(t, "base")),
			Factor: rapid.Float64Range(1, 10).Draw(t, "factor"), Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		p.Cap = p.Base + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "cap"))
		attempt := rapid.OneOf(rapid.IntRange(1, 64), rapid.Int()).Filter(func(i int) bool { return i > 0 }).Draw(t, "attempt")
		most := float64(p.Base)
		for range min(attempt, 64) - 1 {
			most = min(most*p.Factor, float64(p.Cap))
		}
		jitter := rapid.Float64Range(0, 1).Draw(t, "random")
		delay := Delay(p, attempt, jitter)
		if delay < 0 || delay > p.Cap {
			t.Fatalf("%v after attempt %d, cap %v", delay, attempt, p.Cap)
		}
		// Up to there the delays grow by the factor; the tolerance is for the rounding of the library.
		if low, high := min(most*(1-p.Jitter), float64(p.Cap)), most*(1+p.Jitter); float64(delay) < low*0.999-10 || float64(delay) > high*1.001+10 {
			t.Fatalf("%v after attempt %d of %+v, want from %v to %v", delay, attempt, p, time.Duration(low), time.Duration(high))
		}
	})
}

func TestRetryDelaysDoubleAndDiffer(t *testing.T) {
	p := engine.Policy{Retry: projection.RetryPolicy{Jitter: -1}}.WithDefaults().Retry
	for attempt, want := range []time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 60: 30 * time.Second} {
		if got := Delay(p, attempt, 0.7); want != 0 && got != want {
			t.Errorf("%v after attempt %d, want %v", got, attempt, want)
		}
	}
	seen := make(map[time.Duration]bool)
	for i := range 50 {
		seen[Delay(engine.Policy{}.WithDefaults().Retry, 1, float64(i)/50)] = true
	}
	if len(seen) < 10 {
		t.Errorf("only %d delays in 50 tries: all would try again at once", len(seen))
	}
}

func TestProbesOfOpenBreakersAreSpread(t *testing.T) {
	const wait = time.Minute
	seen := make(map[time.Duration]bool)
	for i := range 100 {
		delay := ProbeDelay(wait, float64(i)/100)
		if delay < wait || delay > wait+wait/5 {
			t.Errorf("a probe after %v", delay)
		}
		seen[delay] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 probes at %d instants", len(seen))
	}
}
