package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// Events and rows of the program are committed together, or not at all. InTx wakes projections after the commit.
func ExampleStore_InTx() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "shop-")
	if err != nil {
		log.Panic(err)
	}
	defer os.RemoveAll(folder)
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "shop.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	err = store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "create table orders (id text primary key)")
		return err
	})
	if err != nil {
		log.Panic(err)
	}

	errEmpty := errors.New("an order needs items")
	place := func(order string, items int) error {
		return store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "insert into orders values (?)", order); err != nil {
				return err
			}
			if _, err := store.AppendTx(ctx, tx, order, event.NoStream, event.Untyped("OrderPlaced", nil)); err != nil {
				return err
			}
			if items == 0 {
				return errEmpty
			}
			return nil
		})
	}
	fmt.Println(place("order-1", 3), place("order-2", 0))

	var orders int
	if err := store.DB().QueryRowContext(ctx, "select count(*) from orders").Scan(&orders); err != nil {
		log.Panic(err)
	}
	for e, err := range store.ReadAll(ctx, event.ReadOptions{}) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(orders, e.Position, e.Stream)
	}
	// Output:
	// <nil> an order needs items
	// 1 1 order-1
}
