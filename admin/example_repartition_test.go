package admin_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A projection is split by stream, so that several of its batches run at once. Later it is split into more partitions,
// which continue where the old ones were.
func ExampleAdmin_Repartition() {
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
	var handled atomic.Int64
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{Name: "orders", Partitions: 2,
		Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
			handled.Add(1)
			return nil
		})}))
	run := func() {
		for i := range 10 {
			_, err := store.Append(ctx, fmt.Sprint("order-", i), event.Any, event.Untyped("OrderPlaced", nil))
			check(err)
		}
		status, err := rt.RunUntilIdle(ctx)
		check(err)
		fmt.Println(len(status.Projections), "partitions have handled", handled.Load(), "events")
	}
	run()
	check(rt.Repartition(ctx, millrace.ProjectionID{Name: "orders"}, 8))
	run()
	// Output:
	// 2 partitions have handled 10 events
	// 8 partitions have handled 20 events
}
