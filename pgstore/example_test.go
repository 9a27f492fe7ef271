package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

func Example() {
	dsn, drop := pgtest.ExampleDatabase()
	defer drop()
	ctx := context.Background()

	store, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	opened := event.Untyped("AccountOpened", map[string]any{"owner": "Ada"})
	deposited := event.Event{Type: "MoneyDeposited", Body: []byte(`{"amount": 10.50}`), CorrelationID: "c-1"}

	result, err := store.Append(ctx, "account-1", event.NoStream, opened, deposited)
	fmt.Println(result.Positions, result.Version, err)

	_, err = store.Append(ctx, "account-1", event.Exact(1), deposited)
	fmt.Println(errors.Is(err, event.ErrVersionConflict), err)

	for e, err := range store.ReadStream(ctx, "account-1", 1) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(e.Version, e.Type, string(e.Body))
	}
	// Output:
	// [1 2] 2 <nil>
	// true append to "account-1": version conflict: stream "account-1" is at version 2, expected version 1
	// 1 AccountOpened {"owner": "Ada"}
	// 2 MoneyDeposited {"amount": 10.50}
}

// An append under a key can be sent again: after a time-out, say, when nobody knows whether it succeeded.
func ExampleTenant_Append_withKey() {
	store, done := exampleStore()
	defer done()
	ctx := context.Background()

	for range 2 {
		result, err := store.Append(ctx, "account-1", event.NoStream.WithKey("command-77"), event.Event{Type: "AccountOpened"})
		fmt.Println(result.Version, result.Repeated, err)
	}
	// Output:
	// 1 false <nil>
	// 1 true <nil>
}

// Events and the caller's own rows are committed together, and projections are woken after that.
func ExampleTenant_InTx() {
	store, done := exampleStore()
	defer done()
	ctx := context.Background()

	err := store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "create table receipts (id int)"); err != nil {
			return err
		}
		result, _, err := store.AppendTx(ctx, tx, "account-1", event.Any, event.Event{Type: "AccountOpened"})
		fmt.Println(result.Version)
		return err
	})
	fmt.Println(err)
	// Output:
	// 1
	// <nil>
}

// Within a transaction of the caller's own, the wake-up is to be called after the commit: before it nobody would find the
// events.
func ExampleTenant_AppendTx() {
	store, done := exampleStore()
	defer done()
	ctx := context.Background()

	tx, err := store.Pool().Begin(ctx)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	result, wake, err := store.AppendTx(ctx, tx, "account-1", event.NoStream, event.Event{Type: "AccountOpened"})
	if err != nil {
		log.Panic(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Panic(err)
	}
	wake()
	fmt.Println(result.Positions, result.Version)
	// Output:
	// [1] 1
}

// Reading everything is for looking, exporting and checking; to act upon every event once, use a projection.
func ExampleTenant_ReadAll() {
	store, done := exampleStore()
	defer done()
	ctx := context.Background()
	for _, stream := range []string{"account-1", "account-2"} {
		opened, closed := event.Event{Type: "AccountOpened"}, event.Event{Type: "AccountClosed"}
		if _, err := store.Append(ctx, stream, event.NoStream, opened, closed); err != nil {
			log.Panic(err)
		}
	}

	for e, err := range store.ReadAll(ctx, pgstore.ReadOptions{After: 1, Types: []string{"AccountOpened"}}) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(e.Position, e.Stream, e.Version, e.Type)
	}
	// Output:
	// 3 account-2 1 AccountOpened
}

// Tenants have a schema each; positions and streams of one have nothing to do with those of another.
func ExampleStore_CreateTenant() {
	store, done := exampleStore()
	defer done()
	ctx := context.Background()

	acme, err := store.CreateTenant(ctx, "acme")
	if err != nil {
		log.Panic(err)
	}
	result, err := acme.Append(ctx, "account-1", event.NoStream, event.Event{Type: "AccountOpened"})
	fmt.Println(result.Positions, err)
	fmt.Println(store.Tenants(ctx))
	// Output:
	// [1] <nil>
	// [acme default] <nil>
}

// Each tenant gets its tables when it is created, and what later releases add when they migrate. Most steps are SQL; the others
// are functions.
func ExampleTenantSQL() {
	dsn, drop := pgtest.ExampleDatabase()
	defer drop()
	ctx := context.Background()
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{TenantSetup: []pgstore.TenantStep{
		pgstore.TenantSQL(`create table accounts (id text primary key, owner text)`),
		func(ctx context.Context, tx pgx.Tx, tenant string) error {
			_, err := tx.Exec(ctx, `insert into accounts values ('main', $1)`, tenant)
			return err
		},
	}})
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
	err = acme.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var owner string
		err := tx.QueryRow(ctx, `select owner from accounts where id = 'main'`).Scan(&owner)
		fmt.Println("the main account is that of", owner)
		return err
	})
	fmt.Println(err)
	// Output:
	// the main account is that of acme
	// <nil>
}

func exampleStore() (store *pgstore.Store, done func()) {
	dsn, drop := pgtest.ExampleDatabase()
	store, err := pgstore.Open(context.Background(), dsn, pgstore.Options{})
	if err != nil {
		log.Panic(err)
	}
	if err := store.Migrate(context.Background()); err != nil {
		log.Panic(err)
	}
	return store, func() { store.Close(); drop() }
}
