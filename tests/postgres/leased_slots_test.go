package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// As many receivers hang as there may be batches: a delivery holds no connection, so the healthy projection has a slot.
func TestDeliveriesThatHangLeaveOthersASlot(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	positions := b.append("a", 3).Positions
	const hanging = 10
	var entered sync.WaitGroup
	entered.Add(hanging)
	leave := make(chan struct{})
	projections := []millrace.Projection{{Name: "healthy", Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error { return nil })}}
	for i := range hanging {
		var once sync.Once
		projections = append(projections, millrace.Projection{Name: fmt.Sprint("hangs", i), Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
			once.Do(entered.Done)
			<-leave
			return nil
		})})
	}
	defer close(leave)
	rt := b.runtime(millrace.Config{MaxBatches: 2}, projections...)
	b.start(rt)
	inTime(t, "all receivers hang at once", entered.Wait)
	b.reaches(rt, millrace.ProjectionID{Name: "healthy"}, positions[2])
	b.reaches(rt, millrace.ProjectionID{Name: "healthy"}, b.append("a", 1).Positions[0])
}

// Receivers that hung once share half of the slots: the healthy projection of the same tenant has one, however many hang.
func TestDeliveriesKnownToTakeLongLeaveOthersASlot(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	last := b.append("a", 1).Positions[0]
	const hanging = 5
	leave := make(chan struct{})
	var slow atomic.Int64
	projections := []millrace.Projection{{Name: "healthy", Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error { return nil })}}
	for i := range hanging {
		calls := 0
		projections = append(projections, millrace.Projection{Name: fmt.Sprint("hangs", i), Timeout: 5 * time.Minute, Retry: soon(-1),
			OnFailure: projection.ActionRetry, Handler: millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
				if calls++; calls > 1 {
					<-leave
					return nil
				}
				slow.Add(1)
				pass(ctx, 1200*time.Millisecond)
				return errOnPurpose
			})})
	}
	defer close(leave)
	rt := b.runtime(millrace.Config{MaxDeliveries: 2}, projections...)
	b.start(rt)
	b.eventually("each receiver hung for a while", func() bool { return slow.Load() == hanging })
	for range 3 {
		b.reaches(rt, millrace.ProjectionID{Name: "healthy"}, last)
		last = b.append("a", 1).Positions[0]
	}
}

// Acknowledgements that wait, here for a lock, hold a part of the pool and no more.
func TestAcknowledgementsLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.append("a", 1)
	const deliveries = 12
	var entered, acknowledging sync.WaitGroup
	entered.Add(deliveries)
	acknowledging.Add(deliveries)
	var ended atomic.Int64
	var projections []millrace.Projection
	begin := make(chan struct{})
	for i := range deliveries {
		first := sync.OnceFunc(func() {
			entered.Done()
			<-begin
			acknowledging.Done()
		})
		projections = append(projections, millrace.Projection{Name: fmt.Sprint("p", i), Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			first()
			defer ended.Add(1)
			return d.Ack(ctx, d.Events()[0].Position)
		})})
	}
	rt := b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	inTime(t, "all deliver", entered.Wait)
	release := b.lock("select from millrace.leases for update")
	defer release()
	close(begin)
	inTime(t, "all acknowledge at once", acknowledging.Wait)
	other := b.elsewhere(pgstore.Options{})
	b.eventually("acknowledgements wait for the lock", func() (waiting bool) {
		err := other.Pool().QueryRow(b.ctx, "select exists (select from pg_locks where not granted)").Scan(&waiting)
		return err == nil && waiting
	})
	for range 10 {
		b.exec("select 1")
	}
	if n := ended.Load(); n != 0 {
		t.Errorf("the pool had no connection until %d acknowledgements were given up", n)
	}
}

// inTime runs fn, and fails the test where it hangs.
func inTime(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		fn()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("it never came to pass: %s", what)
	}
}
