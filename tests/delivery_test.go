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

// A handler that fails before its effect repeats nothing. One that fails after it repeats that effect.
func TestDeliveryComesInOrderWhateverFails(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		positions := append(b.Append("a", 60).Positions, b.Append("b", 60).Positions...)
		seed := kit.Seed(t)
		var single, batches kit.Receiver
		before, after := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
		repeats := 0
		rt := b.Runtime(millrace.Config{},
			millrace.Projection{Name: "single", MaxEvents: 16, Retry: kit.Soon(100),
				Handler: millrace.DeliverEach(single.Sends(func(context.Context, millrace.Delivered) error {
					switch before.IntN(6) {
					case 0:
						return kit.ErrOnPurpose
					case 1:
						panic(kit.ErrOnPurpose)
					}
					return nil
				}))},
			millrace.Projection{Name: "batches", MaxEvents: 16, Retry: kit.Soon(100),
				Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
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
			if s := b.Status(rt, name); s.Parked != 0 || s.Checkpoint != positions[len(positions)-1] ||
				s.Attempts != 0 && s.FailingPosition == 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
	})
}

// The end of a runtime, and a pause, wait for the event in progress and for no other.
func TestStopAndPauseWaitForTheEventInProgressOfADelivery(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for _, pause := range []bool{false, true} {
			b := kind.New(t)
			positions := b.Append("a", 10).Positions
			var r kit.Receiver
			resting := make(chan struct{})
			p := millrace.Projection{Name: "p", Retry: kit.Soon(0),
				Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
					for _, e := range d.Events() {
						if d.Remaining() == 0 {
							break
						}
						if e.Position == 3 {
							close(resting)
							for d.Remaining() > 0 {
								kit.Pass(ctx, time.Millisecond)
							}
						}
						r.Take(e.Position, d.Token(e))
						if ctx.Err() != nil {
							t.Errorf("paused: %v: the event in progress is cut short", pause)
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
			if pause {
				b.Pause(first, "p")
			}
			stop()
			if s := b.Status(first, "p"); s.Checkpoint != 3 || s.Owner != "" || s.Attempts != 0 {
				t.Errorf("paused: %v: at rest: %+v", pause, s)
			}
			if pause {
				b.Resume(first, "p")
			}
			p.Handler = millrace.DeliverEach(r.Sends(kit.Freely))
			b.RunUntilIdle(b.Another(millrace.Config{}, p))
			b.MustHaveArrived(r.All(), positions, 0)
		}
	})
}

func TestRejectedEventsAreParkedAndReplayedWithTheSameToken(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		letters := b.Store.DeadLetters(millrace.ProjectionID{Name: "p"})
		positions := b.Append("a", 30).Positions
		var r kit.Receiver
		var mended atomic.Bool
		refused := make(map[int64]string)
		var mu sync.Mutex
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
			MaxEvents: 8, Retry: kit.Soon(0), OnFailure: projection.ActionPark,
			Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
				for _, e := range d.Events() {
					if e.Position%7 == 0 && !mended.Load() {
						mu.Lock()
						refused[e.Position] = d.Token(e)
						mu.Unlock()
						if err := d.Reject(ctx, e.Position,
							fmt.Errorf("%w: not wanted", kit.ErrOnPurpose)); err != nil {
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
		b.Reaches(rt, "p", positions[29])
		b.MustHaveArrived(r.All(), slices.DeleteFunc(slices.Clone(positions), func(p int64) bool { return p%7 == 0 }),
			0)
		if all := b.DeadLettersOf("p"); len(all) != 4 || all[0].Position != 7 || all[0].Attempts != 1 ||
			!strings.Contains(all[0].Error, "not wanted") {
			t.Errorf("dead letters %+v", all)
		}
		if s := b.Status(rt, "p"); s.Parked != 4 {
			t.Errorf("%+v", s)
		}
		// A replay that is rejected has failed, and one that succeeds has the same token.
		if o, err := letters.Replay(b.Ctx, projection.DeadLetterFilter{All: true, OutOfOrder: true}, 2); err != nil ||
			o.Failed != 2 || o.Done != 0 {
			t.Errorf("replayed %+v, %v", o, err)
		}
		mended.Store(true)
		before := len(r.All())
		if o := <-b.Replaying("p"); o.Done != 4 {
			t.Errorf("replayed %+v", o)
		}
		for _, a := range r.All()[before:] {
			if a.Token == "" || refused[a.Position] != a.Token {
				t.Errorf("position %d was rejected with token %q and replayed with %q", a.Position, refused[a.Position],
					a.Token)
			}
		}
		if s := b.Status(rt, "p"); len(r.All()) != 30 || s.Parked != 0 || s.Checkpoint != positions[29] {
			t.Errorf("%d arrivals, %+v", len(r.All()), s)
		}
	})
}

// rejectAll is a handler that rejects each event.
func rejectAll(ctx context.Context, d *millrace.Delivery) error {
	for _, e := range d.Events() {
		if err := d.Reject(ctx, e.Position, kit.ErrOnPurpose); err != nil {
			return err
		}
	}
	return nil
}

func TestRejectingNearlyEverythingStopsTheProjection(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for name, p := range map[string]millrace.Projection{
			"20 of the last 20 events failed":                                          {},
			"3 events that failed are parked, which is the limit Projection.MaxParked": {MaxParked: 3},
		} {
			b := kind.New(t)
			b.Append("a", 60)
			p.Name, p.OnFailure = "p", projection.ActionPark
			p.Handler = millrace.Deliver(rejectAll)
			rt := b.Runtime(millrace.Config{}, p)
			_, err := rt.RunUntilIdle(b.Ctx)
			if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			if s := b.Status(rt, "p"); s.Parked != s.Checkpoint || s.Parked != int64(len(b.DeadLettersOf("p"))) {
				t.Errorf("%s: %+v", name, s)
			}
		}
	})
}

// The order of parked streams is that of transactional handlers. A delivery parks between its events.
func TestDeliveryParksStreamsInOrder(t *testing.T) {
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
		live := slices.Concat(s.At["a"][:3], s.At["c"])
		slices.Sort(live)
		s.MustHaveArrived(r.All(), live, 0)
		s.Mended.Store(true)
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, len(s.At["a"])-3+len(s.At["b"]), 0)
		last := s.More("a", "b")
		s.CatchUp(rt)
		var replayed []int64
		for _, a := range r.All()[len(live):] {
			replayed = append(replayed, a.Position)
		}
		if want := slices.Concat(s.At["b"][:len(s.At["b"])-1], s.At["a"][3:len(s.At["a"])-1],
			[]int64{last - 1, last}); !slices.Equal(replayed, want) {
			t.Errorf("replayed %v, want %v", replayed, want)
		}
	})
}

// Receivers that hang take no slot of a transaction, and only the slots of deliveries.
func TestDeliveriesThatHangLeaveTransactionsTheirSlots(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		positions := b.Append("a", 3).Positions
		entered, leave := make(chan struct{}, 100), make(chan struct{})
		hangs := func(context.Context, millrace.Delivered) error {
			entered <- struct{}{}
			<-leave
			return nil
		}
		projections := b.Recorders("p")
		for _, name := range []string{"q", "r", "s"} {
			projections = append(projections, millrace.Projection{Name: name, Handler: millrace.DeliverEach(hangs)})
		}
		rt := b.Running(millrace.Config{MaxBatches: 2, MaxDeliveries: 2}, projections...)
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
						if attempts.Add(1) != int64(f.Attempt) || f.Event.Position != poison ||
							!errors.Is(f.Err, kit.ErrOnPurpose) {
							t.Errorf("FailureHandler gets %+v", f)
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
				b.MustHaveArrived(r.All(), slices.DeleteFunc(slices.Clone(positions),
					func(p int64) bool { return p == poison }), 0)
				if letters := b.DeadLettersOf("p"); calls.Load() != 3 || len(letters) != 1 ||
					letters[0].Position != poison || letters[0].Attempts != 3 {
					t.Errorf("%d calls for the poison event, want 3; dead letters %+v", calls.Load(), letters)
				}
			})
		}
	})
}
