package pgstore_test

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

// accountSetup makes the tables of each tenant when the tenant is created. Later releases append steps.
var accountSetup = []pgstore.TenantStep{
	pgstore.TenantSQL(`create table accounts (id text primary key, tenant text)`),
	func(ctx context.Context, tx pgx.Tx, tenant string) error {
		_, err := tx.Exec(ctx, `insert into accounts values ('main', $1)`, tenant)
		return err
	},
}

// Each tenant has a schema with its events and tables. A projection runs for each of them, and a handler finds the
// tables of its tenant by their names.
func ExampleStore_CreateTenant() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"),
		pgstore.Options{Schema: "example_tenant", TenantSetup: accountSetup})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	acme, err := store.CreateTenant(ctx, "acme")
	if err != nil {
		log.Panic(err)
	}
	rt, err := millrace.New(millrace.Config{Store: store, Tenants: []string{"acme"}})
	if err != nil {
		log.Panic(err)
	}
	err = rt.Register(millrace.Projection{Name: "accounts",
		Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			id, _ := millrace.ProjectionFrom(ctx)
			_, err := tx.Exec(ctx, "insert into accounts values ($1, $2)", e.Stream, id.Tenant)
			return err
		})})
	if err != nil {
		log.Panic(err)
	}
	if _, err := acme.Append(ctx, "account-1", event.Any, event.Untyped("AccountOpened", nil)); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	err = acme.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var accounts []string
		err := tx.QueryRow(ctx, `select array_agg(id || ' of ' || tenant order by id) from accounts`).Scan(&accounts)
		fmt.Println(accounts)
		return err
	})
	if err != nil {
		log.Panic(err)
	}
	// Output:
	// [account-1 of acme main of acme]
}
