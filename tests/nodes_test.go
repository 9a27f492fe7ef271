package tests_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestNodesShareProjectionsAsTheyComeAndGo(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Tenants(3)
		names := []string{"p", "q", "r", "s"}
		nodes := make([]*millrace.Runtime, 3)
		stops := make([]func(), 3)
		stopFlow := b.Flow()
		for i := range nodes {
			nodes[i] = b.Another(millrace.Config{}, b.Recorders(names...)...)
			stops[i] = b.Start(nodes[i])
			b.Share(nodes[0], i+1)
		}
		// At rest, no lease moves.
		before := b.Epochs(nodes[0])
		<-time.After(time.Second)
		if after := b.Epochs(nodes[0]); after != before {
			t.Errorf("%d claims while no node came or went", after-before)
		}
		stops[1]()
		b.Share(nodes[0], 2)
		// The first node claimed twelve leases. The second took six of them, and the third four. The four leases of the
		// node that left were claimed again.
		if moves := b.Epochs(nodes[0]); moves != 12+6+4+4 {
			t.Errorf("%d claims, want 26", moves)
		}
		last := stopFlow()
		b.Applied(nodes[0], last, names...)
		if n := b.Summary(nodes[0]).NotOwned; n != 0 {
			t.Errorf("%d projections not owned", n)
		}
	}, kit.SeveralNodes)
}

// A deployment begins a node of the next version while the node of the old one runs. Where only one of them runs
// projections, the next version begins when the old one ends.
func TestNodesOfTwoVersionsRunWhatTheyKnow(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		config := millrace.Config{
			Store: tuning.Settings{Heartbeat: 500 * time.Millisecond}, LeaseDuration: 2 * time.Second,
		}
		old := b.Another(config, b.Recorders("kept", "gone")...)
		stopOld := b.Start(old)
		b.Share(old, 1)
		rt := b.Another(config, b.Recorders("kept", "new")...)
		b.Start(rt)
		last := b.Append("a", 10).Positions[9]
		b.Applied(rt, last, "kept", "gone")
		if b.Kind.Meets(kit.SeveralNodes) {
			b.Applied(rt, last, "new")
		}
		stopOld()
		b.Applied(rt, b.Append("a", 10).Positions[9], "kept", "new")
		if owner := b.Status(rt, "new").Owner; owner != b.Summary(rt).Node {
			t.Errorf("new is run by %q", owner)
		}
		b.Eventually("the projection that no node knows is named", func() bool {
			gone := b.Status(rt, "gone")
			return gone.State == admin.StateUnregistered && gone.Reason != "" && gone.NotOwned > 0
		})
		if s := b.Summary(rt); s.Unregistered != 1 || s.States[admin.StateUnregistered] != 1 {
			t.Errorf("%d are not registered: %v", s.Unregistered, s.States)
		}
		if kept := b.Status(rt, "kept"); kept.State == admin.StateNotOwned {
			t.Errorf("%+v", kept)
		}
	})
}

// leasesOf returns how many leases the node of a runtime holds.
func leasesOf(b *kit.Bundle, rt *millrace.Runtime) int {
	held, _ := b.Owners(rt)
	return held[b.Summary(rt).Node]
}

// blockable is a handler of the projection slow. While armed, it waits until it is released.
type blockable struct {
	armed   atomic.Bool
	entered chan struct{}
	release chan struct{}
}

func newBlockable() *blockable {
	return &blockable{entered: make(chan struct{}, 100), release: make(chan struct{})}
}

// slow is the projection of the handler, and those of the names beside it.
func (h *blockable) slow(b *kit.Bundle, names ...string) []millrace.Projection {
	return append(b.Recorders(names...), millrace.Projection{Name: "slow", Handler: b.Store.Batch(h.handle)})
}

func (h *blockable) handle(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
	if h.armed.Load() {
		h.entered <- struct{}{}
		select {
		case <-h.release:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return tx.Record(ctx, "slow", events...)
}

// A move waits for the batch in progress, and no other projection of the node waits with it.
func TestMoveWaitsForTheBatchInProgress(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		slow := newBlockable()
		first := b.Another(millrace.Config{}, slow.slow(b, "a", "b", "c")...)
		b.Start(first)
		b.Share(first, 1)
		slow.armed.Store(true)
		b.Append("s", 5)
		<-slow.entered
		second := b.Another(millrace.Config{}, slow.slow(b, "a", "b", "c")...)
		stopSecond := b.Start(second)
		b.Eventually("projections that are not busy move", func() bool { return leasesOf(b, second) > 0 })
		if owner := b.Status(first, "slow").Owner; owner != b.Summary(first).Node {
			t.Errorf("the batch under way lost its lease to %q", owner)
		}
		slow.armed.Store(false)
		close(slow.release)
		b.Share(first, 2)
		stopSecond()
		last := b.Append("s", 5).Positions[4]
		b.Applied(first, last, "a", "b", "c", "slow")
	}, kit.SeveralNodes)
}

// A long batch does not delay the release of the leases of other projections.
func TestStoppingNodeReleasesEachLeaseAsItsProjectionComesToRest(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		slow := newBlockable()
		first := b.Another(millrace.Config{}, slow.slow(b, "a", "b", "c")...)
		stop := b.Start(first)
		b.Share(first, 1)
		slow.armed.Store(true)
		b.Append("s", 5)
		<-slow.entered
		second := b.Another(millrace.Config{}, b.Recorders("a", "b", "c")...)
		b.Start(second)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			stop()
		}()
		b.Eventually("the other node runs all but the busy one", func() bool { return leasesOf(b, second) == 3 })
		select {
		case <-ended:
			t.Error("the first node ended while its batch was under way")
		default:
		}
		close(slow.release)
		<-ended
		if p := b.Status(second, "slow"); p.State != admin.StateUnregistered || p.Checkpoint != 5 {
			t.Errorf("%+v", p)
		}
	}, kit.SeveralNodes)
}

func TestAnyProcessControlsAProjectionAlsoInBackoff(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		fails := millrace.Projection{Name: "p", Retry: projection.RetryPolicy{MaxAttempts: 101,
			Base: time.Hour, Cap: time.Hour},
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Any, kit.Fails))}
		owner := b.Another(millrace.Config{Store: tuning.Settings{Reconcile: time.Hour}}, fails)
		b.Start(owner)
		// this runtime only reads the status and gives commands
		remote := b.Runtime(millrace.Config{}, b.Recorders("other")...)
		id := millrace.ProjectionID{Name: "p"}
		last := b.Append("s", 1).Positions[0]
		if p := b.Is(remote, "p", admin.StateWaiting); p.FailingPosition != last || p.Attempts != 1 || p.Reason == "" {
			t.Errorf("%+v", p)
		}
		for _, step := range []struct {
			command func(context.Context, millrace.ProjectionID) error
			state   admin.State
			waiting error
			// attempts is the total number of attempts. After Resume the event is tried at once, and not after an hour.
			attempts int
		}{
			{remote.Pause, admin.StatePaused, projection.ErrPaused, 1},
			{remote.Resume, admin.StateWaiting, nil, 2},
			{remote.Pause, admin.StatePaused, projection.ErrPaused, 2},
			{remote.Resume, admin.StateWaiting, nil, 3},
		} {
			b.Must(step.command(b.Ctx, id))
			b.Is(remote, "p", step.state)
			b.Eventually("its owner is as it should be", func() bool {
				p := b.Status(remote, "p")
				return (p.Owner == "") == (step.state == admin.StatePaused) && p.Attempts == step.attempts
			})
			if step.waiting != nil {
				if err := remote.WaitFor(b.Ctx, id, last); !errors.Is(err, step.waiting) {
					t.Errorf("waiting while it is %s: %v", step.state, err)
				}
			}
		}
	})
}

// Pause, from another process, returns as soon as the batch in progress has ended and the lease is free.
func TestPauseReturnsWhenNothingOfTheProjectionRuns(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		slow := newBlockable()
		b.Start(b.Another(millrace.Config{}, slow.slow(b, "other")...))
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
		if p := b.Status(remote, "slow"); p.State != admin.StatePaused || p.Owner != "" || p.Checkpoint != 5 {
			t.Errorf("%+v", p)
		}
		last := b.Append("a", 5).Positions[4]
		b.Reaches(remote, "other", last)
		b.Pause(remote, "slow") // it is paused already
		if n := len(slow.entered); n != 0 {
			t.Errorf("the handler was called %d times while the projection was paused", n)
		}
		b.Resume(remote, "slow")
		b.Applied(remote, last, "slow")
	})
}

func TestPauseReportsThatTheProjectionWasResumed(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		entered, release := make(chan struct{}, 1), make(chan struct{})
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "slow",
			Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
				entered <- struct{}{}
				<-release
				return nil
			})})
		last := b.Append("a", 1).Positions[0]
		<-entered
		id := millrace.ProjectionID{Name: "slow"}
		paused := make(chan error, 1)
		go func() { paused <- rt.Pause(b.Ctx, id) }()
		b.Is(b.Runtime(millrace.Config{}), "slow", admin.StatePaused)
		b.Resume(rt, "slow")
		if err := <-paused; !errors.Is(err, projection.ErrResumed) {
			t.Errorf("the pause ended with %v", err)
		}
		close(release)
		b.Reaches(rt, "slow", last)
	})
}

// A FailureHandler is user code like a handler: Pause cancels its context, and returns when it has ended.
func TestPauseWaitsForTheFailureHandler(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		entered, canceled, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
		rt := b.Running(millrace.Config{}, millrace.Projection{
			Name:    "p",
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Any, kit.Fails)),
			FailureHandler: func(ctx context.Context, _ projection.Failure) projection.Action {
				close(entered)
				<-ctx.Done()
				close(canceled)
				<-release
				return projection.ActionPark
			},
		})
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
