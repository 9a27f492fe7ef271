package millrace_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A program reads the figures of its own node and its health from memory, for metrics of its own.
func ExampleRuntime_Stats() {
	check := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example-")
	check(err)
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "events.db"), sqlitestore.Options{})
	check(err)
	defer store.Close()
	check(store.Migrate(ctx))
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{
		Name: "orders", Handler: sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error { return nil }),
	}))
	appended, err := store.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil))
	check(err)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	check(rt.WaitFor(ctx, millrace.ProjectionID{Name: "orders"}, appended.Last()))

	for _, p := range rt.Stats().Projections {
		fmt.Println(p.Name, "parked", p.Parked)
	}
	for _, p := range rt.StatsByTenant().Projections {
		fmt.Println(p.Name, "of", p.Tenant, "parked", p.Parked)
	}
	fmt.Println("live:", rt.Health(ctx).Live)
	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// orders parked 0
	// orders of default parked 0
	// live: true
	// ended: <nil>
}
