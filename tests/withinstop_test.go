package tests_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// A handler that returns ErrWithinTx stops its projection and parks no event, since all of its events would fail. The
// projection continues when a user resumes it, or with the next release of the program.
func TestHandlerThatWritesOutsideOfItsTransactionParksNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		var repaired atomic.Bool
		appends := func(name string) kit.EventFunc {
			return func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				if e.Position == 2 && !repaired.Load() {
					_, err := b.Store.Append(ctx, "within", event.Any, kit.SomeEvents(1)...)
					return fmt.Errorf("append: %w", err)
				}
				return tx.Record(ctx, name, e)
			}
		}
		acknowledges := func(ctx context.Context, d *millrace.Delivery) error {
			for _, e := range d.Events() {
				ack := func(ctx context.Context) error { return d.Ack(ctx, e.Position) }
				if e.Position == 2 && !repaired.Load() {
					return b.Store.InTx(ctx, func(ctx context.Context, _ kit.Tx) error { return ack(ctx) })
				}
				if err := ack(ctx); err != nil {
					return err
				}
			}
			return nil
		}
		projections := []millrace.Projection{
			{Name: "each", Retry: kit.Soon(1), Handler: b.Store.Each(appends("each"))},
			{Name: "typed", Retry: kit.Soon(1), Handler: b.Store.Counted(appends("typed"))},
			{Name: "delivery", Retry: kit.Soon(1), Handler: millrace.Deliver(acknowledges)},
		}
		rt := b.Runtime(kit.Quick, projections...)
		stop := b.Start(rt)
		for _, p := range projections {
			var status admin.ProjectionStatus
			b.Eventually(p.Name+" stops", func() bool {
				status = b.Status(rt, p.Name)
				return status.State == admin.StateFailed || status.Parked > 0
			})
			if status.Parked+int64(status.Attempts) != 0 ||
				!strings.Contains(status.Reason, projection.ErrWithinTx.Error()) {
				t.Errorf("%s: %+v", p.Name, status)
			}
		}
		repaired.Store(true)
		b.Resume(rt, "each")
		ends := func(name string) {
			b.Eventually(name+" is repaired",
				func() bool { p := b.Status(rt, name); return p.Checkpoint == 3 && p.State == admin.StateLive })
		}
		ends("each")
		stop()
		rt = b.Running(kit.Quick, projections...)
		for _, p := range projections {
			ends(p.Name)
			if letters := b.DeadLettersOf(p.Name); len(letters) != 0 {
				t.Errorf("%s: %+v", p.Name, letters)
			}
		}
		b.Verify("each")
		b.Verify("typed")
		if n := len(b.All(b.Store)); n != 3 {
			t.Errorf("%d events", n)
		}
	})
}

// An action that the handler requests with the error is carried out.
func TestHandlerMayParkAnEventWithWhichItWroteOutsideOfItsTransaction(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 2)
		b.Idle(millrace.Projection{Name: "p",
			Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				if e.Position == 1 {
					return projection.Park(b.Store.InTx(ctx, func(context.Context, kit.Tx) error { return nil }))
				}
				return tx.Record(ctx, "p", e)
			})})
		b.Verify("p", 1)
	})
}
