package tests_test

import (
	"context"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// Last is what a caller waits for: of several events, of a repeat, of an append in a transaction, and of an append that
// was not needed.
func TestLastIsWhatACallerWaitsFor(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))})
		shows := func(a event.Appended, events int) {
			t.Helper()
			b.Reaches(rt, "p", a.Last())
			if applied, err := b.Store.Applied(b.Ctx, "p"); err != nil || len(applied) < events {
				t.Errorf("after %d the read model has %+v; %v", a.Last(), applied, err)
			}
		}
		first := b.MustAppend(b.Store, "s", event.NoStream.WithKey("k"), kit.SomeEvents(3)...)
		if first.Last() != first.Positions[2] {
			t.Errorf("last %d of %+v", first.Last(), first)
		}
		shows(first, 3)
		var within event.Appended
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) (err error) {
			within, err = b.Store.AppendTx(ctx, tx, "s", event.Exact(3), kit.SomeEvents(2)...)
			return err
		}))
		b.Store.Wake()
		shows(within, 5)
		repeat := b.MustAppend(b.Store, "s", event.NoStream.WithKey("k"), kit.SomeEvents(3)...)
		if !repeat.Repeated || repeat.Last() != first.Last() {
			t.Errorf("a repeat has last %d, the first append had %d", repeat.Last(), first.Last())
		}
		shows(repeat, 3)
		var none event.Appended
		if _, err := b.Store.Append(b.Ctx, "s", event.Any); err == nil {
			t.Error("an append without events is accepted")
		}
		if none.Last() != 0 {
			t.Errorf("last %d of no events", none.Last())
		}
		shows(none, 0)
	})
}
