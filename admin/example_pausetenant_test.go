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
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// While the tables of a customer are repaired, its projections do not run. Its events wait.
func ExampleAdmin_PauseTenant() {
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
	acme, err := store.CreateTenant(ctx, "acme")
	check(err)
	handled := 0
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{Name: "orders",
		Handler: sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error {
			handled++
			return nil
		})}))
	_, err = rt.RunUntilIdle(ctx)
	check(err)

	check(rt.PauseTenant(ctx, "acme"))
	_, err = acme.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil))
	check(err)
	state, err := acme.State(ctx)
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	fmt.Println(state, "handled", handled, errors.Is(err, projection.ErrPaused))

	check(rt.ResumeTenant(ctx, "acme"))
	_, err = rt.RunUntilIdle(ctx)
	fmt.Println("handled", handled, err)
	// Output:
	// paused handled 0 true
	// handled 1 <nil>
}
