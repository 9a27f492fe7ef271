package storecopy_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/storecopy"
)

// A program that began with a file moves to PostgreSQL. There it continues at the next version and position, and the
// file takes no further appends.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "moving")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file, err := sqlitestore.Open(ctx, filepath.Join(folder, "store.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer file.Close()
	if err := file.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	placed := event.Untyped("OrderPlaced", map[string]int{"cents": 1999})
	if _, err := file.Append(ctx, "order-1", event.NoStream.WithKey("command-7"), placed, placed); err != nil {
		log.Panic(err)
	}

	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_moving"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	report, err := storecopy.Run(ctx, file, store, storecopy.Options{})
	if err != nil {
		log.Panic(err)
	}
	if _, err := storecopy.Verify(ctx, file, store); err != nil { // Run has compared both stores already
		log.Panic(err)
	}
	for _, table := range report.Tenants[0].Tables[:3] {
		fmt.Println(table.Rows, table.Table)
	}

	repeated, err := store.Append(ctx, "order-1", event.NoStream.WithKey("command-7"), placed, placed)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("repeated:", repeated.Repeated, repeated.Positions)
	next, err := store.Append(ctx, "order-1", event.Exact(2), event.Untyped("OrderPaid", nil))
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("next:", next.Positions)
	_, err = file.Append(ctx, "order-1", event.Any, placed)
	fmt.Println("the file is closed:", errors.Is(err, sqlitestore.ErrMoved))
	// Output:
	// 2 events
	// 1 streams
	// 1 keys
	// repeated: true [1 2]
	// next: [3]
	// the file is closed: true
}
