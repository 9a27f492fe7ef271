package tests_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// prefix reports whether positions are those of the first events, each once and in order.
func prefix(positions []int64) bool { return slices.Equal(positions, upTo(1, int64(len(positions)))) }

// Readers see the rows from before a rebuild or those after it, and never some of both.
func TestReadersSeeOldOrNewRows(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rebuilt := b.Rebuildable("p")
		rebuilt.MaxEvents = 20
		rt := b.Running(kit.Quick, rebuilt)
		stop := b.Flow()
		b.Eventually("events flow", func() bool { return len(b.Positions("p")) > 50 })
		var fell, reads atomic.Int64
		ctx, cancel := context.WithCancel(b.Ctx)
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				for last := 0; ctx.Err() == nil; reads.Add(1) {
					applied, err := b.Store.Applied(b.Ctx, "p")
					if err != nil {
						t.Error(err)
						return
					}
					at := make([]int64, len(applied))
					for i, a := range applied {
						at[i] = a.Position
					}
					if !prefix(at) {
						t.Errorf("a reader saw %v", at)
						return
					}
					if len(at) < last {
						fell.Add(1)
					}
					last = len(at)
				}
			})
		}
		for range 4 {
			b.Must(rt.Rebuild(b.Ctx, p, admin.ResetOptions{}))
			b.Reaches(rt, "p", b.Head())
		}
		last := stop()
		b.Applied(rt, last, "p")
		cancel()
		readers.Wait()
		t.Logf("%d reads, %d of them of a new model", reads.Load(), fell.Load())
	})
}

// A projection is rebuilt again and again. Meanwhile it is paused and repartitioned, its events are parked, replayed
// and discarded, rebuilds are cancelled, and nodes start and stop. In the end each event is applied exactly once.
func TestRebuildsAmongEverythingElse(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b, seed := kind.New(t), kit.Seed(t)
		random := rand.New(rand.NewPCG(seed, 1))
		var broken atomic.Bool
		rebuilt := b.Rebuildable("p")
		rebuilt.MaxEvents, rebuilt.Retry, rebuilt.MaxFailureShare, rebuilt.OnFailure = 10, kit.Soon(0),
			projection.NoLimit, projection.ActionParkStream
		poison := func(at int64) bool { return broken.Load() && at%13 == 0 }
		rebuilt.Handler = b.Store.Batch(kit.FailsAt("p", poison, kit.Fails))
		nodes := kind.Sharing(2)
		stops := make([]func(), nodes)
		for i := range stops {
			stops[i] = b.Start(b.Another(kit.Quick, rebuilt))
		}
		a, err := admin.New(b.Store)
		b.Must(err)
		b.Eventually("the projection has been registered", func() bool { return a.Resume(b.Ctx, p) == nil })
		flow := b.Flow()
		letters := b.Store.DeadLetters(projection.ID{Name: "p"})
		var rebuilds atomic.Int64
		var background sync.WaitGroup
		rebuild := func() {
			background.Go(func() {
				err := a.Rebuild(b.Ctx, p, admin.ResetOptions{})
				rebuilds.Add(1)
				if err != nil && !errors.Is(err, projection.ErrOperationOpen) &&
					!errors.Is(err, projection.ErrOperationCancelled) &&
					!errors.Is(err, projection.ErrUnknownProjection) {
					t.Errorf("seed %d: %v", seed, err)
				}
			})
		}
		for range 40 {
			switch random.IntN(9) {
			case 0, 1, 2:
				rebuild()
			case 3:
				broken.Store(!broken.Load())
			case 4:
				if err := a.CancelOperation(b.Ctx, p); err != nil && !errors.Is(err, projection.ErrOperationNotFound) &&
					!errors.Is(err, projection.ErrUnknownProjection) {
					t.Errorf("seed %d: %v", seed, err)
				}
			case 5:
				background.Go(func() {
					ctx, cancel := context.WithTimeout(b.Ctx, time.Second)
					defer cancel()
					_, _ = letters.Replay(ctx, projection.DeadLetterFilter{All: true, OutOfOrder: true}, 1000)
				})
			case 6:
				if err := a.Pause(b.Ctx, p); err == nil {
					rebuild()
					b.Must(a.Resume(b.Ctx, p))
				}
			case 7:
				if err := a.Repartition(b.Ctx, p, 1+random.IntN(4)); err != nil &&
					!errors.Is(err, projection.ErrUnknownProjection) {
					t.Errorf("seed %d: %v", seed, err)
				}
			case 8:
				i := random.IntN(nodes)
				stops[i]()
				stops[i] = b.Start(b.Another(kit.Quick, rebuilt))
			}
			kit.Pass(b.Ctx, time.Duration(random.IntN(60))*time.Millisecond)
		}
		broken.Store(false)
		background.Wait()
		last := flow()
		b.Must(a.Resume(b.Ctx, p))
		b.Eventually("the operations are over", func() bool {
			return errors.Is(a.CancelOperation(b.Ctx, p), projection.ErrOperationNotFound)
		})
		b.Must(a.WaitFor(b.Ctx, p, last))
		b.Eventually("nothing is parked", func() bool {
			_, err := letters.Replay(b.Ctx, projection.DeadLetterFilter{All: true, OutOfOrder: true}, 100_000)
			b.Must(err)
			return len(b.DeadLettersOf("p")) == 0
		})
		at := b.Positions("p")
		slices.Sort(at)
		if !prefix(at) || int64(len(at)) != last {
			t.Errorf("seed %d: of %d events, applied %v", seed, last, at)
		}
		if rebuilds.Load() == 0 {
			t.Error("nothing was rebuilt")
		}
	})
}
