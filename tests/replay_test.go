package tests_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// asking is a projection "p" whose handler requests actions at some events. It is called for each event.
type asking struct {
	*kit.Bundle
	id      millrace.ProjectionID
	letters projection.DeadLetters
	rt      *millrace.Runtime

	mu      sync.Mutex
	asks    map[int64]func(error) error
	applied []int64
	calls   int // at events with a request
}

// inBothWays runs a test with a handler in a transaction and with one that delivers.
func inBothWays(t *testing.T, p millrace.Projection, test func(t *testing.T, a *asking)) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for _, way := range []string{"in a transaction", "delivered"} {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				a := &asking{
					Bundle: kind.New(t), id: millrace.ProjectionID{Name: "p"}, asks: make(map[int64]func(error) error),
				}
				a.letters = a.Store.DeadLetters(a.id)
				p := p
				p.Name = "p"
				if way == "delivered" {
					p.Handler = millrace.DeliverEach(func(_ context.Context, e millrace.Delivered) error {
						return a.handle(e.Position)
					})
				} else {
					p.Handler = a.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
						return a.handle(e.Position)
					})
				}
				a.rt = a.Running(millrace.Config{}, p)
				test(t, a)
			})
		}
	})
}

func (a *asking) handle(position int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ask := a.asks[position]; ask != nil {
		a.calls++
		return ask(kit.ErrOnPurpose)
	}
	a.applied = append(a.applied, position)
	return nil
}

// ask makes the handler request an action at these events, or none if ask is nil.
func (a *asking) ask(ask func(error) error, positions ...int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range positions {
		a.asks[p] = ask
	}
}

// parks appends events to the stream a, and makes the handler request to park them.
func (a *asking) parks(ask func(error) error, n int) (positions []int64) {
	a.T.Helper()
	a.mu.Lock() // the handler waits
	positions = a.Append("a", n).Positions
	for _, p := range positions {
		a.asks[p] = ask
	}
	a.mu.Unlock()
	a.Reaches(a.rt, "p", positions[n-1])
	a.ask(nil, positions...)
	return positions
}

func (a *asking) mustReplay(want projection.CommandResult) {
	a.T.Helper()
	o, err := a.letters.Replay(a.Ctx, projection.DeadLetterFilter{All: true}, 100)
	o.Command = 0
	if err != nil || o != want {
		a.T.Errorf("replayed %+v, %v; want %+v", o, err, want)
	}
}

// mustHave checks how many events of the stream a are parked, applied and skipped.
func (a *asking) mustHave(parked, applied, skipped int) {
	a.T.Helper()
	s := a.Status(a.rt, "p")
	letters := a.DeadLettersOf("p")
	a.mu.Lock()
	defer a.mu.Unlock()
	if int(s.Parked) != parked || len(letters) != parked || len(a.applied) != applied || int(s.Skipped) != skipped {
		a.T.Errorf("%d letters, applied %v, %+v; want %d parked, %d applied, %d skipped", len(letters), a.applied, s,
			parked, applied, skipped)
	}
	for _, l := range letters {
		if l.State != projection.DeadLetterParked {
			a.T.Errorf("%+v", l)
		}
	}
}

func TestSkipOnAReplayDiscardsItsEvent(t *testing.T) {
	inBothWays(t, millrace.Projection{Retry: kit.Soon(0)}, func(t *testing.T, a *asking) {
		// A stream continues after the skipped event.
		positions := a.parks(projection.ParkStream, 3)
		a.ask(projection.Skip, positions[0])
		a.mustReplay(projection.CommandResult{Done: 3})
		a.mustHave(0, 2, 1)
		all, err := a.letters.List(a.Ctx,
			projection.DeadLetterPage{States: []projection.DeadLetterState{projection.DeadLetterDiscarded}})
		if err != nil || len(all) != 1 || all[0].Position != positions[0] ||
			!strings.Contains(all[0].Error, "on purpose") || all[0].Attempts != 2 || all[0].EndedAt.IsZero() {
			t.Errorf("%+v, %v", all, err)
		}
		// It is free after its last event.
		positions = a.parks(projection.ParkStream, 2)
		a.ask(projection.Skip, positions...)
		a.mustReplay(projection.CommandResult{Done: 2})
		a.Reaches(a.rt, "p", a.Append("a", 1).Positions[0])
		a.mustHave(0, 3, 3)
	})
}

func TestStopOnAReplayHaltsTheProjection(t *testing.T) {
	inBothWays(t, millrace.Projection{Retry: kit.Soon(0)}, func(t *testing.T, a *asking) {
		positions := a.parks(projection.Park, 3)
		a.ask(projection.Stop, positions[1])
		a.mustReplay(projection.CommandResult{Done: 1, Failed: 1}) // and the third is not tried
		a.mustHave(2, 1, 0)
		s := a.Status(a.rt, "p")
		if s.State != admin.StateFailed || !strings.Contains(s.Reason, "on purpose") ||
			!strings.Contains(s.Reason, "attempt 2") {
			t.Errorf("%+v", s)
		}
		last := a.Append("b", 1).Positions[0]
		if err := a.rt.WaitFor(a.Ctx, a.id, last); !errors.Is(err, projection.ErrFailed) {
			t.Errorf("it goes on: %v", err)
		}
		if l := a.DeadLettersOf("p"); l[0].Attempts != 2 || l[0].Replays != 1 {
			t.Errorf("%+v", l)
		}
		// A command replays also while the projection is stopped. After a resume the projection continues.
		a.ask(nil, positions[1])
		a.mustReplay(projection.CommandResult{Done: 2})
		a.Must(a.rt.Resume(a.Ctx, a.id))
		a.Reaches(a.rt, "p", last)
		a.mustHave(0, 4, 0)
	})
}

func TestReplayThatRequestsAnotherActionStaysParked(t *testing.T) {
	inBothWays(t, millrace.Projection{Retry: kit.Soon(0), OnFailure: projection.ActionSkip},
		func(t *testing.T, a *asking) {
			positions := a.parks(projection.Park, 1)
			for i, ask := range []func(error) error{projection.Retry, projection.Park, projection.ParkStream,
				func(err error) error { return err }} {
				before := a.DeadLettersOf("p")[0]
				a.ask(ask, positions[0])
				a.mustReplay(projection.CommandResult{Failed: 1})
				a.mustHave(1, 0, 0)
				after := a.DeadLettersOf("p")[0]
				if after.Attempts != before.Attempts+1 || after.Replays != i+1 ||
					!after.LastFailedAt.After(before.LastFailedAt) {
					t.Errorf("it was %+v, and is %+v", before, after)
				}
			}
			// For a permanent error, the policy of the projection decides.
			a.ask(func(err error) error { return backoff.Permanent(err) }, positions[0])
			a.mustReplay(projection.CommandResult{Done: 1})
			a.mustHave(0, 0, 1)
		})
}

// However often a resume cuts the wait for the next attempt short, the later attempts are as far apart as before.
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
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
			Retry: projection.RetryPolicy{Base: delay, Cap: delay, Factor: 1, Jitter: projection.None},
			Handler: b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error {
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Now())
				return projection.Retry(kit.ErrOnPurpose)
			})})
		b.Eventually("it fails", func() bool { return tried() > 1 })
		for range resumes {
			n := tried()
			b.Resume(rt, "p")
			b.Eventually("it is tried again", func() bool { return tried() > n })
			b.Is(rt, "p", admin.StateWaiting)
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

// A projection that has stopped at an event reports that, also while a replay meets an outage.
func TestStatusShowsAStopWhileAReplayMeetsAnOutage(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		bad := b.Append("a", 2).Positions[0]
		var down atomic.Bool
		var replays atomic.Int64
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
			Breaker: projection.BreakerPolicy{IsOutage: isDown, Failures: 1, OpenFor: time.Hour},
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
		b.Is(rt, "p", admin.StateFailed)
		down.Store(true)
		replay, cancel := context.WithCancel(b.Ctx)
		defer cancel()
		given := make(chan error, 1)
		go func() {
			_, err := b.Store.DeadLetters(projection.ID{Name: "p"}).Replay(replay,
				projection.DeadLetterFilter{All: true}, 1)
			given <- err
		}()
		b.Eventually("the replay is tried again and again", func() bool { return replays.Load() > 2 })
		if err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p"}, bad+1); !errors.Is(err, projection.ErrFailed) {
			t.Errorf("waiting for it: %v", err)
		}
		if p := b.Status(rt, "p"); p.State != admin.StateFailed {
			t.Errorf("status: %+v", p)
		}
		cancel()
		if err := <-given; !errors.Is(err, projection.ErrCommandPending) {
			t.Error(err)
		}
	})
}
