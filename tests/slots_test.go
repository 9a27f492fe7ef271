package tests_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/tests/kit"
)

// A projection that waits for its slot while events arrive takes all of them at once. Otherwise it would wait again for
// the rest.
func TestBatchTakesTheEventsThatCameWhileItWaitedForItsSlot(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		first := b.Append("a", 1).Positions[0]
		entered, leave := make(chan struct{}), make(chan struct{})
		holds := millrace.Projection{Name: "holds",
			Handler: millrace.DeliverEach(func(_ context.Context, e millrace.Delivered) error {
				if e.Position == first {
					close(entered)
					<-leave
				}
				return nil
			})}
		var mu sync.Mutex
		var sizes []int
		rt := b.Running(millrace.Config{MaxDeliveries: 1,
			Observer: observe.Observer{BatchEnded: func(batch observe.Batch) {
				mu.Lock()
				defer mu.Unlock()
				if batch.Projection.Name == "waits" && batch.Position > first {
					sizes = append(sizes, batch.Events)
				}
			}}}, holds, millrace.Projection{Name: "waits", Handler: millrace.DeliverEach(kit.Freely)},
			millrace.Projection{Name: "free", Handler: b.Store.Batch(kit.Nothing)})
		b.InTime("the slot is held", func() { <-entered })
		last := first
		for range 5 {
			last = b.Append("a", 1).Positions[0]
			b.Reaches(rt, "free", last)
		}
		close(leave)
		b.Reaches(rt, "waits", last)
		b.Eventually("the batches are observed", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(sizes) > 0
		})
		mu.Lock()
		defer mu.Unlock()
		if n := sizes[0]; n < 5 || !slices.Equal(sizes, []int{n}) {
			t.Errorf("got batches of %v events, want one of all", sizes)
		}
	})
}
