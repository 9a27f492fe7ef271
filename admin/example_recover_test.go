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

// The last events of a tenant are gone, as after a restore of its schema from a backup. Another one was appended since.
// A read model keeps what it has, and continues with that event.
func ExampleAdmin_RecoverTenant() {
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
	check(rt.Register(millrace.Projection{Name: "orders",
		Handler: sqlitestore.Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
			fmt.Println("handled", e.Position, e.Type)
			return nil
		})}))
	_, err = store.Append(ctx, "order-1", event.Any, event.Untyped("Placed", nil), event.Untyped("Paid", nil))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	check(store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			"delete from millrace_events where position > 1; update millrace_tenants set head = 1; update millrace_streams set version = 1")
		return err
	}))

	check(rt.PauseTenant(ctx, ""))
	_, err = store.Append(ctx, "order-1", event.Any, event.Untyped("Cancelled", nil))
	check(err)
	restored, err := rt.RestoredTenant(ctx, "", 1)
	check(err)
	fmt.Printf("restored up to %d, then appended up to %d, checkpoint %d\n", restored.End, restored.Head,
		restored.Projections[0].Checkpoint)
	_, err = rt.RecoverTenant(ctx, "", admin.RecoverOptions{End: 1, Continue: []string{"orders"}})
	check(err)
	check(rt.ResumeTenant(ctx, ""))
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	// Output:
	// handled 1 Placed
	// handled 2 Paid
	// restored up to 1, then appended up to 2, checkpoint 2
	// handled 2 Cancelled
}
