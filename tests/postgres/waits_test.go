package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// However often somebody cuts the wait for the next attempt short, the attempts after that are as far apart as before.
func TestResumeDoesNotMultiplyAttempts(t *testing.T) {
	t.Parallel()
	const delay, resumes, after = 250 * time.Millisecond, 5, 6
	b := setup(t, pgstore.Options{})
	b.append("a", 1)
	var mu sync.Mutex
	var tries []time.Time
	tried := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(tries)
	}
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Retry: projection.RetryPolicy{Base: delay, Cap: delay, Factor: 1, Jitter: -1},
		Handler: pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error {
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, time.Now())
			return projection.Retry(errOnPurpose)
		})})
	b.start(rt)
	id := millrace.ProjectionID{Name: "p"}
	b.eventually("it fails", func() bool { return tried() > 1 })
	for range resumes {
		n := tried()
		if err := rt.Resume(b.ctx, id); err != nil {
			t.Fatal(err)
		}
		b.eventually("it is tried again", func() bool { return tried() > n })
		b.eventually("it waits again", func() bool { return b.status(rt, "p").State == millrace.StateWaiting })
	}
	first := tried()
	b.eventually("it is tried some more", func() bool { return tried() >= first+after })
	mu.Lock()
	defer mu.Unlock()
	for i := first + 1; i < first+after; i++ {
		if pause := tries[i].Sub(tries[i-1]); pause < delay {
			t.Errorf("try %d came %v after the one before it, less than %v", i, pause, delay)
		}
	}
}

// What is to be done with dead letters does not wait for an event that waits for its next attempt, an hour maybe; also
// where the session was lost since, and with it what told of the command.
func TestLettersAreReplayedWhileAnEventWaitsThoughTheSessionWasLost(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	bad := b.append("a", 1).Positions[0]
	b.append("b", 1)
	var mended atomic.Bool
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Retry: projection.RetryPolicy{Base: time.Hour, Cap: time.Hour},
		Handler: pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
			switch {
			case e.Position > bad:
				return projection.Retry(errOnPurpose)
			case mended.Load():
				return nil
			}
			return projection.Park(errOnPurpose)
		})})
	b.start(rt)
	b.eventually("the second event waits", func() bool { p := b.status(rt, "p"); return p.State == millrace.StateWaiting && p.Attempts == 1 })
	mended.Store(true)
	lost := time.Now()
	b.exec(`select pg_terminate_backend(a.pid) from pg_stat_activity a join pg_locks l using (pid)
		where a.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 1`)
	b.eventually("the session stands again", func() bool {
		status, err := rt.Status(b.ctx)
		return err == nil && status.Session.Connected && status.Session.Since.After(lost)
	})
	if o, err := b.store.DeadLetters(projection.ID{Name: "p"}).Replay(b.ctx, projection.DeadLetterFilter{All: true}, 10); err != nil || o.Done != 1 {
		t.Errorf("replayed %+v, %v", o, err)
	}
	if p := b.status(rt, "p"); p.State != millrace.StateWaiting || p.Attempts != 1 || p.Parked != 0 {
		t.Errorf("status: %+v", p)
	}
}

// A projection that has stopped at an event says so, whatever a replay meets meanwhile.
func TestStoppedProjectionSaysSoWhileAReplayMeetsAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	bad := b.append("a", 2).Positions[0]
	var down atomic.Bool
	var replays atomic.Int64
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Breaker: projection.BreakerPolicy{IsOutage: isDown, Failures: 1, OpenFor: time.Hour},
		Handler: pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
			switch {
			case down.Load():
				replays.Add(1)
				return errDown
			case e.Position == bad:
				return projection.Park(errOnPurpose)
			}
			return projection.Stop(errOnPurpose)
		})})
	b.start(rt)
	b.eventually("it has stopped", func() bool { return b.status(rt, "p").State == millrace.StateFailed })
	down.Store(true)
	replay, cancel := context.WithCancel(b.ctx)
	defer cancel()
	given := make(chan error, 1)
	go func() {
		_, err := b.store.DeadLetters(projection.ID{Name: "p"}).Replay(replay, projection.DeadLetterFilter{All: true}, 1)
		given <- err
	}()
	b.eventually("the replay is tried again and again", func() bool { return replays.Load() > 2 })
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, bad+1); !errors.Is(err, projection.ErrFailed) {
		t.Errorf("waiting for it: %v", err)
	}
	if p := b.status(rt, "p"); p.State != millrace.StateFailed {
		t.Errorf("status: %+v", p)
	}
	cancel()
	if err := <-given; !errors.Is(err, projection.ErrCommandPending) {
		t.Error(err)
	}
}

// A replay that comes to nothing again and again, through no fault of its event as it seems, is made less and less often,
// whatever is looked for meanwhile.
func TestReplayInVainIsMadeLessAndLessOften(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.append("a", 1)
	var down atomic.Bool
	var mu sync.Mutex
	var tries []time.Time
	rt := b.runtime(millrace.Config{ReconcileInterval: 50 * time.Millisecond}, millrace.Projection{Name: "p", Breaker: projection.BreakerPolicy{IsOutage: isDown},
		Handler: pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
			if !down.Load() {
				return projection.Park(errOnPurpose)
			}
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, time.Now())
			return errDown
		})})
	b.start(rt)
	b.eventually("it is parked", func() bool { return b.status(rt, "p").Parked == 1 })
	down.Store(true)
	letters := b.store.DeadLetters(projection.ID{Name: "p"})
	short, cancel := context.WithTimeout(b.ctx, 6*time.Second)
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
	if err := letters.Cancel(b.ctx, o.Command); err != nil {
		t.Fatal(err)
	}
	if err := letters.Cancel(b.ctx, 77_777); !errors.Is(err, projection.ErrCommandNotFound) {
		t.Error(err)
	}
	if letter := b.letters("p"); len(letter) != 1 || letter[0].Attempts != 1 {
		t.Errorf("letters: %+v", letter)
	}
}
