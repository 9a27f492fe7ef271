package sqlitestore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A program follows a file for a second. The position of the last event is where it continues next time.
func ExampleStore_Follow() {
	folder, err := os.MkdirTemp("", "millrace")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "shop.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	for _, amount := range []string{"17.50", "3.20"} {
		if _, err := store.Append(ctx, "account-1", event.Any, event.Untyped("MoneyDeposited", amount)); err != nil {
			log.Panic(err)
		}
	}
	fmt.Println(store.Settled(ctx))
	seen := int64(0)
	for e, err := range store.Follow(ctx, event.ReadOptions{After: seen}) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			log.Panic(err)
		}
		seen = e.Position
		fmt.Println(seen, e.Type, string(e.Body))
	}
	// Output:
	// 2 <nil>
	// 1 MoneyDeposited "17.50"
	// 2 MoneyDeposited "3.20"
}
