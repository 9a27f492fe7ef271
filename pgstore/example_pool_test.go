package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millrace-go/millrace/pgstore"
)

// A program has a pool already, for instance with hooks or a tracer of its own. The store uses it, and does not close
// it.
func ExampleOpenPool() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("MILLRACE_DSN"))
	if err != nil {
		log.Panic(err)
	}
	defer pool.Close()
	store, err := pgstore.OpenPool(ctx, pool, pgstore.Options{Schema: "example_pool"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	fmt.Println(store.Migrate(ctx), store.Pool() == pool, store.EventsSchema())
	// Output:
	// <nil> true example_pool_default
}
