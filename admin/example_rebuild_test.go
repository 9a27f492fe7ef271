package admin_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// The handler has counted each event twice. After it was corrected, Rebuild deletes what it has written by the hook
// Reset, and lets it begin again with the first event. Readers never see a mixture.
func ExampleAdmin_Rebuild() {
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
	exec := func(statement string) func(ctx context.Context, tx *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}
	}
	check(store.InTx(ctx, exec("create table counts as select 0 as n")))
	var each atomic.Int64
	each.Store(2)
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{
		Name: "counts",
		Handler: sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, _ event.Envelope) error {
			_, err := tx.ExecContext(ctx, "update counts set n = n + $1", each.Load())
			return err
		}),
		Reset: sqlitestore.Hook(exec("update counts set n = 0")),
	}))
	appended, err := store.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil),
		event.Untyped("OrderPaid", nil))
	check(err)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()

	id := millrace.ProjectionID{Name: "counts"}
	show := func() {
		check(rt.WaitFor(ctx, id, appended.Last()))
		var n int
		check(store.DB().QueryRowContext(ctx, "select n from counts").Scan(&n))
		fmt.Println("counted:", n)
	}
	show()
	each.Store(1)
	check(rt.Rebuild(ctx, id, admin.ResetOptions{}))
	show()
	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// counted: 4
	// counted: 2
	// ended: <nil>
}
