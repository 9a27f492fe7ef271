package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Handlers that fail before the effect repeat nothing; those that fail after it repeat that one.
func TestLeasedDeliveryComesInOrderWhateverFails(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		positions := append(b.Append("a", 60).Positions, b.Append("b", 60).Positions...)
		seed := kit.DeliverySeed(t)
		var single, batches kit.Receiver
		before, after := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
		repeats := 0
		rt := b.Runtime(millrace.Config{},
			millrace.Projection{Name: "single", MaxEvents: 16, Retry: kit.Soon(100), Handler: millrace.DeliverEach(single.Sends(func(context.Context, millrace.Delivered) error {
				switch before.IntN(6) {
				case 0:
					return kit.ErrOnPurpose
				case 1:
					panic(kit.ErrOnPurpose)
				}
				return nil
			}))},
			millrace.Projection{Name: "batches", MaxEvents: 16, Retry: kit.Soon(100), Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
				for i, e := range d.Events() {
					times := batches.Take(e.Position, d.Token(e))
					if after.IntN(6) == 0 {
						repeats++
						return kit.ErrOnPurpose
					}
					if times > 15 {
						return projection.Stop(errors.New("it comes again and again"))
					}
					if err := d.Ack(ctx, e.Position); err != nil {
						return err
					}
					if i == 9 {
						return nil // the rest comes at once
					}
				}
				return nil
			})})
		b.RunUntilIdle(rt)
		b.MustHaveArrived(single.All(), positions, 0)
		b.MustHaveArrived(batches.All(), positions, repeats)
		for _, name := range []string{"single", "batches"} {
			if s := b.Status(rt, name); s.Parked != 0 || s.Checkpoint != positions[len(positions)-1] || s.Attempts != 0 && s.FailingPosition == 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
	})
}

// A runtime that ends, and a projection that is paused, wait for the event that is under way and for no other.
func TestRestComesBetweenTwoEventsOfADelivery(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for name, rest := range map[string]func(b *kit.Bundle, rt *millrace.Runtime, stop func()){
			"stop": func(_ *kit.Bundle, _ *millrace.Runtime, stop func()) { stop() },
			"pause": func(b *kit.Bundle, rt *millrace.Runtime, stop func()) {
				b.Pause(rt, "p")
				b.Eventually("it is paused and at rest", func() bool { s := b.Status(rt, "p"); return s.State == millrace.StatePaused && s.Position == 3 })
				stop()
				b.Resume(rt, "p")
			},
		} {
			b := kind.New(t)
			positions := b.Append("a", 10).Positions
			var r kit.Receiver
			resting := make(chan struct{})
			p := millrace.Projection{Name: "p", Retry: kit.Soon(0), Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
				deliver := r.Sends(func(ctx context.Context, e millrace.Delivered) error {
					if e.Position != 3 {
						return nil
					}
					close(resting)
					for d.Remaining() > 0 {
						kit.Pass(ctx, time.Millisecond)
					}
					if ctx.Err() != nil {
						t.Errorf("%s: the event under way is cut short", name)
					}
					return nil
				})
				for _, e := range d.Events() {
					if d.Remaining() == 0 {
						break
					}
					if err := deliver(ctx, millrace.Delivered{Envelope: e, Token: d.Token(e)}); err != nil {
						return err
					}
					if err := d.Ack(ctx, e.Position); err != nil {
						return err
					}
				}
				return nil
			})}
			first := b.Runtime(millrace.Config{}, p)
			stop := b.Start(first)
			<-resting
			rest(b, first, stop)
			if s := b.Status(first, "p"); s.Checkpoint != 3 || s.Owner != "" || s.Attempts != 0 {
				t.Errorf("%s: at rest: %+v", name, s)
			}
			p.Handler = millrace.DeliverEach(r.Sends(kit.Freely))
			b.RunUntilIdle(b.Another(millrace.Config{}, p))
			b.MustHaveArrived(r.All(), positions, 0)
		}
	}, kit.SeveralNodes)
}

func TestRejectedEventsAreParkedAndReplayedWithTheSameToken(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		id := millrace.ProjectionID{Name: "p"}
		positions := b.Append("a", 30).Positions
		var r kit.Receiver
		var mended atomic.Bool
		refused := make(map[int64]string)
		var mu sync.Mutex
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", MaxEvents: 8, Retry: kit.Soon(0), Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			for _, e := range d.Events() {
				if e.Position%7 == 0 && !mended.Load() {
					mu.Lock()
					refused[e.Position] = d.Token(e)
					mu.Unlock()
					if err := d.Reject(ctx, e.Position, fmt.Errorf("%w: nobody wants it", kit.ErrOnPurpose)); err != nil {
						return err
					}
					continue
				}
				r.Take(e.Position, d.Token(e))
				if err := d.Ack(ctx, e.Position); err != nil {
					return err
				}
			}
			return nil
		})})
		b.Start(rt)
		b.Reaches(rt, "p", positions[29])
		b.MustHaveArrived(r.All(), slices.DeleteFunc(slices.Clone(positions), func(p int64) bool { return p%7 == 0 }), 0)
		letters := b.Letters("p")
		if len(letters) != 4 || letters[0].Position != 7 || letters[0].Attempts != 1 || !strings.Contains(letters[0].Error, "nobody wants it") {
			t.Errorf("dead letters %+v", letters)
		}
		if s := b.Status(rt, "p"); s.Parked != 4 {
			t.Errorf("%+v", s)
		}
		// A replay that is rejected has failed, and one that succeeds has the same token.
		if o, err := b.Store.DeadLetters(id).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 2); err != nil || o.Failed != 2 || o.Done != 0 {
			t.Errorf("replayed %+v, %v", o, err)
		}
		mended.Store(true)
		before := len(r.All())
		if o, err := b.Store.DeadLetters(id).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 100); err != nil || o.Done != 4 {
			t.Errorf("replayed %+v, %v", o, err)
		}
		for _, a := range r.All()[before:] {
			if a.Token == "" || refused[a.Position] != a.Token {
				t.Errorf("position %d was rejected with token %q and replayed with %q", a.Position, refused[a.Position], a.Token)
			}
		}
		if s := b.Status(rt, "p"); len(r.All()) != 30 || s.Parked != 0 || s.Checkpoint != positions[29] {
			t.Errorf("%d arrivals, %+v", len(r.All()), s)
		}
	})
}

func TestRejectingNearlyEverythingStopsTheProjection(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for name, p := range map[string]millrace.Projection{
			"20 of the last 20 events failed":                     {},
			"3 events are parked, and no more may be (MaxParked)": {MaxParked: 3},
		} {
			b := kind.New(t)
			b.Append("a", 60)
			p.Name = "p"
			p.Handler = millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
				for _, e := range d.Events() {
					if err := d.Reject(ctx, e.Position, kit.ErrOnPurpose); err != nil {
						return err
					}
				}
				return nil
			})
			rt := b.Runtime(millrace.Config{}, p)
			_, err := rt.RunUntilIdle(b.Ctx)
			if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			if s := b.Status(rt, "p"); s.Parked != s.Checkpoint || s.Parked != int64(len(b.Letters("p"))) {
				t.Errorf("%s: %+v", name, s)
			}
		}
	})
}

// The whole story of parked streams is that of transactional handlers; a delivery parks on its way.
func TestLeasedDeliveryParksStreamsInOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		var r kit.Receiver
		s.P.Handler = millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
			if _, bad := s.Poison.Load(e.Position); bad && !s.Mended.Load() {
				return kit.ErrOnPurpose
			}
			r.Take(e.Position, e.Token)
			return nil
		})
		s.PoisonAt(s.At["a"][3], s.At["b"][0])
		rt := s.Running(millrace.Config{}, s.P)
		s.More("a", "b", "c", "b", "c")
		s.CatchUp(rt)
		parked := slices.Concat(s.At["a"][3:], s.At["b"])
		slices.Sort(parked)
		if got := s.Parked(); !slices.Equal(got, parked) {
			t.Errorf("parked: %v, want %v", got, parked)
		}
		live := slices.Concat(s.At["a"][:3], s.At["c"])
		slices.Sort(live)
		s.MustHaveArrived(r.All(), live, 0)
		s.Mended.Store(true)
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, len(parked), 0)
		last := s.More("a", "b")
		s.CatchUp(rt)
		var replayed []int64
		for _, a := range r.All()[len(live):] {
			replayed = append(replayed, a.Position)
		}
		if want := slices.Concat(s.At["b"][:len(s.At["b"])-1], s.At["a"][3:len(s.At["a"])-1], []int64{last - 1, last}); !slices.Equal(replayed, want) {
			t.Errorf("replayed %v, want %v", replayed, want)
		}
	})
}

// Receivers that hang take no turn of a transaction, and no more than the deliveries' own.
func TestDeliveriesThatHangLeaveTransactionsTheirTurn(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		positions := b.Append("a", 3).Positions
		entered, leave := make(chan struct{}, 100), make(chan struct{})
		hangs := func(context.Context, millrace.Delivered) error {
			entered <- struct{}{}
			<-leave
			return nil
		}
		rt := b.Runtime(millrace.Config{MaxBatches: 2, MaxDeliveries: 2}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))},
			millrace.Projection{Name: "q", Handler: millrace.DeliverEach(hangs)}, millrace.Projection{Name: "r", Handler: millrace.DeliverEach(hangs)}, millrace.Projection{Name: "s", Handler: millrace.DeliverEach(hangs)})
		b.Start(rt)
		<-entered
		<-entered
		b.Reaches(rt, "p", positions[2])
		b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
		select {
		case <-entered:
			t.Error("there are more deliveries at once than may be")
		default:
		}
		close(leave)
		for _, name := range []string{"q", "r", "s"} {
			b.Reaches(rt, name, positions[2])
		}
	})
}

// A failure in the middle of a delivery is counted at once, without narrowing, and what was done before it stays.
func TestFailureOfADeliveredEventIsCountedWithoutNarrowing(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for _, at := range []int{0, 17, 39} {
			t.Run(fmt.Sprint("event ", at), func(t *testing.T) {
				t.Parallel()
				b := kind.New(t)
				positions := b.Append("a", 40).Positions
				poison := positions[at]
				var r kit.Receiver
				var calls, attempts atomic.Int64
				b.Idle(millrace.Projection{Name: "p", Retry: kit.Soon(2),
					FailureHandler: func(_ context.Context, f projection.Failure) projection.Action {
						if attempts.Add(1) != int64(f.Attempt) || f.Event.Position != poison || !errors.Is(f.Err, kit.ErrOnPurpose) {
							t.Errorf("FailureHandler is told %+v", f)
						}
						if f.Attempt < 3 {
							return projection.ActionRetry
						}
						return projection.ActionPark
					},
					Handler: millrace.DeliverEach(r.Sends(func(_ context.Context, e millrace.Delivered) error {
						if e.Position == poison {
							calls.Add(1)
							return kit.ErrOnPurpose
						}
						return nil
					}))})

				b.MustHaveArrived(r.All(), slices.DeleteFunc(slices.Clone(positions), func(p int64) bool { return p == poison }), 0)
				if letters := b.Letters("p"); calls.Load() != 3 || len(letters) != 1 || letters[0].Position != poison || letters[0].Attempts != 3 {
					t.Errorf("%d calls for the poison event, want 3; dead letters %+v", calls.Load(), letters)
				}
			})
		}
	})
}
