package tests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// A handler that appends with its own context appends nothing, and its batch is repeated after another failure.
func TestRepeatedBatchDoesNotAppendTwice(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 1)
		calls := 0
		b.Idle(millrace.Projection{Name: "p", Retry: kit.Soon(2),
			Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				if e.Stream != "s" {
					return nil
				}
				calls++
				if _, err := b.Store.Append(ctx, "refunds", event.Any, kit.SomeEvents(1)...); !errors.Is(err,
					projection.ErrWithinTx) {
					t.Errorf("append: %v", err)
				}
				if calls == 1 {
					return kit.ErrOnPurpose
				}
				return tx.Record(ctx, "p", e)
			})})
		b.Verify("p")
		if calls < 2 || len(b.All(b.Store)) != 1 {
			t.Errorf("%d calls, %d events", calls, len(b.All(b.Store)))
		}
	})
}

// With OutsideTx an append commits although the transaction fails. A file refuses it until the transaction has ended.
func TestOutsideTxCommitsWithoutTheTransaction(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var within context.Context
		appends := func(ctx context.Context) error {
			_, err := b.Store.Append(projection.OutsideTx(ctx), "audit", event.Any, kit.SomeEvents(1)...)
			return err
		}
		err := b.Store.InTx(b.Ctx, func(ctx context.Context, _ kit.Tx) error {
			within = ctx
			err := appends(ctx)
			if concurrent := b.Kind.Meets(kit.ConcurrentWrites); (err == nil) != concurrent ||
				!concurrent && !errors.Is(err, projection.ErrWithinTx) {
				t.Errorf("in the transaction: %v", err)
			}
			return kit.ErrOnPurpose
		})
		if !errors.Is(err, kit.ErrOnPurpose) {
			t.Errorf("InTx: %v", err)
		}
		want := 1
		if b.Kind.Meets(kit.ConcurrentWrites) {
			want = 2
		}
		b.Must(appends(within))
		if n := len(b.All(b.Store)); n != want {
			t.Errorf("%d events, want %d", n, want)
		}
	})
}

// Within a transaction, a command that has ended has its result, and no other one is waited for: in a file it cannot
// end meanwhile.
func TestCommandIsNotWaitedForWithinATransaction(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		d := newDrawer(b, 1)
		d.park(d.at["a"][0], false)
		command := d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 10)
		wait := func() (result projection.CommandResult, err error) {
			b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, _ kit.Tx) error {
				ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
				defer cancel()
				result, err = d.letters().Wait(ctx, command)
				return nil
			}))
			return result, err
		}
		if _, err := wait(); !errors.Is(err, projection.ErrWithinTx) || !errors.Is(err, projection.ErrCommandPending) {
			t.Errorf("a command that has not ended: %v", err)
		}
		d.replay(command)
		if result, err := wait(); err != nil || result.Done != 1 {
			t.Errorf("a command that has ended: %+v, %v", result, err)
		}
	})
}
