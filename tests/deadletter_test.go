package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestParkedStreamStaysInOrderAndTheOthersGoOn(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.PoisonAt(s.At["a"][3], s.At["b"][0])
		rt := s.Runtime(millrace.Config{}, s.P)
		stop := s.Start(rt)
		s.CatchUp(rt)
		want := slices.Concat(s.At["a"][3:], s.At["b"])
		s.MustHaveParked(want...)
		letters, err := s.DeadLetters.List(s.Ctx,
			projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "a"}})
		if err != nil || len(letters) != 7 {
			t.Fatal(letters, err)
		}
		if head, behind := letters[0], letters[1]; head.BlockedByStream || head.Attempts != 2 ||
			!strings.Contains(head.Error, "on purpose") ||
			!behind.BlockedByStream || behind.Attempts != 0 || behind.Version != 5 || behind.Type != "counted" {
			t.Errorf("the first letter is %+v, the next %+v", head, behind)
		}
		if p := s.Status(rt, "p"); p.Parked != 17 || !p.OldestParked.Equal(s.DeadLettersOf("p")[0].FirstFailedAt) {
			t.Errorf("status: %+v", p)
		}
		// Also across batches, restarts and new owners.
		stop()
		s.More("a", "b", "c", "d")
		rt = s.Another(millrace.Config{}, s.P)
		s.Start(rt)
		s.More("a", "c")
		s.CatchUp(rt)
		s.MustHaveParked(slices.Concat(s.At["a"][3:], s.At["b"])...)

		// After the repair a parked stream is replayed as a whole, whichever of its dead letters was selected, and then
		// continues.
		s.Mended.Store(true)
		s.MustReplay(projection.DeadLetterFilter{IDs: []int64{letters[5].ID}}, 100, 9, 0)
		s.More("a", "b")
		s.CatchUp(rt)
		s.MustHaveParked(s.At["b"]...)
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, len(s.At["b"]), 0)
		s.More("a", "b", "c")
		s.CatchUp(rt)
		s.MustHaveParked()
		if p := s.Status(rt, "p"); p.Parked != 0 || !p.OldestParked.IsZero() || p.Checkpoint > s.Head() {
			t.Errorf("status: %+v", p)
		}
	})
}

func TestReplayThatFailsStaysParkedWithOneAttemptMore(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.PoisonAt(s.At["a"][3], s.At["a"][6], s.At["b"][9])
		rt := s.Running(millrace.Config{}, s.P)
		s.CatchUp(rt)
		// All fail, and no stream goes further than its first event.
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, 0, 2)
		s.MustHaveParked(append(slices.Clone(s.At["a"][3:]), s.At["b"][9])...)
		letters, err := s.DeadLetters.List(s.Ctx, projection.DeadLetterPage{})
		if err != nil || letters[0].Attempts != 3 || letters[0].Replays != 1 || letters[1].Attempts != 0 ||
			letters[0].State != projection.DeadLetterParked {
			t.Errorf("%+v, %v", letters, err)
		}
		// The first is repaired: the stream continues to the next failing event, which then is the first.
		s.Poison.Delete(s.At["a"][3])
		s.MustReplay(projection.DeadLetterFilter{Stream: "a"}, 100, 3, 1)
		s.MustHaveParked(append(slices.Clone(s.At["a"][6:]), s.At["b"][9])...)
		letters, err = s.DeadLetters.List(s.Ctx, projection.DeadLetterPage{})
		if err != nil || letters[0].BlockedByStream || letters[0].Attempts != 1 ||
			!strings.Contains(letters[0].Error, "on purpose") {
			t.Errorf("%+v, %v", letters, err)
		}
		// A limit ends in the middle of a stream, which stays in order.
		s.Mended.Store(true)
		s.MustReplay(projection.DeadLetterFilter{Stream: "a"}, 2, 2, 0)
		s.More("a")
		s.CatchUp(rt)
		s.MustHaveParked(append(slices.Clone(s.At["a"][8:]), s.At["b"][9])...)
		for _, filter := range []projection.DeadLetterFilter{{Error: "on purpose"}, {Type: "counted"}} {
			_, err := s.DeadLetters.Replay(s.Ctx, filter, 100)
			s.Must(err)
		}
		s.MustHaveParked()
	})
}

func TestTwoReplaysAtOnceApplyOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.P.OnFailure = projection.ActionPark
		s.PoisonAt(slices.Concat(s.At["a"], s.At["b"])...)
		rt := s.Running(millrace.Config{}, s.P)
		s.CatchUp(rt)
		s.Mended.Store(true)
		var done atomic.Int64
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() {
				o, err := s.DeadLetters.Replay(s.Ctx, projection.DeadLetterFilter{All: true}, 7)
				if err != nil || o.Failed != 0 {
					t.Error(o, err)
				}
				done.Add(o.Done)
			})
		}
		group.Wait()
		if done.Load() != 20 {
			t.Errorf("%d letters were replayed, want 20", done.Load())
		}
		if got := s.Positions("p"); len(got) != 30 {
			t.Errorf("%d events were applied, want 30", len(got))
		}
		if n, err := s.DeadLetters.Count(s.Ctx, projection.DeadLetterFilter{All: true}); n != 0 || err != nil {
			t.Error(n, err)
		}
		if n, err := s.DeadLetters.Count(s.Ctx, projection.DeadLetterFilter{Stream: "a"},
			projection.DeadLetterResolved); n != 10 || err != nil {
			t.Error(n, err)
		}
	})
}

// Live events of a stream come after its replayed events, and takeovers in the middle lose and double nothing.
func TestReplayDuringLiveTrafficAndTakeovers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.PoisonAt(s.At["a"][0], s.At["b"][2])
		config := millrace.Config{
			Store:         tuning.Settings{Heartbeat: 100 * time.Millisecond, Reconcile: 100 * time.Millisecond},
			LeaseDuration: time.Second, FailureDetection: 200 * time.Millisecond,
		}
		rt := s.Another(config, s.P)
		stop := s.Start(rt)
		for range 60 {
			s.More("a", "b", "c")
		}
		s.CatchUp(rt)
		s.Mended.Store(true)
		replayed := make(chan error, 1)
		go func() {
			_, err := s.DeadLetters.Replay(s.Ctx, projection.DeadLetterFilter{All: true}, 1000)
			replayed <- err
		}()
		for range 6 {
			for range 5 {
				s.More("a", "b", "c")
			}
			next := s.Another(config, s.P)
			stopNext := s.Start(next)
			stop()
			rt, stop = next, stopNext
		}
		b.Must(<-replayed)
		s.CatchUp(rt)
		// Events appended during the command may have been parked after its end.
		<-s.Replaying("p")
		s.MustHaveParked()
	})
}

func TestDiscardAffectsOnlyTheSelectedEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.PoisonAt(s.At["a"][3], s.At["b"][5])
		rt := s.Runtime(millrace.Config{}, s.P)
		stop := s.Start(rt)
		s.CatchUp(rt)
		letters, err := s.DeadLetters.List(s.Ctx,
			projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "a"}})
		b.Must(err)
		// The first of a stream is discarded: the others stay parked, and the next is the first.
		s.MustDiscard(projection.DeadLetterFilter{IDs: []int64{letters[0].ID}}, 10, 1)
		s.More("a", "c")
		s.CatchUp(rt)
		want := slices.Concat(s.At["a"][4:], s.At["b"][5:])
		slices.Sort(want)
		if got := s.Parked(); !slices.Equal(got, want) {
			t.Errorf("parked: %v, want %v", got, want)
		}
		if next, _, err := s.DeadLetters.Get(s.Ctx, letters[1].ID); err != nil || next.BlockedByStream {
			t.Errorf("the next is %+v, %v", next, err)
		}
		// A whole stream is discarded, and continues.
		s.MustDiscard(projection.DeadLetterFilter{Stream: "b"}, 100, 5)
		gone := append(slices.Clone(s.At["b"][5:]), s.At["a"][3])
		s.More("b")
		s.CatchUp(rt)
		s.MustHaveApplied(append(gone, s.At["a"][4:]...)...)

		// While it is paused, it discards, and a replay waits.
		s.Pause(rt, "p")
		s.Is(rt, "p", admin.StatePaused)
		s.Mended.Store(true)
		short, cancel := context.WithTimeout(s.Ctx, 3*time.Second)
		defer cancel()
		if o, err := s.DeadLetters.Replay(short, projection.DeadLetterFilter{IDs: []int64{letters[1].ID}},
			1); !errors.Is(err, projection.ErrCommandPending) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a replay while it is paused: %+v, %v", o, err)
		}
		s.MustDiscard(projection.DeadLetterFilter{IDs: []int64{letters[2].ID}}, 1, 1)
		s.Resume(rt, "p")
		s.Eventually("the replay was made", func() bool { return len(s.Parked()) == len(s.At["a"])-6 })
		// While no node holds the lease.
		stop()
		s.MustDiscard(projection.DeadLetterFilter{Type: "counted"}, 1, 1)
		rt = s.Another(millrace.Config{}, s.P)
		s.Start(rt)
		<-s.Replaying("p")
		s.CatchUp(rt)
		s.MustHaveApplied(append(gone, s.At["a"][5], s.At["a"][6])...)
		if n, err := s.DeadLetters.Purge(s.Ctx, projection.DeadLetterFilter{Stream: "b"}, 0, 3); n != 3 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		if n, err := s.DeadLetters.Purge(s.Ctx, projection.DeadLetterFilter{All: true}, time.Hour, 100); n != 0 ||
			err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		if n, err := s.DeadLetters.Purge(s.Ctx, projection.DeadLetterFilter{All: true}, 0, 100); err != nil || n == 0 {
			t.Errorf("purged %d, %v", n, err)
		}
		if n, err := s.DeadLetters.Count(s.Ctx, projection.DeadLetterFilter{All: true}, projection.DeadLetterDiscarded,
			projection.DeadLetterResolved); n != 0 || err != nil {
			t.Errorf("%d left, %v", n, err)
		}
	})
}

// An event that failed and has no room stops the projection. Events that are parked after it, because of their streams,
// do not count.
func TestMaxParkedStopsTheProjection(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for _, action := range []projection.Action{projection.ActionParkStream, projection.ActionPark} {
			t.Run(action.String(), func(t *testing.T) {
				t.Parallel()
				s := kit.NewParking(kind.New(t))
				s.P.OnFailure, s.P.MaxParked = action, 4
				s.PoisonAt(s.At["a"][2:]...)
				stops, parked := s.At["a"][6], 4
				if action == projection.ActionParkStream {
					s.P.MaxParked, stops, parked = 2, s.At["c"][6], 8 // five of stream a, three of stream b
					s.PoisonAt(s.At["b"][4], stops)
				}
				rt := s.Running(millrace.Config{}, s.P)
				err := rt.WaitFor(s.Ctx, s.ID, s.Head())
				want := fmt.Sprintf("%d events that failed are parked, which is the limit Projection.MaxParked; the event at position %d", s.P.MaxParked, stops)
				if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), want) {
					t.Fatalf("%v, want %s", err, want)
				}
				// Its dead letters can be replayed, and after a resume it continues.
				s.Mended.Store(true)
				s.MustReplay(projection.DeadLetterFilter{All: true}, 100, parked, 0)
				if p := s.Status(rt, "p"); p.State != admin.StateFailed || p.Parked != 0 {
					t.Errorf("status: %+v", p)
				}
				s.Resume(rt, "p")
				s.CatchUp(rt)
				s.MustHaveParked()
			})
		}
	})
}

// Events that are parked because of their streams have a limit of their own, which holds under the next owner too.
func TestMaxBlockedStopsTheProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.P.MaxParked, s.P.MaxBlocked = 1, 4
		s.PoisonAt(s.At["a"][2])
		rt := s.Runtime(millrace.Config{}, s.P)
		stop := s.Start(rt)
		stopped := func(at int64) {
			t.Helper()
			want := fmt.Sprintf("4 events are parked after others of their streams, which is the limit Projection.MaxBlocked; the event at position %d", at)
			if err := rt.WaitFor(s.Ctx, s.ID, s.Head()); !errors.Is(err, projection.ErrFailed) ||
				!strings.Contains(err.Error(), want) {
				t.Fatalf("%v, want %s", err, want)
			}
			if p := s.Status(rt, "p"); p.Parked != 5 || p.Checkpoint != at-1 {
				t.Errorf("status: %+v", p)
			}
		}
		stopped(s.At["a"][7])
		// The next owner counts the same.
		stop()
		rt = s.Another(millrace.Config{}, s.P)
		s.Start(rt)
		s.Resume(rt, "p")
		stopped(s.At["a"][7])
		// A replay that ends in the middle of the stream makes room for as many as it applied: its first event is
		// blocked by no other.
		s.Mended.Store(true)
		s.MustReplay(projection.DeadLetterFilter{All: true}, 2, 2, 0)
		s.Resume(rt, "p")
		// The status shows the earlier stop until the owner has read the row.
		want := fmt.Sprintf("the event at position %d would be the next", s.At["a"][9])
		s.Eventually("it stops where there is no more room",
			func() bool { return strings.Contains(s.Status(rt, "p").Reason, want) })
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, 5, 0)
		s.Resume(rt, "p")
		s.CatchUp(rt)
		s.MustHaveParked()
	})
}

// Only events that failed count for the share of failures. One failing event of a busy stream does not stop the
// projection.
func TestEventsParkedBecauseOfTheirStreamAreNoFailures(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.P.MaxFailureShare = 0.1
		for range 60 {
			s.More("a")
		}
		later := s.More("b") // its failure is the second that counts
		s.PoisonAt(s.At["a"][0], later)
		s.CatchUp(s.Running(millrace.Config{}, s.P))
		s.MustHaveParked(append(s.At["a"], later)...)
	})
}

func TestParkedEventsAreReplayedByThemselves(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.P.Replay = projection.ReplayPolicy{
			Interval: 20 * time.Millisecond, Factor: 1, MaxReplays: 3, Error: "purpose",
		}
		s.PoisonAt(s.At["a"][3], s.At["b"][5])
		rt := s.Runtime(millrace.Config{Store: tuning.Settings{Reconcile: time.Hour}}, s.P)
		stop := s.Start(rt)
		s.CatchUp(rt)
		s.Eventually("both were tried as often as they may be", func() bool {
			letters, err := s.DeadLetters.List(s.Ctx,
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Error: "on purpose"}})
			return err == nil && len(letters) == 2 && letters[0].Replays == 3 && letters[1].Replays == 3
		})
		calls := s.Calls.Load()
		s.More("a", "b", "c")
		s.CatchUp(rt)
		if n := s.Calls.Load(); n != calls {
			t.Errorf("they were tried %d times more than they may be", n-calls)
		}
		// With more replays allowed, they are replayed automatically after the repair.
		s.Mended.Store(true)
		stop()
		s.P.Replay.MaxReplays = 6
		rt = s.Running(millrace.Config{Store: tuning.Settings{Reconcile: time.Hour}}, s.P)
		s.Eventually("all are replayed", func() bool { return len(s.Parked()) == 0 })
		// No caller waits for the end of the command.
		s.Eventually("no command is left open", func() bool {
			_, open, err := s.Store.Commands(s.Ctx)
			return err == nil && open == 0
		})
		s.More("a", "b", "c")
		s.CatchUp(rt)
		s.MustHaveParked()
	})
}

// Parked events are replayed while an event waits an hour for its next attempt.
func TestReplaysGoOnWhileAnEventWaitsForItsNextAttempt(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		parked, waits := s.At["a"][2], s.At["b"][5]
		s.PoisonAt(parked, waits)
		s.P.Retry = projection.RetryPolicy{Base: time.Hour, Cap: time.Hour}
		s.P.FailureHandler = func(_ context.Context, f projection.Failure) projection.Action {
			if f.Event.Position == parked {
				return projection.ActionPark
			}
			return projection.ActionRetry
		}
		rt := s.Running(millrace.Config{}, s.P)
		s.Eventually("it waits", func() bool {
			p := s.Status(rt, "p")
			return p.State == admin.StateWaiting && p.FailingPosition == waits
		})
		s.Poison.Delete(parked)
		s.MustReplay(projection.DeadLetterFilter{All: true, OutOfOrder: true}, 10, 1, 0)
		if p := s.Status(rt, "p"); p.Attempts != 1 || p.Checkpoint >= waits {
			t.Errorf("status: %+v", p)
		}
	})
}
