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
	// order-1 is worth 42.50
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
	_, err = store.Append(ctx, "order-1", event.Any, event.New(ItemAdded{"30.00"}), event.New(ItemAdded{"12.50"}))
	if err != nil {
		return err
	}

	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		return err
	}
	if err := rt.Register(millrace.Projection{Name: "totals", Handler: pgstore.On(addItem)}); err != nil {
		return err
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil { // a server calls rt.Run(ctx), which blocks until ctx is done
		return err
	}
	var total string
	err = store.Pool().QueryRow(ctx, `select total::text from totals where stream = 'order-1'`).Scan(&total)
	fmt.Println("order-1 is worth", total)
	return err
}
