package tests_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// Dynamic SQL may name a missing object for one event alone.
func TestObjectMissingForOneEventIsCountedAfterTheTimeout(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 30).Positions[12]
		var first, last atomic.Int64
		const wait = 700 * time.Millisecond
		b.Idle(millrace.Projection{Name: "p", MaxEvents: 8, OnFailure: projection.ActionPark, Retry: kit.Soon(1),
			MissingObjectTimeout: wait,
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(poison),
				func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
					if batch == 1 {
						first.CompareAndSwap(0, time.Now().UnixNano())
						last.Store(time.Now().UnixNano())
					}
					return tx.Exec(ctx, "insert into of_another_time values (1)")
				}))},
			millrace.Projection{Name: "at once", MaxEvents: 8, OnFailure: projection.ActionPark, Retry: kit.Soon(1),
				MissingObjectTimeout: projection.None,
				Handler: b.Store.Batch(kit.FailsAt("at once", kit.Only(poison),
					func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
						return tx.Exec(ctx, "insert into of_another_time values (1)")
					}))})

		for _, name := range []string{"p", "at once"} {
			b.Verify(name, poison)
			if letters := b.DeadLettersOf(name); len(letters) != 1 || letters[0].Attempts != 2 ||
				!strings.Contains(letters[0].Error, "of_another_time") {
				t.Errorf("%s: parked %+v", name, letters)
			}
		}
		if over := time.Duration(last.Load() - first.Load()); over < wait {
			t.Errorf("parked after %v", over)
		}
	})
}

func TestDeadLettersAreDiscardedWhileAnObjectIsMissing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 2)
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
			MaxEvents: 1, Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				if e.Position == 1 {
					return projection.Park(errors.New("no"))
				}
				return tx.Exec(ctx, "insert into forgotten values (1)")
			})})
		b.Is(rt, "p", admin.StateMissingObject)
		o, err := b.Store.DeadLetters(projection.ID{Name: "p"}).Discard(b.Ctx, projection.DeadLetterFilter{All: true},
			1)
		if err != nil || o.Done != 1 {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

// TestRestoredTenantStaysStoppedWhenNewEventsPassTheCheckpoint hides the loss under new events, which get the
// positions of the lost ones. The stop is kept in the database, so that neither the new events nor another node end it.
func TestRestoredTenantStaysStoppedWhenNewEventsPassTheCheckpoint(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		id := millrace.ProjectionID{Name: "p"}
		run := func() (*millrace.Runtime, func()) {
			rt := b.Runtime(millrace.Config{PollInterval: 50 * time.Millisecond}, b.Recorders("p")...)
			return rt, b.Start(rt)
		}
		rt, stop := run()
		elsewhere := b.Runtime(millrace.Config{})
		b.Reaches(rt, "p", b.Append("a", 10).Positions[9])
		b.Must(b.Store.Truncate(b.Ctx, 4))
		stopped := func() bool {
			p := b.Status(elsewhere, "p")
			return p.State == admin.StateFailed && strings.Contains(p.Reason, tenancy.ErrRestored.Error())
		}
		b.Eventually("every process says that events are gone", stopped)
		for _, process := range []*millrace.Runtime{rt, elsewhere} {
			if err := process.WaitFor(b.Ctx, id, 11); !errors.Is(err, projection.ErrFailed) ||
				!errors.Is(err, tenancy.ErrRestored) {
				t.Errorf("waiting for it: %v", err)
			}
		}
		if tenant := b.StatusOf(rt).Tenants[0]; tenant.Reason == "" {
			t.Errorf("the tenant gives no reason: %+v", tenant)
		}
		last := b.Append("a", 20).Positions[19]
		if last != 24 {
			t.Fatalf("the last event is at %d, and the positions were not handed out again", last)
		}
		stop()
		rt, _ = run()
		b.Eventually("the next owner runs it",
			func() bool { return b.Status(rt, "p").Owner != "" && b.Status(rt, "p").NotOwned == 0 })
		if err := rt.WaitFor(b.Ctx, id, last); !errors.Is(err, projection.ErrFailed) || !stopped() {
			t.Errorf("the next owner goes on: %v, %+v", err, b.Status(rt, "p"))
		}
		// Resumed, it applies what follows the checkpoint.
		b.Resume(rt, "p")
		b.Eventually("it goes on", func() bool { return b.Status(rt, "p").Checkpoint == last })
	})
}

// TestRestoreIsNoticedWhileWritersContinue lets the first append after a restore find it, long before the next poll.
func TestRestoreIsNoticedWhileWritersContinue(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{PollInterval: time.Hour}, b.Recorders("p")...)
		b.Reaches(rt, "p", b.Append("a", 10).Positions[9])
		b.Must(b.Store.Truncate(b.Ctx, 4))
		b.Eventually("the projection says that its events are gone", func() bool {
			if b.Status(rt, "p").State == admin.StateFailed {
				return true
			}
			if b.Append("a", 1).Positions[0] > 8 {
				t.Fatal("it was not noticed in time")
			}
			kit.Pass(b.Ctx, 1200*time.Millisecond)
			return false
		})
	})
}

func TestRunUntilIdleReportsAProjectionWhoseEventsAreGone(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 10)
		rt := b.Idle(b.Recorders("p")...)
		b.Must(b.Store.Truncate(b.Ctx, 4))
		if _, err := rt.RunUntilIdle(b.Ctx); !errors.Is(err, projection.ErrFailed) ||
			!errors.Is(err, tenancy.ErrRestored) {
			t.Errorf("RunUntilIdle: %v", err)
		}
	})
}
