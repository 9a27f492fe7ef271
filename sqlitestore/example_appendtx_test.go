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

// A handler appends events in its own transaction: they, its rows and its checkpoint are committed together. The commit
// of the batch wakes the projections, so Wake is not called.
func ExampleStore_AppendTx() {
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
		Name:  "reminders",
		Types: []string{"InvoiceOverdue"},
		Handler: sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
			_, err := store.AppendTx(ctx, tx, e.Stream, event.Any, event.Untyped("ReminderRequested", nil))
			return err
		}),
	}))
	_, err = store.Append(ctx, "invoice-1", event.NoStream, event.Untyped("InvoiceSent", nil),
		event.Untyped("InvoiceOverdue", nil))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	for e, err := range store.ReadAll(ctx, event.ReadOptions{Types: []string{"InvoiceOverdue", "ReminderRequested"}}) {
		check(err)
		fmt.Println(e.Position, e.Stream, e.Version, e.Type)
	}
	// Output:
	// 2 invoice-1 2 InvoiceOverdue
	// 3 invoice-1 3 ReminderRequested
}
