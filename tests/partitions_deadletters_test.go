package tests_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// newSplitParking is kit.NewParking with 4 partitions: each of its streams is in another one.
func newSplitParking(b *kit.Bundle) *kit.Parking {
	s := kit.NewParking(b)
	s.P.Partitions = 4
	return s
}

// inPartition returns the dead letters of the partition that has a stream.
func inPartition(s *kit.Parking, stream string) (projection.DeadLetters, projection.ID) {
	id := projection.ID{Tenant: projection.DefaultTenant, Name: "p", Partition: partition.Of(partition.Slot(stream), 4)}
	return s.Store.DeadLetters(id), id
}

func TestParkedStreamOfAPartitionDoesNotTouchTheOthers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := newSplitParking(b)
		s.PoisonAt(s.At["a"][3], s.At["b"][5])
		rt := b.Running(millrace.Config{}, s.P)
		s.CatchUp(rt)
		s.MustHaveParked(slices.Concat(s.At["a"][3:], s.At["b"][5:])...)
		for _, letter := range b.DeadLettersOf("p") {
			if _, id := inPartition(s, letter.Stream); letter.Projection != id {
				t.Errorf("the dead letter of %s at %d is that of %v, want %v", letter.Stream, letter.Position,
					letter.Projection, id)
			}
		}
		for stream, parked := range map[string]int64{"a": 7, "b": 5, "c": 0} {
			letters, id := inPartition(s, stream)
			if n, err := letters.Count(b.Ctx, projection.DeadLetterFilter{}); n != parked || err != nil {
				t.Errorf("%v has %d dead letters, %v; want %d", id, n, err, parked)
			}
		}
		// A replay of one partition leaves the others parked. Its stream continues.
		s.Mended.Store(true)
		letters, _ := inPartition(s, "a")
		if result, err := letters.Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 100); err != nil ||
			result.Done != 7 || result.Failed != 0 {
			t.Errorf("replayed %+v, %v", result, err)
		}
		s.More("a", "b", "c")
		s.CatchUp(rt)
		s.MustHaveParked(s.At["b"][5:]...)
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, 6, 0)
		s.MustHaveParked()
		page := projection.DeadLetterPage{
			States: []projection.DeadLetterState{projection.DeadLetterResolved}, NewestFirst: true, Limit: 4,
		}
		newest, err := s.DeadLetters.List(b.Ctx, page)
		b.Must(err)
		all := slices.Concat(s.At["a"][3:10], s.At["b"][5:])
		slices.Sort(all)
		for i, letter := range newest {
			if want := all[len(all)-1-i]; letter.Position != want {
				t.Errorf("the newest dead letter %d is at %d, want %d", i, letter.Position, want)
			}
		}
		if n, err := s.DeadLetters.Purge(b.Ctx, projection.DeadLetterFilter{All: true}, 0, 5); n != 5 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
	})
}

// manyParked parks 10 events of each of 8 streams, by a projection with 8 partitions whose replays wait for hold.
func manyParked(b *kit.Bundle, hold func(ctx context.Context,
	e event.Envelope)) (*millrace.Runtime, projection.DeadLetters) {
	var mended atomic.Bool
	rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
		Partitions: 8, Retry: kit.Soon(0), MaxFailureShare: projection.NoLimit,
		Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if !mended.Load() {
				return kit.ErrOnPurpose
			}
			hold(ctx, e)
			return tx.Record(ctx, "p", e)
		})})
	for range 10 {
		for i := range 8 {
			b.Append(streamOf(i+1, 8), 1)
		}
	}
	b.Reaches(rt, "p", b.Head())
	mended.Store(true)
	return rt, b.Store.DeadLetters(projection.ID{Name: "p"})
}

func TestLimitOfACommandIsForAllPartitionsTogether(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt, letters := manyParked(b, func(context.Context, event.Envelope) {})
		left := int64(80)
		must := func(doing string, result projection.CommandResult, err error, limit int64) {
			t.Helper()
			n, countErr := letters.Count(b.Ctx, projection.DeadLetterFilter{})
			left -= limit
			if err != nil || countErr != nil || result.Done != limit || result.Failed != 0 || n != left {
				t.Fatalf("%s: %+v, %v; %d are left, want %d, %v", doing, result, err, n, left, countErr)
			}
		}
		for _, limit := range []int{1, 7, 20} {
			result, err := letters.Replay(b.Ctx, projection.DeadLetterFilter{All: true}, limit)
			must("replay", result, err, int64(limit))
			again, err := letters.Wait(b.Ctx, result.Command)
			if again != result || err != nil {
				t.Errorf("the result is %+v, %v afterwards; it was %+v", again, err, result)
			}
			result, err = letters.Discard(b.Ctx, projection.DeadLetterFilter{All: true}, limit/2+1)
			must("discard", result, err, int64(limit/2+1))
		}
		if parked := b.Status(rt, "p").Parked; parked != left {
			t.Errorf("%d parked events are counted, %d are left", parked, left)
		}
		b.Pause(rt, "p")
		result, err := letters.Discard(b.Ctx, projection.DeadLetterFilter{All: true}, 5)
		must("discard without owners", result, err, 5)
		result, err = letters.Discard(b.Ctx, projection.DeadLetterFilter{All: true}, 1000)
		must("discard of the rest", result, err, left)
	})
}

func TestCommandForAllPartitionsCanBeCancelled(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 20)
		held, release := make(chan event.Envelope, 100), make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		_, letters := manyParked(b, func(ctx context.Context, e event.Envelope) {
			if e.Stream == streamOf(2, 8) || e.Stream == streamOf(5, 8) {
				held <- e
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
		})
		ctx, stop := context.WithCancel(b.Ctx)
		pending := make(chan projection.CommandResult, 1)
		go func() {
			result, err := letters.Replay(ctx, projection.DeadLetterFilter{All: true}, 1000)
			if !errors.Is(err, projection.ErrCommandPending) {
				t.Errorf("replay: %+v, %v", result, err)
			}
			pending <- result
		}()
		<-held
		<-held
		// The other partitions go on meanwhile.
		b.Eventually("60 are replayed", func() bool {
			n, err := letters.Count(b.Ctx, projection.DeadLetterFilter{}, projection.DeadLetterResolved)
			return n == 60 && err == nil
		})
		stop()
		command := (<-pending).Command
		b.Must(letters.Cancel(b.Ctx, command))
		free()
		result, err := letters.Wait(b.Ctx, command)
		if want := (projection.CommandResult{Command: command, Done: 62}); result != want || err != nil {
			t.Errorf("the cancelled replay: %+v, %v; want %+v", result, err, want)
		}
		if n, err := letters.Count(b.Ctx, projection.DeadLetterFilter{}); n != 18 || err != nil {
			t.Errorf("%d are parked, %v", n, err)
		}
		if _, err := letters.Wait(b.Ctx, command+1000); !errors.Is(err, projection.ErrCommandNotFound) {
			t.Errorf("waiting for no command: %v", err)
		}
	}, kit.ConcurrentWrites)
}

// The automatic replayer, the share of failures and the limit of parked events are those of each partition.
func TestFailuresCountForEachPartitionAlone(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		bad := streamOf(2, 3)
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p", Partitions: 3, Retry: kit.Soon(0),
			OnFailure: projection.ActionPark, MaxFailureShare: projection.NoLimit, MaxParked: 5,
			Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				if e.Stream == bad {
					return kit.ErrOnPurpose
				}
				return tx.Record(ctx, "p", e)
			})})
		var poison []int64
		for i := range 3 {
			at := b.Append(streamOf(i+1, 3), 10).Positions
			if i == 1 {
				poison = at
			}
		}
		for _, number := range []int{1, 3} {
			b.Must(rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p", Partition: number}, b.Head()))
		}
		failed := millrace.ProjectionID{Name: "p", Partition: 2}
		b.Eventually("the partition stops at its sixth event", func() bool {
			p := b.StatusOf(rt).Projection(failed)
			return p.State == admin.StateFailed && p.Parked == 5
		})
		if err := b.CheckStreams("p", poison...); err != nil {
			t.Error(err)
		}
		b.Resume(rt, "p") // it stops there again
		b.Eventually("it stops again, and the status of the projection shows it", func() bool {
			whole := b.Status(rt, "p")
			return whole.State == admin.StateFailed && whole.Parked == 5 && whole.Applied == 20
		})
	})
}
