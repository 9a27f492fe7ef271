package admin_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A customer who began with a file moves to PostgreSQL. The program that uses read models copies them in
// MoveOptions.ReadModels.
func ExampleMoveTenant() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file, err := sqlitestore.Open(ctx, filepath.Join(folder, "shop.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer file.Close()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_move"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	for _, migrate := range []func(context.Context) error{file.Migrate, store.Migrate} {
		if err := migrate(ctx); err != nil {
			log.Panic(err)
		}
	}
	acme, err := file.CreateTenant(ctx, "acme")
	if err == nil {
		_, err = acme.Append(ctx, "invoice-1", event.NoStream, event.Untyped("InvoiceSent", nil),
			event.Untyped("InvoicePaid", nil))
	}
	if err != nil {
		log.Panic(err)
	}

	report, err := admin.MoveTenant(ctx, file, store, "acme", admin.MoveOptions{})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(report.State, report.Rows["events"], "events")
	moved, err := store.ForTenant("acme")
	if err != nil {
		log.Panic(err)
	}
	appended, err := moved.Append(ctx, "invoice-1", event.Exact(2), event.Untyped("InvoiceArchived", nil))
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("position", appended.Last())
	state, err := acme.State(ctx)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("in the file:", state)
	// Output:
	// active 2 events
	// position 3
	// in the file: archived
}
