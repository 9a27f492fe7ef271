package pgstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// A projection runs for every tenant. Its handler finds the tables of a named tenant by their names, and can ask which tenant
// it is called for.
func ExampleProjectionFrom() {
	store, done := exampleStore()
	defer done()
	ctx := context.Background()
	acme, err := store.CreateTenant(ctx, "acme")
	if err != nil {
		log.Panic(err)
	}
	err = acme.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "create table accounts (id text)")
		return err
	})
	if err != nil {
		log.Panic(err)
	}

	rt, err := millrace.New(millrace.Config{Store: store, Tenants: []string{"acme"}})
	if err != nil {
		log.Panic(err)
	}
	err = rt.Register(millrace.Projection{Name: "accounts", Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		id, _ := millrace.ProjectionFrom(ctx)
		fmt.Println(id.Tenant, id.Name, e.Stream)
		_, err := tx.Exec(ctx, "insert into accounts values ($1)", e.Stream)
		return err
	})})
	if err != nil {
		log.Panic(err)
	}
	if _, err := acme.Append(ctx, "account-1", event.NoStream, event.Event{Type: "AccountOpened"}); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	// Output:
	// acme accounts account-1
}
