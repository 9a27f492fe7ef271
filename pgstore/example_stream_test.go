package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// An append expects the stream as it was described, whether or not it existed.
func ExampleStore_Stream() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_stream"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	for range 2 {
		s, err := store.Stream(ctx, "account-1")
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(s.ID, s.Version, s.Created.IsZero())
		_, err = store.Append(ctx, s.ID, event.Exact(s.Version), event.Untyped("MoneyDeposited", nil))
		fmt.Println(err)
	}
	// Output:
	// account-1 0 true
	// <nil>
	// account-1 1 false
	// <nil>
}
