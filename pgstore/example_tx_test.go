package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// insertOrder writes a row of the program and an event in one transaction.
func insertOrder(ctx context.Context, store *pgstore.Store, tx pgx.Tx, order string) error {
	if _, err := tx.Exec(ctx, "insert into orders values ($1)", order); err != nil {
		return err
	}
	_, err := store.AppendTx(ctx, tx, order, event.NoStream, event.Untyped("OrderPlaced", nil))
	return err
}

// Events and rows of the program are committed together. InTx wakes projections after the commit. In a transaction of
// the program, the program calls Wake.
func ExampleStore_InTx() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_tx"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	if _, err := store.Pool().Exec(ctx, "create table if not exists orders (id text primary key)"); err != nil {
		log.Panic(err)
	}
	err = store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return insertOrder(ctx, store, tx, "order-1")
	})
	if err != nil {
		log.Panic(err)
	}

	tx, err := store.Pool().Begin(ctx)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	if err := insertOrder(ctx, store, tx, "order-2"); err != nil {
		log.Panic(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Panic(err)
	}
	store.Wake()

	for e, err := range store.ReadAll(ctx, event.ReadOptions{Types: []string{"OrderPlaced"}}) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(e.Position, e.Stream)
	}
	// Output:
	// 1 order-1
	// 2 order-2
}
