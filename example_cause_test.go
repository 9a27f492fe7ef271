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

// A request places two orders. A handler of single events follows each, and one of a batch follows what that appends.
// All events have the id of the request, and each the place of the event that led to it.
func Example_causedBy() {
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
	check(rt.Register(
		millrace.Projection{Name: "payments", Types: []string{"Placed"}, Handler: sqlitestore.Each(
			func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
				_, err := store.AppendTx(ctx, tx, "payments", event.Any, event.Untyped("Requested", e.Stream))
				return err
			})},
		millrace.Projection{Name: "letters", Types: []string{"Requested"}, Handler: sqlitestore.Batch(
			func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				tenant, _ := millrace.TenantFrom(ctx)
				for _, e := range events {
					_, err := store.AppendTx(event.CausedBy(ctx, tenant, e), tx, "letters", event.Any,
						event.Untyped("Announced", nil))
					if err != nil {
						return err
					}
				}
				return nil
			})},
	))
	request := event.WithCorrelation(ctx, "request-9")
	for _, order := range []string{"order-1", "order-2"} {
		_, err = store.Append(request, order, event.NoStream, event.Untyped("Placed", nil))
		check(err)
	}
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	for e, err := range store.ReadAll(ctx, event.ReadOptions{}) {
		check(err)
		fmt.Printf("%d %s: caused by %q in %s\n", e.Position, e.Type, e.CausationID, e.CorrelationID)
	}
	// Output:
	// 1 Placed: caused by "" in request-9
	// 2 Placed: caused by "" in request-9
	// 3 Requested: caused by "default/1" in request-9
	// 4 Requested: caused by "default/2" in request-9
	// 5 Announced: caused by "default/3" in request-9
	// 6 Announced: caused by "default/4" in request-9
}
