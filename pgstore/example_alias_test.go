package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// A customer is known by an e-mail address. The alias leads to the customer's stream, whose id says nothing about the
// customer.
func ExampleStore_Alias() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_alias"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	for range 2 {
		customer, err := store.Alias(ctx, "ada@example.com")
		if err != nil {
			log.Panic(err)
		}
		appended, err := store.Append(ctx, customer, event.Any, event.Untyped("CustomerSeen", nil))
		fmt.Println(len(customer), appended.Version, err)
	}
	// Output:
	// 36 1 <nil>
	// 36 2 <nil>
}
