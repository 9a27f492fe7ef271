package tests_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Dynamic SQL may name something missing for one event alone.
func TestWhatIsMissingForOneEventAloneIsCountedAfterATime(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 30).Positions[12]
		var first, last atomic.Int64
		const wait = 700 * time.Millisecond
		b.Idle(millrace.Projection{Name: "p", MaxEvents: 8, Retry: kit.Soon(1), MissingObjectTimeout: wait,
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(poison), func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
				if batch == 1 {
					first.CompareAndSwap(0, time.Now().UnixNano())
					last.Store(time.Now().UnixNano())
				}
				return tx.Exec(ctx, "insert into of_another_time values (1)")
			}))},
			millrace.Projection{Name: "at once", MaxEvents: 8, Retry: kit.Soon(1), MissingObjectTimeout: -1,
				Handler: b.Store.Batch(kit.FailsAt("at once", kit.Only(poison), func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
					return tx.Exec(ctx, "insert into of_another_time values (1)")
				}))})

		for _, name := range []string{"p", "at once"} {
			b.Verify(name, poison)
			if letters := b.Letters(name); len(letters) != 1 || letters[0].Attempts != 2 || !strings.Contains(letters[0].Error, "of_another_time") {
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
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", MaxEvents: 1, Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if e.Position == 1 {
				return projection.Park(errors.New("no"))
			}
			return tx.Exec(ctx, "insert into forgotten values (1)")
		})})
		b.Start(rt)
		b.Is(rt, "p", millrace.StateMissingObject)
		o, err := b.Store.DeadLetters(projection.ID{Name: "p"}).Discard(b.Ctx, projection.DeadLetterFilter{All: true}, 1)
		if err != nil || o.Done != 1 {
			t.Errorf("%+v, %v", o, err)
		}
	})
}
