package sqlitestore_test

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

type (
	ItemAdded   struct{ Cents int }
	ItemRemoved struct{ Cents int }
)

func (ItemAdded) EventType() string   { return "ItemAdded" }
func (ItemRemoved) EventType() string { return "ItemRemoved" }

// Each event type has a function of its own, which gets the decoded events. Events of other types are not handled.
func ExampleRoute() {
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
	total := 0 // a read model is usually a table
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{Name: "total", Handler: sqlitestore.Route(
		sqlitestore.On(func(_ context.Context, _ *sql.Tx, e event.Of[ItemAdded]) error {
			total += e.Body.Cents
			return nil
		}),
		sqlitestore.OnBatch(func(_ context.Context, _ *sql.Tx, events []event.Of[ItemRemoved]) error {
			for _, e := range events {
				total -= e.Body.Cents
			}
			return nil
		}),
	)}))
	_, err = store.Append(ctx, "cart-1", event.Any, event.New(ItemAdded{30_00}), event.New(ItemAdded{12_50}),
		event.New(ItemRemoved{30_00}), event.Untyped("CartClosed", nil))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	fmt.Println(total, err)
	// Output:
	// 1250 <nil>
}
