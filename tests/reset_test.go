package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// upTo returns the positions from first to last.
func upTo(first, last int64) (positions []int64) {
	for at := first; at <= last; at++ {
		positions = append(positions, at)
	}
	return positions
}

// mustReset resets the projection p, and returns the result.
func mustReset(b *kit.Bundle, a *admin.Admin, position int64) admin.ResetResult {
	b.T.Helper()
	result, err := a.Reset(b.Ctx, p, position, admin.ResetOptions{})
	b.Must(err)
	return result
}

func TestResetBack(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(kit.Quick, b.Recorders("p")...)
		b.Append("s", 10)
		b.Reaches(rt, "p", 10)
		if result := mustReset(b, rt.Admin, 4); result != (admin.ResetResult{From: 10, Position: 4}) {
			t.Errorf("the reset returned %+v", result)
		}
		// WaitFor does not see the state from before the reset.
		b.Reaches(rt, "p", 10)
		if at := b.Positions("p"); !slices.Equal(at, append(upTo(1, 10), upTo(5, 10)...)) {
			t.Errorf("applied %v", at)
		}
	})
}

// A reset needs no node, goes forward too, and leaves a pause.
func TestResetForwardWithoutANode(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		rt := b.Idle(b.Recorders("p")...)
		b.Append("s", 7)
		b.Pause(rt, "p")
		a, err := admin.New(b.Store)
		b.Must(err)
		if result := mustReset(b, a, 8); result != (admin.ResetResult{From: 3, Position: 8}) {
			t.Errorf("the reset returned %+v", result)
		}
		if s := b.Status(rt, "p"); s.State != admin.StatePaused || s.Checkpoint != 8 {
			t.Errorf("after the reset: %+v", s)
		}
		b.Resume(rt, "p")
		b.RunUntilIdle(rt)
		if at := b.Positions("p"); !slices.Equal(at, []int64{1, 2, 3, 9, 10}) {
			t.Errorf("applied %v", at)
		}
	})
}

func TestResetThatIsRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		rt := b.Idle(b.Recorders("p")...)
		for _, refused := range []struct {
			id       millrace.ProjectionID
			position int64
			want     string
			is       error
		}{
			{p, -1, "reset default/p to -1: the position must not be negative: -1", nil},
			{p, 4, "reset default/p to 4: the position is above the settled mark: 3", projection.ErrNotSettled},
			{
				millrace.ProjectionID{Name: "p", Partition: 1}, 0,
				"reset default/p/1 to 0: ProjectionID.Partition must be 0, since partitions run and pause together: 1",
				nil,
			},
			{millrace.ProjectionID{Name: "other"}, 0, "", projection.ErrUnknownProjection},
			{millrace.ProjectionID{Tenant: "nobody", Name: "p"}, 1, "", tenancy.ErrUnknown},
		} {
			_, err := rt.Reset(b.Ctx, refused.id, refused.position, admin.ResetOptions{})
			if err == nil || refused.want != "" && err.Error() != refused.want ||
				refused.is != nil && !errors.Is(err, refused.is) {
				t.Errorf("a reset of %s to %d returned %v", refused.id, refused.position, err)
			}
		}
		if s := b.Status(rt, "p"); s.Checkpoint != 3 {
			t.Errorf("the checkpoint is %d", s.Checkpoint)
		}
	})
}

// Dead letters above the position are resolved, so that a replay does not apply their events a second time. Those below
// stay.
func TestResetResolvesTheDeadLettersThatArePassedAgain(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for name, onFailure := range map[string]projection.Action{"events": projection.ActionPark,
			"streams": projection.ActionParkStream} {
			t.Run(name, func(t *testing.T) {
				b := kind.New(t)
				broken := true
				poison := func(at int64) bool { return broken && (at == 2 || at == 7) }
				rt := b.Runtime(kit.Quick, millrace.Projection{Name: "p",
					Handler: b.Store.Batch(kit.FailsAt("p", poison, kit.Fails)),
					Retry:   kit.Soon(0), OnFailure: onFailure, MaxFailureShare: projection.NoLimit})
				for i := range 10 { // two streams, "0" has the even positions
					b.Append(fmt.Sprint((i+1)%2), 1)
				}
				b.RunUntilIdle(rt)
				parked := func() (at []int64) {
					for _, letter := range b.DeadLettersOf("p") {
						at = append(at, letter.Position)
					}
					return at
				}
				before := parked()
				broken = false
				result := mustReset(b, rt.Admin, 5)
				var below []int64
				for _, at := range before {
					if at <= 5 {
						below = append(below, at)
					}
				}
				if !slices.Equal(parked(), below) || result.Resolved != int64(len(before)-len(below)) ||
					result.Resolved == 0 || b.Status(rt, "p").Parked != int64(len(below)) {
					t.Errorf("of the parked events %v, %v are left, %+v, %+v", before, parked(), result,
						b.Status(rt, "p"))
				}
				applied := b.Positions("p")
				b.RunUntilIdle(rt)
				stop := b.Start(rt)
				if replayed := <-b.Replaying("p"); replayed.Failed > 0 {
					t.Errorf("replayed %+v", replayed)
				}
				stop()
				after := b.Positions("p")[len(applied):]
				slices.Sort(after)
				want := append(below, upTo(6, 10)...)
				if !slices.Equal(after, want) || len(parked()) > 0 {
					t.Errorf("after the reset applied %v, want %v, and parked %v", after, want, parked())
				}
			})
		}
	})
}

// A batch in progress cannot commit after a reset, whatever its handler does.
func TestBatchInProgressCannotCommitAfterAReset(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		reached, release := make(chan struct{}), make(chan struct{})
		first := true
		rt := b.Running(kit.Quick, millrace.Projection{Name: "p",
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				if err := tx.Record(ctx, "p", events...); err != nil {
					return err
				}
				if first && events[len(events)-1].Position == 10 {
					first = false
					close(reached)
					<-release
					return tx.Record(context.WithoutCancel(ctx), "late", events...)
				}
				return nil
			})})
		b.Append("s", 5)
		b.Reaches(rt, "p", 5)
		b.Append("s", 5)
		<-reached
		mustReset(b, rt.Admin, 5) // as the checkpoint is: only the epoch says that the batch is too late
		close(release)
		b.Reaches(rt, "p", 10)
		b.Verify("p")
		if at := b.Positions("late"); len(at) > 0 {
			t.Errorf("the batch from before the reset committed %v", at)
		}
	}, kit.ConcurrentWrites)
}

// A reset ends the stop at an event, its attempts, and the quarantine.
func TestResetForgetsFailures(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		broken := true
		rt := b.Running(kit.Quick, millrace.Projection{Name: "p",
			Handler: b.Store.Batch(kit.FailsAt("p", func(at int64) bool { return broken && at == 3 }, kit.Fails)),
			Retry:   kit.Soon(0), OnFailure: projection.ActionStop})
		b.Append("s", 5)
		b.Is(rt, "p", admin.StateFailed)
		b.Must(b.Store.Quarantine(b.Ctx))
		broken = false
		mustReset(b, rt.Admin, 0)
		b.Reaches(rt, "p", 5)
		if s := b.Status(rt, "p"); s.Reason != "" || s.Attempts != 0 || s.FailingPosition != 0 {
			t.Errorf("after the reset: %+v", s)
		}
	})
}

// A replay in progress does not commit after a reset. The command ends, with the dead letters that are left.
func TestResetDuringAReplay(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		reached, release := make(chan struct{}), make(chan struct{})
		broken, replaying := true, false
		rt := b.Running(kit.Quick, millrace.Projection{Name: "p",
			Retry: kit.Soon(0), OnFailure: projection.ActionPark, MaxFailureShare: projection.NoLimit,
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				if replaying && len(events) == 1 && events[0].Position == 4 {
					replaying = false
					close(reached)
					<-release
				}
				if err := tx.Record(ctx, "p", events...); err != nil {
					return err
				}
				for _, e := range events {
					if broken && (e.Position == 2 || e.Position == 4) {
						return projection.At(e.Position, kit.ErrOnPurpose)
					}
				}
				return nil
			})})
		b.Append("s", 5)
		b.Reaches(rt, "p", 5)
		broken, replaying = false, true
		replayed := b.Replaying("p")
		<-reached
		mustReset(b, rt.Admin, 3)
		close(release)
		if result := <-replayed; result.Done != 1 || result.Failed != 0 {
			t.Errorf("replayed %+v", result)
		}
		b.Reaches(rt, "p", 5)
		if at := b.Positions("p"); !slices.Equal(at, []int64{1, 3, 5, 2, 4, 5}) || len(b.DeadLettersOf("p")) > 0 {
			t.Errorf("applied %v, and parked %v", at, b.DeadLettersOf("p"))
		}
	}, kit.ConcurrentWrites)
}
