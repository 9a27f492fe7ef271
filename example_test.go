package millrace_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

func Example() {
	if err := quickStart(os.Getenv("MILLRACE_DSN")); err != nil {
		log.Panic(err)
	}
	// Output:
	// order-1 is worth 42.50 at acme and 12.50 at globex
}

// From here on this file is the quick start of the README.

type ItemAdded struct{ Amount string }

func (ItemAdded) EventType() string { return "ItemAdded" }

func addItem(ctx context.Context, tx pgx.Tx, e event.Of[ItemAdded]) error {
	_, err := tx.Exec(ctx, `insert into totals values ($1, $2)
		on conflict (stream) do update set total = totals.total + excluded.total`, e.Stream, e.Body.Amount)
	return err
}

func quickStart(dsn string) error {
	ctx := context.Background()
	totals := pgstore.TenantSQL(`create table totals (stream text primary key, total numeric)`)
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{TenantSetup: []pgstore.TenantStep{totals}})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		return err
	}
	if err := rt.Register(millrace.Projection{Name: "totals", Handler: pgstore.On(addItem)}); err != nil {
		return err
	}
	items := []event.Event{event.New(ItemAdded{"30.00"}), event.New(ItemAdded{"12.50"})}
	for i, name := range []string{"acme", "globex"} {
		tenant, err := store.CreateTenant(ctx, name) // a schema with events and a table totals of its own
		if err != nil {
			return err
		}
		if _, err := tenant.Append(ctx, "order-1", event.Any, items[i:]...); err != nil {
			return err
		}
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil { // a server calls rt.Run(ctx), which blocks until ctx is done
		return err
	}
	var acme, globex string
	err = store.Pool().QueryRow(ctx, `select a.total::text, g.total::text from millrace_acme.totals a, millrace_globex.totals g`).Scan(&acme, &globex)
	fmt.Println("order-1 is worth", acme, "at acme and", globex, "at globex")
	return err
}
