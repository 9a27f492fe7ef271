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

// Version 2 of a projection fills a table of its own while readers use the table of version 1. Swap exchanges the
// tables in one transaction, as soon as version 2 has handled all that version 1 has. Version 3 is given up.
func ExampleAdmin_Swap() {
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
	version := func(v int) millrace.Projection {
		p := millrace.Projection{Name: "counts", Version: v,
			Handler: sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, _ event.Envelope) error {
				return exec(fmt.Sprintf("update counts_%d set n = n + 1", v))(ctx, tx)
			})}
		if v > 1 {
			p.Swap = sqlitestore.Hook(exec(fmt.Sprintf("drop view counts; create view counts as select n, %d as version from counts_%d", v, v)))
			p.Drop = sqlitestore.Hook(exec(fmt.Sprintf("drop table counts_%d", v)))
		}
		return p
	}
	check(store.InTx(ctx,
		exec(`create table counts_1 as select 0 as n; create table counts_2 as select 0 as n; create table counts_3 as select 0 as n;
		create view counts as select n, 1 as version from counts_1`)))
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(version(1), version(2), version(3)))
	appended, err := store.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil),
		event.Untyped("OrderPaid", nil))
	check(err)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	check(rt.WaitFor(ctx, millrace.ProjectionID{Name: "counts@3"}, appended.Last()))
	check(rt.DropVersion(ctx, millrace.ProjectionID{Name: "counts@3"}))

	tenants, err := rt.Unswapped(ctx, "counts@2")
	check(err)
	for _, id := range tenants {
		check(rt.Swap(ctx, id, admin.SwapOptions{}))
	}
	var n, now int
	check(store.DB().QueryRowContext(ctx, "select n, version from counts").Scan(&n, &now))
	fmt.Println("readers see", n, "events, counted by version", now)
	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// readers see 2 events, counted by version 2
	// ended: <nil>
}
