package tests_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// batchWays are the moments at which a process that handles batches is killed. Each makes a handler that does it.
var batchWays = map[string]func(b *kit.Bundle) millrace.Handler{
	"in the handler, after its writes": func(b *kit.Bundle) millrace.Handler {
		dies := diesAtThird()
		return b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			err := tx.Record(ctx, "p", events...)
			dies()
			return err
		})
	},
	"in the handler, after it has queued its writes": func(b *kit.Bundle) millrace.Handler {
		dies := diesAtThird()
		return b.Store.Queued(func(_ context.Context, q kit.Queue, events []event.Envelope) error {
			q.Record("p", events...)
			dies()
			return nil
		})
	},
	"after a commit, when the next batch begins": func(b *kit.Bundle) millrace.Handler {
		dies := diesAtThird()
		return b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			dies()
			return tx.Record(ctx, "p", events...)
		})
	},
	"once a commit is visible": func(b *kit.Bundle) millrace.Handler {
		dieOnceVisible(b)
		return b.Store.Batch(kit.Record("p"))
	},
	"once a commit of queued writes is visible": func(b *kit.Bundle) millrace.Handler {
		dieOnceVisible(b)
		return b.Store.Queued(kit.RecordQueued("p"))
	},
	outside: func(b *kit.Bundle) millrace.Handler {
		return b.Store.Batch(func(_ context.Context, _ kit.Tx, events []event.Envelope) error {
			for _, e := range events {
				if err := b.Store.Arrive(b.Ctx, kit.Arrival{Position: e.Position}); err != nil {
					return err
				}
			}
			kit.Die()
			return nil
		})
	},
}

// diesAtThird returns a function that kills this process when it is called for the third time.
func diesAtThird() func() {
	batches := 0
	return func() {
		batches++
		if batches == 3 {
			kit.Die()
		}
	}
}

// dieOnceVisible kills this process soon after its next commit.
func dieOnceVisible(b *kit.Bundle) {
	applied := func() int {
		all, _ := b.Store.Applied(b.Ctx, "p")
		return len(all)
	}
	before := applied()
	go func() {
		for n := before; n == before; n = applied() {
		}
		kit.Die()
	}()
}

// outside is the control: writes outside of the batch's transaction are repeated.
const outside = "outside of the transaction"

// The event at the position fifth ends every process that tries it.
const (
	fifth    = 5
	deadly   = "at one event"
	forever  = "at one event, with ActionRetry"
	queuedAt = "at one event of a queued handler"
	leased   = "at one event of a delivery"
	replayed = "at the replay of one event"
)

func isFifth(e event.Envelope) bool { return e.Position == fifth }

// grace is as long as a runtime waits for a handler that hangs.
const grace = 50 * time.Millisecond

// deadlyAt is the projection of a victim that dies at the fifth event.
func deadlyAt(t *testing.T, b *kit.Bundle, way string) millrace.Projection {
	p := millrace.Projection{Name: "p", MaxEvents: 10, OnFailure: projection.ActionPark,
		Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			if slices.ContainsFunc(events, isFifth) {
				kit.Die()
			}
			return tx.Record(ctx, "p", events...)
		})}
	switch way {
	case queuedAt:
		p.Handler = b.Store.QueuedEach(func(_ context.Context, q kit.Queue, e event.Envelope) error {
			q.Record("p", e)
			if isFifth(e) {
				kit.Die()
			}
			return nil
		})
	case leased:
		p.Handler = millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
			if isFifth(e.Envelope) {
				kit.Die()
			}
			return b.Store.Arrive(ctx, kit.Arrival{Position: e.Position, Token: e.Token})
		})
	case forever:
		p.OnFailure = projection.ActionRetry
		p.FailureHandler = func(_ context.Context, f projection.Failure) projection.Action {
			if !errors.Is(f.Err, projection.ErrProcessDied) || f.Event.Position != fifth || f.Attempt != 4 ||
				f.FirstFailedAt.IsZero() {
				t.Errorf("FailureHandler gets %+v", f)
			}
			return projection.ActionRetry
		}
	}
	return p
}

// otherVictims are ways of processes that other processes kill. Each runs until then.
var otherVictims = map[string]func(b *kit.Bundle){splitting: splitForEver}

// TestVictim runs in a process of its own, which other tests kill.
func TestVictim(t *testing.T) {
	b, way := kit.Victim(t)
	if other, ok := otherVictims[way]; ok {
		other(b)
		return
	}
	if step, ok := rebuildSteps[way]; ok {
		rebuildingVictim(b, step)
		return
	}
	if strings.HasPrefix(way, versionsWay) {
		runVersions(b, way)
		return
	}
	var p millrace.Projection
	if handler, ok := batchWays[way]; ok {
		p = millrace.Projection{Name: "p", MaxEvents: 10, Handler: handler(b)}
	} else if s, ok := deliverySteps[way]; ok {
		p = delivering(b, s)
	} else if way == webhookWay {
		p = webhooks(webhookURL())
	} else {
		p = deadlyAt(t, b, way)
	}
	rt := b.Runtime(kit.Quick, p)
	if way != replayed {
		b.RunUntilIdle(rt)
		return
	}
	defer b.Start(rt)()
	b.Eventually("the command has ended", func() bool {
		_, open, err := b.Store.Commands(b.Ctx)
		return err == nil && open == 0
	})
}

// deaths runs victims until one ends by itself, and returns how many were killed.
func deaths(b *kit.Bundle, way string, most int) (n int) {
	b.T.Helper()
	for ; b.Try(way); n++ {
		if n > most {
			b.T.Fatalf("%d processes died", n)
		}
	}
	return n
}

// mustHaveDied checks the dead letter of the event that ended processes, the first of so many.
func mustHaveDied(b *kit.Bundle, parked, attempts, replays int) {
	b.T.Helper()
	letters := b.DeadLettersOf("p")
	if len(letters) != parked || letters[0].Position != fifth || letters[0].Attempts != attempts ||
		letters[0].Replays != replays || letters[0].Error != projection.ErrProcessDied.Error() {
		b.T.Errorf("dead letters %+v", letters)
	}
}

// An event that ends every process that tries it is parked by a process that does not try it any more.
func TestEventThatEndsItsProcessIsParked(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for _, way := range []string{deadly, forever, queuedAt, leased} {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				b := kind.New(t)
				positions := b.Append("a", 20).Positions
				// After three deaths the projection is in quarantine. From then on attempts are counted, and the first
				// attempt and its three retries each end a process.
				if n := deaths(b, way, 10); n != 7 {
					t.Errorf("%d processes died, want 7", n)
				}
				parked := positions[fifth-1 : fifth]
				if way == forever { // the policy does not say how to park it
					parked = positions[fifth-1:]
				}
				mustHaveDied(b, len(parked), 4, 0)
				if way == leased {
					mustHaveArrivedIn(b, slices.Delete(positions, fifth-1, fifth), 0)
				} else {
					b.Verify("p", parked...)
				}
			})
		}
	})
}

// A dead letter that ends every process that replays it is given up, and everything else goes on.
func TestDeadLetterThatEndsItsProcessIsGivenUp(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 20)
		b.Idle(millrace.Projection{Name: "p",
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(fifth),
				func(_ context.Context, _ kit.Tx, _ int, position int64) error {
					return projection.At(position, projection.Park(kit.ErrOnPurpose))
				}))})
		result := b.Replaying("p")
		b.Eventually("the command is given", func() bool {
			all, _, err := b.Store.Commands(b.Ctx)
			return err == nil && all == 1
		})
		if n := deaths(b, replayed, 5); n < 1 || n > 3 {
			t.Errorf("%d processes died, want 1 to 3", n)
		}
		if r := <-result; r != (projection.CommandResult{Failed: 1}) {
			t.Errorf("replayed %+v", r)
		}
		mustHaveDied(b, 1, 2, 1)
		b.Append("a", 5)
		b.Idle(b.Recorders("p")...)
		b.Verify("p", fifth)
	})
}

func TestKilledProcessAppliesEverythingOnce(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for way := range batchWays {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				if way == outside { // of an open batch
					kind.MustMeet(t, kit.ConcurrentWrites)
				}
				b := kind.New(t)
				b.Append("a", 300)
				watcher := b.Runtime(millrace.Config{})
				for range 2 {
					b.Kill(way)
					if way == outside {
						continue
					}
					// The server may still execute a message of the process, between the two reads as well.
					b.Eventually("the checkpoint is that of what is applied", func() bool {
						applied, checkpoint := b.Positions("p"), b.Status(watcher, "p").Checkpoint
						return len(applied) > 0 && int64(len(applied)) == checkpoint &&
							slices.Max(applied) == checkpoint
					})
				}
				b.RunUntilIdle(b.Runtime(kit.Quick, b.Recorders("p")...))
				b.Verify("p")
				arrived, err := b.Store.Arrived(b.Ctx)
				b.Must(err)
				if way == outside && arrived[0].Position != arrived[len(arrived)/2].Position {
					t.Errorf("the writes outside of the transaction were not repeated: %v", arrived)
				}
			})
		}
	})
}

// An attempt that is counted in advance, since events seemed to end their processes, is not counted if the process ends
// gracefully.
func TestOrderlyEndIsNotCountedAsACrash(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 1)
		entered := make(chan struct{})
		slow := millrace.Projection{Name: "p",
			Handler: b.Store.Batch(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
				entered <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})}
		attempts := func() int {
			n, err := b.Store.CrashAttempts(b.Ctx)
			b.Must(err)
			return n
		}
		for i := range 6 {
			stop := b.Start(b.Runtime(millrace.Config{GracePeriod: grace}, slow))
			<-entered
			if n := attempts(); i > 0 && n != 1 {
				t.Errorf("%d attempts are counted in advance, want 1", n)
			}
			stop()
			if attempts() != 0 {
				t.Fatalf("after %d orderly ends %d attempts are counted", i+1, attempts())
			}
			if i == 0 {
				b.Must(b.Store.Quarantine(b.Ctx))
			}
		}
		if letters := b.DeadLettersOf("p"); len(letters) > 0 {
			t.Errorf("parked: %+v", letters)
		}
	})
}

// The same holds for a replay, which is always counted in advance.
func TestOrderlyEndOfAReplayIsNotCountedAsACrash(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for _, action := range []projection.Action{projection.ActionPark, projection.ActionParkStream} {
			t.Run(action.String(), func(t *testing.T) {
				t.Parallel()
				s := kit.NewParking(kind.New(t))
				s.P.OnFailure = action
				s.PoisonAt(s.At["a"][2])
				s.Idle(s.P)
				entered := make(chan struct{})
				hangs := s.P
				hangs.Handler = s.Store.Batch(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
					entered <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				})
				replayed := s.Replaying("p")
				for range 4 {
					stop := s.Start(s.Runtime(millrace.Config{GracePeriod: grace}, hangs))
					<-entered
					stop()
				}
				s.Mended.Store(true)
				s.Running(millrace.Config{}, s.P)
				if r := <-replayed; r.Failed != 0 || r.Done == 0 {
					t.Errorf("replayed %+v", r)
				}
				if n := len(s.Positions("p")); n != 30 || len(s.Parked()) != 0 {
					t.Errorf("%d events applied, want 30; parked: %v", n, s.Parked())
				}
			})
		}
	})
}
