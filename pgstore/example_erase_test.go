package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// A customer is erased. The places of the events stay.
func ExampleStore_EraseStream() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_erase"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	customer, err := store.Alias(ctx, "ada@example.com")
	if err != nil {
		log.Panic(err)
	}
	if _, err := store.Append(ctx, customer, event.Any, event.Untyped("CustomerNamed", "Ada")); err != nil {
		log.Panic(err)
	}
	erased, err := store.EraseStream(ctx, customer, "request 4711")
	fmt.Println(erased.Events, erased.Types, err)
	for e, err := range store.ReadStream(ctx, customer, 1) {
		fmt.Println(e.Version, e.Type, e.Redacted(), string(e.Body), err)
	}
	// Output:
	// 1 [CustomerNamed] <nil>
	// 1 CustomerNamed true "redacted" <nil>
}
