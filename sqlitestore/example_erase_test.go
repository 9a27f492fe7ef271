package sqlitestore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A comment with a password is redacted. The record says why.
func ExampleStore_RedactEvents() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "millrace")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "shop.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	appended, err := store.Append(ctx, "order-17", event.Any, event.Untyped("Commented", "my password is 1234"))
	if err != nil {
		log.Panic(err)
	}
	if _, err := store.RedactEvents(ctx, appended.Positions, "a password in a comment"); err != nil {
		log.Panic(err)
	}
	all, err := store.Erasures(ctx)
	for _, e := range all {
		fmt.Println(e.ID, e.Positions, e.Events, e.Reason)
	}
	fmt.Println(err)
	// Output:
	// 1 [1] 1 a password in a comment
	// <nil>
}
