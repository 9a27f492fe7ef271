package backoff

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDelaysDoubleUpToTheLongestForEver(t *testing.T) {
	const first, most = 10 * time.Millisecond, 100 * time.Millisecond
	d := New(first, most)
	for range 2 {
		for i, want := range []time.Duration{first, 2 * first, 4 * first, 8 * first} {
			if got := d.Next(); got < want*(100-100*jitter)/100 || got > min(most, want*(100+100*jitter)/100) {
				t.Errorf("delay %d is %v, want about %v", i, got, want)
			}
		}
		for range 1000 {
			if got := d.Next(); got < most*(100-100*jitter)/100 || got > most {
				t.Fatalf("a later delay is %v, want about %v", got, most)
			}
		}
		d.Reset()
	}
}

func TestPollCallsUntilItIsDoneOrFailsOrItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := 0
		after := func(n int, err error) func() (bool, error) {
			calls = 0
			return func() (bool, error) {
				calls++
				if calls < n {
					return false, nil
				}
				return err == nil, err
			}
		}
		if err := Poll(ctx, time.Millisecond, time.Second, after(5, nil)); err != nil || calls != 5 {
			t.Errorf("done: %v after %d calls", err, calls)
		}
		if err := Poll(ctx, time.Millisecond, time.Second, after(5, io.EOF)); err != io.EOF || calls != 5 {
			t.Errorf("failed: %v after %d calls", err, calls)
		}
		if err := Poll(ctx, time.Millisecond, time.Second, after(1<<30, nil)); !errors.Is(err,
			context.DeadlineExceeded) || calls < 60 {
			t.Errorf("ended: %v after %d calls", err, calls)
		}
	})
}

func TestRetryDelayStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := projection.RetryPolicy{
			Base:   time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)).Draw(t, "base")),
			Factor: rapid.Float64Range(1, 10).Draw(t, "factor"), Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		p.Cap = p.Base + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "cap"))
		attempt := rapid.OneOf(rapid.IntRange(1, 64), rapid.Int()).Filter(func(i int) bool { return i > 0 }).Draw(t,
			"attempt")
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
		if low, high := min(most*(1-p.Jitter), float64(p.Cap)), most*(1+p.Jitter); float64(delay) < low*0.999-10 ||
			float64(delay) > high*1.001+10 {
			t.Fatalf("%v after attempt %d of %+v, want from %v to %v", delay, attempt, p, time.Duration(low),
				time.Duration(high))
		}
	})
}

func TestRetryDelaysDoubleAndDiffer(t *testing.T) {
	p := engine.Policy{Retry: projection.RetryPolicy{Jitter: -1}}.WithDefaults().Retry
	for attempt, want := range []time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second,
		5: 16 * time.Second, 6: 30 * time.Second, 60: 30 * time.Second} {
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

func TestJitterIsSymmetric(t *testing.T) {
	p := projection.RetryPolicy{Base: time.Second, Cap: time.Minute, Factor: 2, Jitter: 0.5}
	for random, want := range map[float64]time.Duration{0: 500 * time.Millisecond, 0.5: time.Second,
		1: 1500 * time.Millisecond} {
		if got := Delay(p, 1, random); got != want {
			t.Errorf("%v at %v, want %v", got, random, want)
		}
	}
}
