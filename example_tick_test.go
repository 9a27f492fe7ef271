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

// A program that a schedule starts runs one batch of a projection at a time.
func ExampleRuntime_Tick() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "events.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Panic(err)
	}
	handler := sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error { return nil })
	if err := rt.Register(millrace.Projection{Name: "orders", MaxEvents: 2, Handler: handler}); err != nil {
		log.Panic(err)
	}
	if _, err := store.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil),
		event.Untyped("OrderPaid", nil), event.Untyped("OrderShipped", nil)); err != nil {
		log.Panic(err)
	}
	for range 3 {
		tick, err := rt.Tick(ctx, millrace.ProjectionID{Name: "orders"})
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(tick.State, tick.Processed)
	}
	// Output:
	// processed 2
	// processed 1
	// idle 0
}
