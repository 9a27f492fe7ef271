package tests_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// However often somebody cuts the wait for the next attempt short, the attempts after that are as far apart as before.
func TestResumeDoesNotMultiplyAttempts(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		const delay, resumes, after = 250 * time.Millisecond, 5, 6
		b := kind.New(t)
		b.Append("a", 1)
		var mu sync.Mutex
		var tries []time.Time
		tried := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(tries)
		}
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Retry: projection.RetryPolicy{Base: delay, Cap: delay, Factor: 1, Jitter: -1},
			Handler: b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error {
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Now())
				return projection.Retry(kit.ErrOnPurpose)
			})})
		b.Start(rt)
		b.Eventually("it fails", func() bool { return tried() > 1 })
		for range resumes {
			n := tried()
			b.Resume(rt, "p")
			b.Eventually("it is tried again", func() bool { return tried() > n })
			b.Is(rt, "p", millrace.StateWaiting)
		}
		first := tried()
		b.Eventually("it is tried some more", func() bool { return tried() >= first+after })
		mu.Lock()
		defer mu.Unlock()
		for i := first + 1; i < first+after; i++ {
			if pause := tries[i].Sub(tries[i-1]); pause < delay {
				t.Errorf("try %d came %v after the one before it, less than %v", i, pause, delay)
			}
		}
	})
}

// A projection that has stopped at an event says so, whatever a replay meets meanwhile.
func TestStoppedProjectionSaysSoWhileAReplayMeetsAnOutage(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		bad := b.Append("a", 2).Positions[0]
		var down atomic.Bool
		var replays atomic.Int64
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Breaker: projection.BreakerPolicy{IsOutage: isDown, Failures: 1, OpenFor: time.Hour},
			Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
				switch {
				case down.Load():
					replays.Add(1)
					return errDown
				case e.Position == bad:
					return projection.Park(kit.ErrOnPurpose)
				}
				return projection.Stop(kit.ErrOnPurpose)
			})})
		b.Start(rt)
		b.Is(rt, "p", millrace.StateFailed)
		down.Store(true)
		replay, cancel := context.WithCancel(b.Ctx)
		defer cancel()
		given := make(chan error, 1)
		go func() {
			_, err := b.Store.DeadLetters(projection.ID{Name: "p"}).Replay(replay, projection.DeadLetterFilter{All: true}, 1)
			given <- err
		}()
		b.Eventually("the replay is tried again and again", func() bool { return replays.Load() > 2 })
		if err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p"}, bad+1); !errors.Is(err, projection.ErrFailed) {
			t.Errorf("waiting for it: %v", err)
		}
		if p := b.Status(rt, "p"); p.State != millrace.StateFailed {
			t.Errorf("status: %+v", p)
		}
		cancel()
		if err := <-given; !errors.Is(err, projection.ErrCommandPending) {
			t.Error(err)
		}
	})
}

// A replay that meets an outage again and again is made less and less often, however often its command is polled.
func TestReplayInVainIsMadeLessAndLessOften(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 1)
		var down atomic.Bool
		var mu sync.Mutex
		var tries []time.Time
		rt := b.Runtime(millrace.Config{ReconcileInterval: 50 * time.Millisecond}, millrace.Projection{Name: "p", Breaker: projection.BreakerPolicy{IsOutage: isDown},
			Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
				if !down.Load() {
					return projection.Park(kit.ErrOnPurpose)
				}
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Now())
				return errDown
			})})
		b.Start(rt)
		b.Eventually("it is parked", func() bool { return b.Status(rt, "p").Parked == 1 })
		down.Store(true)
		letters := b.Store.DeadLetters(projection.ID{Name: "p"})
		short, cancel := context.WithTimeout(b.Ctx, 6*time.Second)
		defer cancel()
		o, err := letters.Replay(short, projection.DeadLetterFilter{All: true}, 1)
		if !errors.Is(err, projection.ErrCommandPending) {
			t.Fatalf("%+v, %v", o, err)
		}
		mu.Lock()
		for i := 1; i < len(tries); i++ {
			if pause, least := tries[i].Sub(tries[i-1]), 100*time.Millisecond<<(i-1); pause < least {
				t.Errorf("try %d came %v after the one before it, less than %v", i, pause, least)
			}
		}
		mu.Unlock()
		b.Must(letters.Cancel(b.Ctx, o.Command))
		if err := letters.Cancel(b.Ctx, 77_777); !errors.Is(err, projection.ErrCommandNotFound) {
			t.Error(err)
		}
		if letter := b.Letters("p"); len(letter) != 1 || letter[0].Attempts != 1 {
			t.Errorf("letters: %+v", letter)
		}
	})
}
