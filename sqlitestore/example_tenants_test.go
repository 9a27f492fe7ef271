package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// A customer comes, is archived, comes back, and leaves.
func ExampleStore_DropTenant() {
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
	check(store.CreateTenants(ctx, "acme", "globex"))
	acme, err := store.ForTenant("acme")
	check(err)
	appendTo := func() error {
		_, err := acme.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil))
		return err
	}
	check(appendTo())
	check(store.ArchiveTenant(ctx, "acme"))
	fmt.Println("archived:", errors.Is(appendTo(), tenancy.ErrArchived))
	check(store.UnarchiveTenant(ctx, "acme"))
	check(appendTo())
	check(store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
	fmt.Println("unknown:", errors.Is(appendTo(), tenancy.ErrUnknown))
	names, err := store.Tenants(ctx)
	fmt.Println(names, err)
	// Output:
	// archived: true
	// unknown: true
	// [default globex] <nil>
}
