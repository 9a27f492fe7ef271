package admin_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A projection handles its last events again, for instance after its rows were restored from a copy. No node needs to
// run.
func ExampleAdmin_Reset() {
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
	var handled []int64 // a read model is usually a table
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{Name: "orders",
		Handler: sqlitestore.Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
			handled = append(handled, e.Position)
			return nil
		})}))
	_, err = store.Append(ctx, "order-1", event.Any, event.Untyped("Placed", nil), event.Untyped("Paid", nil),
		event.Untyped("Shipped", nil))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	check(err)

	a, err := admin.New(store)
	check(err)
	result, err := a.Reset(ctx, millrace.ProjectionID{Name: "orders"}, 1, admin.ResetOptions{})
	fmt.Println("from", result.From, "to", result.Position, err)
	_, err = rt.RunUntilIdle(ctx)
	fmt.Println(handled, err)
	// Output:
	// from 3 to 1 <nil>
	// [1 2 3 2 3] <nil>
}
