package tests_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/tests/kit"
)

// A projection that catches up takes larger batches, unless its handler takes single events or the program limits them.
func TestBatchesGrowWhileAProjectionCatchesUp(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const events = 12_000
		for range events / 1000 {
			b.Append("s", 1000)
		}
		largest := func(p millrace.Projection) (most int64) {
			var seen, batch atomic.Int64
			rt := b.Runtime(millrace.Config{Observer: observe.Observer{BatchEnded: func(o observe.Batch) {
				seen.Add(int64(o.Applied))
				batch.Store(max(batch.Load(), int64(o.Events)))
			}}}, p)
			b.RunUntilIdle(rt)
			if seen.Load() != events {
				t.Errorf("%s: applied %d events", p.Name, seen.Load())
			}
			return batch.Load()
		}
		batch := b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error { return nil })
		each := b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error { return nil })
		size := event.Envelope{Type: "counted", Stream: "s"}.Size()
		if most := largest(millrace.Projection{Name: "grows", Handler: batch}); most <= 500 || most > 4000 {
			t.Errorf("a batch had %d events", most)
		}
		if most := largest(millrace.Projection{Name: "bytes", Handler: batch, MaxBytes: 600 * size}); most > 600 {
			t.Errorf("a batch of more than MaxBytes had %d events", most)
		}
		if most := largest(millrace.Projection{Name: "limited", Handler: batch, MaxEvents: 500}); most != 500 {
			t.Errorf("with MaxEvents of 500, a batch had %d events", most)
		}
		if most := largest(millrace.Projection{Name: "each", Handler: each}); most != 500 {
			t.Errorf("a batch of single events had %d", most)
		}
	})
}
