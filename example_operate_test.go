package millrace_test

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

// A job rebuilds the projection totals and handles no event. On PostgreSQL, it runs as the role that owns the tables,
// beside the nodes.
func ExampleRuntime_Operate() {
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

	job, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(job.Register(millrace.Projection{
		Name: "totals",
		Handler: sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error {
			fmt.Println("an event was handled")
			return nil
		}),
		Reset: sqlitestore.Hook(func(context.Context, *sql.Tx) error {
			fmt.Println("the rows of totals are deleted")
			return nil
		}),
	}))
	_, err = store.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil))
	check(err)
	check(job.Operate(ctx, func(ctx context.Context) error {
		return job.Rebuild(ctx, millrace.ProjectionID{Name: "totals"}, admin.ResetOptions{})
	}))
	// Output: the rows of totals are deleted
}
