package tests_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// More receivers hang than there may be batches. A delivery holds no connection, so the healthy projection has a slot.
func TestDeliveriesThatHangLeaveOthersASlot(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		positions := b.Append("a", 3).Positions
		const hanging = 10
		var entered sync.WaitGroup
		entered.Add(hanging)
		leave := make(chan struct{})
		projections := []millrace.Projection{{Name: "healthy", Handler: millrace.DeliverEach(kit.Freely)}}
		for i := range hanging {
			var once sync.Once
			projections = append(projections, millrace.Projection{Name: fmt.Sprint("hangs", i),
				Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
					once.Do(entered.Done)
					<-leave
					return nil
				})})
		}
		defer close(leave)
		rt := b.Running(millrace.Config{MaxBatches: 2}, projections...)
		b.InTime("all receivers hang at once", entered.Wait)
		b.Reaches(rt, "healthy", positions[2])
		b.Reaches(rt, "healthy", b.Append("a", 1).Positions[0])
	})
}

// Receivers that hung once share half of the slots: the healthy projection of the same tenant has one, however many
// hang.
func TestDeliveriesKnownToTakeLongLeaveOthersASlot(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		last := b.Append("a", 1).Positions[0]
		const hanging = 5
		leave := make(chan struct{})
		var slow atomic.Int64
		projections := []millrace.Projection{{Name: "healthy", Handler: millrace.DeliverEach(kit.Freely)}}
		for i := range hanging {
			calls := 0
			projections = append(projections, millrace.Projection{Name: fmt.Sprint("hangs", i),
				Timeout: 5 * time.Minute, Retry: kit.Soon(0),
				OnFailure: projection.ActionRetry,
				Handler: millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
					calls++
					if calls > 1 {
						<-leave
						return nil
					}
					slow.Add(1)
					kit.Pass(ctx, 1200*time.Millisecond)
					return kit.ErrOnPurpose
				})})
		}
		defer close(leave)
		rt := b.Running(millrace.Config{MaxDeliveries: 2}, projections...)
		b.Eventually("each receiver hung for a while", func() bool { return slow.Load() == hanging })
		for range 3 {
			b.Reaches(rt, "healthy", last)
			last = b.Append("a", 1).Positions[0]
		}
	})
}

// At the end of the grace period the handler has a while to return, and until then no other node delivers.
func TestNodeIsNotDeregisteredWhileAHandlerReturns(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		positions := b.Append("a", 3).Positions
		entered := make(chan struct{})
		var returned atomic.Bool
		first := b.Another(millrace.Config{GracePeriod: 50 * time.Millisecond}, millrace.Projection{Name: "p",
			Handler: millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
				close(entered)
				<-ctx.Done()
				kit.Pass(b.Ctx, 1200*time.Millisecond) // less than it has
				returned.Store(true)
				return ctx.Err()
			})})
		stop := b.Start(first)
		<-entered
		next := b.Another(millrace.Config{Store: tuning.Settings{Reconcile: 20 * time.Millisecond}},
			millrace.Projection{Name: "p",
				Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
					if !returned.Load() {
						t.Error("two nodes deliver at once")
					}
					return nil
				})})
		b.Start(next)
		b.Eventually("both nodes know each other, or the other stands by",
			func() bool { return len(b.Summary(next).Nodes) == b.Kind.Sharing(2) })
		stop()
		b.Reaches(next, "p", positions[2])
	})
}
