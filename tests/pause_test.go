package tests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Pause, from another process, returns when the batch under way has ended and the lease is free, and not before.
func TestPauseReturnsWhenNothingOfTheProjectionRuns(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		slow := newBlockable()
		b.Start(b.Another(millrace.Config{}, append(b.Recorders("other"), millrace.Projection{Name: "slow", Handler: b.Store.Batch(slow.handle)})...))
		remote := b.Runtime(millrace.Config{}, b.Recorders("none")...)
		id := millrace.ProjectionID{Name: "slow"}
		b.Eventually("it is claimed", func() bool { return b.Status(remote, "slow").Owner != "" })
		slow.armed.Store(true)
		b.Append("a", 5)
		<-slow.entered

		short, cancel := context.WithTimeout(b.Ctx, 300*time.Millisecond)
		defer cancel()
		if err := remote.Pause(short, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a pause during a batch: %v", err)
		}
		if p := b.Status(remote, "slow"); p.Owner == "" || p.Checkpoint != 0 {
			t.Errorf("%+v", p)
		}
		paused := make(chan error, 1)
		go func() { paused <- remote.Pause(b.Ctx, id) }()
		close(slow.release)
		b.Must(<-paused)
		if p := b.Status(remote, "slow"); p.State != millrace.StatePaused || p.Owner != "" || p.Checkpoint != 5 {
			t.Errorf("%+v", p)
		}
		last := b.Append("a", 5).Positions[4]
		b.Reaches(remote, "other", last)
		if err := remote.Pause(b.Ctx, id); err != nil { // it is paused already
			t.Fatal(err)
		}
		if n := len(slow.entered); n != 0 {
			t.Errorf("the handler was called %d times while the projection was paused", n)
		}
		b.Resume(remote, "slow")
		b.Reaches(remote, "slow", last)
		b.Verify("slow")
	}, kit.SeveralNodes)
}

func TestPauseThatIsTakenBackSaysSo(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		slow := newBlockable()
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "slow", Handler: b.Store.Batch(slow.handle)})
		slow.armed.Store(true)
		last := b.Append("a", 5).Positions[4]
		<-slow.entered
		id := millrace.ProjectionID{Name: "slow"}
		paused := make(chan error, 1)
		go func() { paused <- rt.Pause(b.Ctx, id) }()
		b.Is(b.Runtime(millrace.Config{}), "slow", millrace.StatePaused)
		b.Resume(rt, "slow")
		if err := <-paused; !errors.Is(err, projection.ErrResumed) {
			t.Errorf("the pause ended with %v", err)
		}
		close(slow.release)
		b.Reaches(rt, "slow", last)
		b.Verify("slow")
	})
}

// A FailureHandler is user code like a handler: Pause cancels its context, and returns when it has ended.
func TestPauseWaitsForTheFailureHandler(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		entered, canceled, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
		rt := b.Runtime(millrace.Config{}, millrace.Projection{
			Name:    "p",
			Handler: b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error { return errors.New("on purpose") }),
			FailureHandler: func(ctx context.Context, _ projection.Failure) projection.Action {
				close(entered)
				<-ctx.Done()
				close(canceled)
				<-release
				return projection.ActionPark
			},
		})
		b.Start(rt)
		b.Append("a", 1)
		<-entered
		paused := make(chan error, 1)
		go func() { paused <- rt.Pause(b.Ctx, millrace.ProjectionID{Name: "p"}) }()
		<-canceled
		select {
		case err := <-paused:
			close(release)
			t.Fatalf("Pause returned while the FailureHandler ran: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		close(release)
		b.Must(<-paused)
		if p := b.Status(rt, "p"); p.Owner != "" || p.Parked != 0 || p.Checkpoint != 0 {
			t.Errorf("%+v", p)
		}
	})
}
