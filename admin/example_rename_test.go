package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A projection gets another name and continues at its checkpoint. The old name is retired. When no node registers the
// projection any more, it is forgotten. Create makes its name usable again, here with the first event.
func ExampleAdmin_Rename() {
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
	run := func(name string) {
		rt, err := millrace.New(millrace.Config{Store: store})
		check(err)
		check(rt.Register(millrace.Projection{Name: name,
			Handler: sqlitestore.Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
				fmt.Println(name, "handles", e.Type)
				return nil
			})}))
		_, err = store.Append(ctx, "order-1", event.Any, event.Untyped("OrderOf"+name, nil))
		check(err)
		_, err = rt.RunUntilIdle(ctx)
		check(err)
	}
	a, err := admin.New(store)
	check(err)
	sums, totals := millrace.ProjectionID{Name: "Sums"}, millrace.ProjectionID{Name: "Totals"}

	run("Totals")
	check(a.Rename(ctx, totals, "Sums"))
	run("Sums")
	fmt.Println("retired:", errors.Is(a.Pause(ctx, totals), projection.ErrRetired))
	check(a.Forget(ctx, sums))
	check(a.Create(ctx, sums, projection.Start{}))
	run("Sums")
	// Output:
	// Totals handles OrderOfTotals
	// Sums handles OrderOfSums
	// retired: true
	// Sums handles OrderOfTotals
	// Sums handles OrderOfSums
	// Sums handles OrderOfSums
}
