package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// The alias of a new customer and the first event of its stream are committed together.
func ExampleStore_AliasTx() {
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
	check(store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		customer, err := store.AliasTx(ctx, tx, "ada@example.com")
		if err != nil {
			return err
		}
		_, err = store.AppendTx(ctx, tx, customer, event.NoStream, event.Untyped("CustomerRegistered", nil))
		return err
	}))
	customer, err := store.Alias(ctx, "ada@example.com")
	check(err)
	found, err := store.Stream(ctx, customer)
	check(err)
	fmt.Println(len(customer), found.Version)
	// Output:
	// 36 1
}
