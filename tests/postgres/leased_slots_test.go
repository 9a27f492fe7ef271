package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
)

// Acknowledgements that wait, here for a lock, hold a part of the pool and no more.
func TestAcknowledgementsLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 1)
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
	b.Running(millrace.Config{}, projections...)
	b.InTime("all deliver", entered.Wait)
	release := b.lock("select from millrace.leases for update")
	defer release()
	close(begin)
	b.InTime("all acknowledge at once", acknowledging.Wait)
	other := b.elsewhere(pgstore.Options{})
	b.Eventually("acknowledgements wait for the lock", func() (waiting bool) {
		err := other.Pool().QueryRow(b.Ctx, "select exists (select from pg_locks where not granted)").Scan(&waiting)
		return err == nil && waiting
	})
	for range 10 {
		b.exec("select 1")
	}
	if n := ended.Load(); n != 0 {
		t.Errorf("the pool had no connection until %d acknowledgements were given up", n)
	}
}
