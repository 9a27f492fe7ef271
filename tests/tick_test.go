package tests_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// tick runs a step of the projection p, which must have a result.
func tick(b *kit.Bundle, rt *millrace.Runtime, want millrace.Tick) millrace.Tick {
	b.T.Helper()
	got, err := rt.Tick(b.Ctx, millrace.ProjectionID{Name: "p"})
	b.Must(err)
	if got.State != want.State || got.Processed != want.Processed {
		b.T.Errorf("got %+v, want %+v", got, want)
	}
	return got
}

func processed(n int64) millrace.Tick {
	return millrace.Tick{State: millrace.TickProcessed, Processed: n}
}

func TestTickRunsOneBatch(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p",
			MaxEvents: 2, Handler: b.Store.Batch(kit.Record("p"))},
			millrace.Projection{Name: "other", Handler: b.Store.Batch(kit.Record("other"))})
		for i, n := range []int64{2, 2, 1} {
			tick(b, rt, processed(n))
			if status := b.Status(rt, "p"); status.Checkpoint != min(5, int64(2*i+2)) || status.Owner != "" {
				t.Errorf("after step %d: %+v", i, status)
			}
		}
		tick(b, rt, millrace.Tick{State: millrace.TickIdle})
		b.Append("s", 1)
		tick(b, rt, processed(1))
		b.Verify("p")
		if applied := b.Positions("other"); len(applied) > 0 {
			t.Errorf("another projection applied %v", applied)
		}
	})
}

// Ticks alone find a poison event in the middle of a batch and park it, because its attempts are counted across ticks.
func TestTicksParkAPoisonEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p",
			OnFailure: projection.ActionPark, Retry: projection.RetryPolicy{MaxAttempts: 2,
				Base: 2 * time.Second, Jitter: projection.None},
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(3), kit.Fails))})
		var waited, steps int
		b.Eventually("all events are handled", func() bool {
			got, err := rt.Tick(b.Ctx, millrace.ProjectionID{Name: "p"})
			b.Must(err)
			steps++
			if got.State == millrace.TickWaiting {
				waited++
				if time.Until(got.Until) > 3*time.Second || !strings.Contains(got.Reason, "on purpose") {
					t.Errorf("%+v", got)
				}
			}
			return got.State == millrace.TickIdle
		})
		if letters := b.DeadLettersOf("p"); len(letters) != 1 || letters[0].Position != 3 || letters[0].Attempts != 2 ||
			waited == 0 || steps > 10_000 {
			t.Errorf("%+v, %d of %d steps waited", letters, waited, steps)
		}
		b.Verify("p", 3)
	})
}

func TestTickOfADeliveryAcknowledges(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		var delivered []int64
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p",
			MaxEvents: 2, Handler: millrace.DeliverEach(func(_ context.Context, e millrace.Delivered) error {
				delivered = append(delivered, e.Position)
				return nil
			})})
		tick(b, rt, processed(2))
		tick(b, rt, processed(1))
		tick(b, rt, millrace.Tick{State: millrace.TickIdle})
		if len(delivered) != 3 {
			t.Errorf("delivered %v", delivered)
		}
	})
}

func TestTickSaysWhyItDoesNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 2)
		id := millrace.ProjectionID{Name: "p"}
		failing := true
		rt := b.Runtime(kit.Quick, millrace.Projection{Name: "p", Retry: kit.Soon(0), OnFailure: projection.ActionStop,
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				if failing {
					return projection.At(2, kit.ErrOnPurpose)
				}
				return tx.Record(ctx, "p", events...)
			})}, millrace.Projection{Name: "split", Partitions: 2, Handler: b.Store.Batch(kit.Record("split"))})
		for _, bad := range []millrace.ProjectionID{{Name: "nowhere"}, {Name: "split", Partition: 3}} {
			if _, err := rt.Tick(b.Ctx, bad); !errors.Is(err, projection.ErrUnknownProjection) {
				t.Errorf("%s: %v", bad, err)
			}
		}
		if _, err := rt.Tick(b.Ctx, millrace.ProjectionID{Name: "split"}); err == nil ||
			!strings.Contains(err.Error(), "one of its 2 partitions") {
			t.Error(err)
		}
		var err error
		b.Eventually("it has failed", func() bool { _, err = rt.Tick(b.Ctx, id); return err != nil })
		for range 2 {
			if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), "on purpose") {
				t.Errorf("failed: %v", err)
			}
			_, err = rt.Tick(b.Ctx, id)
		}
		failing = false
		b.Pause(rt, "p")
		tick(b, rt, millrace.Tick{State: millrace.TickPaused})
		b.Resume(rt, "p")
		stop := b.Start(b.Runtime(kit.Quick, b.Recorders("p")...))
		b.Eventually("another node runs it", func() bool { return b.Status(rt, "p").Owner != "" })
		if got := tick(b, rt, millrace.Tick{State: millrace.TickOwned}); got.Owner != b.Status(rt, "p").Owner {
			t.Errorf("%+v", got)
		}
		stop()
		b.Append("s", 1)
		got, err := rt.Tick(b.Ctx, id)
		b.Must(err)
		if got.State != millrace.TickProcessed {
			t.Errorf("%+v", got)
		}
	})
}

func TestTickOfOnePartitionLeavesTheOthers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		for _, stream := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			b.Append(stream, 1)
		}
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p",
			Partitions: 2, Handler: b.Store.Batch(kit.Record("p"))})
		var sum int64
		for partition := 1; partition <= 2; partition++ {
			got, err := rt.Tick(b.Ctx, millrace.ProjectionID{Name: "p", Partition: partition})
			b.Must(err)
			sum += got.Processed
			if got.State != millrace.TickProcessed || int64(len(b.Positions("p"))) != sum {
				t.Errorf("partition %d: %+v, applied %v", partition, got, b.Positions("p"))
			}
		}
		if sum != 8 {
			t.Errorf("%d events were processed", sum)
		}
	})
}

func TestTickOfAProjectionThatGetsNoRowsSaysWhy(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Tenants(4)
		retire(b, "tenant1")
		b.Must(b.Store.ArchiveTenant(b.Ctx, "tenant2"))
		rt := b.Runtime(kit.Quick, b.Recorders("kept", "renamed")...)
		for id, want := range map[millrace.ProjectionID]error{
			{Tenant: "nowhere", Name: "kept"}:    tenancy.ErrUnknown,
			{Tenant: "tenant1", Name: "renamed"}: projection.ErrRetired,
			{Tenant: "tenant2", Name: "kept"}:    nil,
			{Tenant: "tenant1", Name: "kept"}:    nil,
		} {
			got, err := rt.Tick(b.Ctx, id)
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", id, err, want)
			}
			archived := got.State == millrace.TickPaused && got.Reason == "the tenant is archived"
			if archived != (id.Tenant == "tenant2") {
				t.Errorf("%s: %+v", id, got)
			}
		}
	})
}
