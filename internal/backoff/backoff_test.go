package backoff

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
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
		if err := Poll(ctx, time.Millisecond, time.Second, after(1<<30, nil)); !errors.Is(err, context.DeadlineExceeded) || calls < 60 {
			t.Errorf("ended: %v after %d calls", err, calls)
		}
	})
}
