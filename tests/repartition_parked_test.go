package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// ailing is a projection at some of whose events the handler fails until it is mended. Streams whose names begin with s
// are parked as a whole.
type ailing struct {
	*kit.Bundle
	mended atomic.Bool
	// hold, if it is set, is called before each event.
	hold atomic.Pointer[func(ctx context.Context, e event.Envelope)]
}

func (a *ailing) poison(position int64) bool { return position%7 == 3 && !a.mended.Load() }

func (a *ailing) projection() millrace.Projection {
	return millrace.Projection{Name: "p", MaxEvents: 20, Retry: kit.Soon(1), MaxParked: projection.NoLimit,
		MaxFailureShare: projection.NoLimit,
		FailureHandler: func(_ context.Context, f projection.Failure) projection.Action {
			if f.Event.Stream[0] == 's' {
				return projection.ActionParkStream
			}
			return projection.ActionPark
		},
		Handler: a.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if hold := a.hold.Load(); hold != nil {
				(*hold)(ctx, e)
			}
			if a.poison(e.Position) {
				return kit.ErrOnPurpose
			}
			return tx.Record(ctx, "p", e)
		})}
}

// fill appends rounds of one event to each of 16 streams, and waits until a runtime has handled them. It returns how
// many events are parked.
func (a *ailing) fill(rt *millrace.Runtime, rounds int) int64 {
	a.T.Helper()
	for range rounds {
		for i := range 8 {
			a.Append(fmt.Sprint("s", i), 1)
			a.Append(fmt.Sprint("e", i), 1)
		}
	}
	a.Reaches(rt, "p", a.Head())
	return a.letters()
}

func (a *ailing) letters() int64 {
	a.T.Helper()
	n, err := a.Store.DeadLetters(idOfP).Count(a.Ctx, projection.DeadLetterFilter{All: true})
	a.Must(err)
	return n
}

func TestReplayContinuesAfterAResplit(t *testing.T) {
	for name, into := range map[string][]int{"more partitions": {1, 7}, "fewer": {7, 2}, "one": {5, 1},
		"several times": {3, 8, 2, 5, 1, 4}} {
		t.Run(name, func(t *testing.T) {
			kit.Run(t, func(t *testing.T, b *kit.Bundle) {
				a := &ailing{Bundle: b}
				rt := b.Running(millrace.Config{}, a.projection())
				b.Reaches(rt, "p", 0)
				b.Must(rt.Repartition(b.Ctx, idOfP, into[0]))
				parked := a.fill(rt, 10)
				a.mended.Store(true)
				// Each re-split comes in the middle of a replay, and cancels its handler.
				reached := make(chan struct{}, 100)
				var begun atomic.Int64
				hold := func(ctx context.Context, e event.Envelope) {
					if n := int(begun.Add(1)); n%9 == 0 && n <= 9*(len(into)-1) {
						reached <- struct{}{}
						<-ctx.Done()
					}
				}
				a.hold.Store(&hold)
				result := b.Replaying("p")
				for _, n := range into[1:] {
					select {
					case <-reached:
					case r := <-result:
						t.Fatalf("the replay ended with %+v", r)
					}
					b.Must(rt.Repartition(b.Ctx, idOfP, n))
				}
				if r := <-result; r != (projection.CommandResult{Done: parked}) {
					t.Fatalf("%+v, want %d done", r, parked)
				}
				if n := a.letters(); n != 0 {
					t.Errorf("%d events are parked", n)
				}
				applies(b, "p")
			}, kit.ConcurrentWrites)
		})
	}
}

// A command on one partition can be waited for and cancelled after its partition is gone.
func TestCommandOnAPartitionOutlivesIt(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		a := &ailing{Bundle: b}
		rt := b.Running(millrace.Config{}, a.projection())
		b.Reaches(rt, "p", 0)
		b.Must(rt.Repartition(b.Ctx, idOfP, 2))
		parked := a.fill(rt, 10)
		a.mended.Store(true)
		reached := make(chan struct{})
		stop := sync.OnceFunc(func() { close(reached) })
		hold := func(ctx context.Context, _ event.Envelope) {
			stop()
			<-ctx.Done()
		}
		a.hold.Store(&hold)
		second := b.Store.DeadLetters(millrace.ProjectionID{Name: "p", Partition: 2})
		replayed := make(chan projection.CommandResult, 1)
		go func() {
			result, err := second.Replay(b.Ctx, projection.DeadLetterFilter{All: true, OutOfOrder: true}, 1000)
			if err != nil {
				t.Error(err)
			}
			replayed <- result
		}()
		<-reached
		b.Must(rt.Repartition(b.Ctx, idOfP, 1))
		a.hold.Store(nil)
		result := <-replayed
		if left := a.letters(); result.Done == 0 || left != parked-result.Done {
			t.Errorf("%+v; %d of %d are parked", result, left, parked)
		}
		b.Must(second.Cancel(b.Ctx, result.Command))
		if again, err := second.Wait(b.Ctx, result.Command); err != nil || again != result {
			t.Errorf("%+v, %v; it was %+v", again, err, result)
		}
	}, kit.ConcurrentWrites)
}

func TestDiscardOfAPausedProjectionEndsWithAResplit(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		a := &ailing{Bundle: b}
		rt := b.Running(millrace.Config{}, a.projection())
		parked := a.fill(rt, 5)
		b.Pause(rt, "p")
		result := make(chan projection.CommandResult, 1)
		go func() {
			r, err := b.Store.DeadLetters(idOfP).Discard(b.Ctx, projection.DeadLetterFilter{All: true}, 1000)
			if err != nil {
				t.Error(err)
			}
			result <- r
		}()
		b.Must(rt.Repartition(b.Ctx, idOfP, 3))
		if r := <-result; r.Done != parked {
			t.Errorf("%+v, want %d done", r, parked)
		}
		// The partitions are paused like the projection before.
		b.Append("s1", 1)
		if err := rt.WaitFor(b.Ctx, idOfP, b.Head()); !errors.Is(err, projection.ErrPaused) {
			t.Error(err)
		}
		b.Resume(rt, "p")
		b.Reaches(rt, "p", b.Head())
	})
}

// Random re-splits, replays, pauses and takeovers while events are appended, some of which fail at first.
func TestResplitsAmongFailuresReplaysPausesAndTakeovers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		seed := kit.Seed(t)
		random := rand.New(rand.NewPCG(seed, 1))
		a := &ailing{Bundle: b}
		config := kit.Quick
		nodes, stops := make([]*millrace.Runtime, 3), make([]func(), 3)
		start := func(i int) {
			nodes[i] = b.Another(config, a.projection())
			stops[i] = b.Start(nodes[i])
		}
		for i := range nodes {
			start(i)
		}
		b.Reaches(nodes[0], "p", 0)
		var replays sync.WaitGroup
		stopFlow := a.flow()
		for range 15 {
			admin := nodes[random.IntN(3)]
			switch random.IntN(6) {
			case 0, 1, 2:
				b.Must(admin.Repartition(b.Ctx, idOfP, 1+random.IntN(16)))
			case 3:
				replays.Go(func() {
					_, err := b.Store.DeadLetters(idOfP).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 10)
					if err != nil {
						t.Error(err)
					}
				})
			case 4:
				b.Must(admin.Pause(b.Ctx, idOfP))
				b.Must(admin.Repartition(b.Ctx, idOfP, 1+random.IntN(16)))
				b.Must(admin.Resume(b.Ctx, idOfP))
			case 5:
				i := random.IntN(3)
				stops[i]()
				start(i)
			}
			kit.Pass(b.Ctx, time.Duration(random.Int64N(int64(100*time.Millisecond))))
		}
		stopFlow()
		replays.Wait()
		b.Reaches(nodes[0], "p", b.Head())
		a.mended.Store(true)
		letters := a.letters()
		if r := <-b.Replaying("p"); r.Done != letters || r.Failed != 0 {
			t.Errorf("%+v, want %d done", r, letters)
		}
		if n := a.letters(); n != 0 {
			t.Errorf("%d events are parked", n)
		}
		applies(b, "p")
	})
}

// flow appends to 32 streams until stop is called.
func (a *ailing) flow() (stop func()) {
	ctx, cancel := context.WithCancel(a.Ctx)
	var group sync.WaitGroup
	for w := range 2 {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				stream := fmt.Sprint([]string{"s", "e"}[i%2], (i/2)%8, "-", w)
				if _, err := a.Store.Append(a.Ctx, stream, event.Any, event.Event{Type: "counted"}); err != nil {
					a.T.Error(err)
				}
				kit.Pass(ctx, 3*time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}
