package admin_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/pgstore"
)

// A job of a deployment migrates only a store that is older than the program.
func ExampleAdmin_Schema() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_schema"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	a, err := admin.New(store)
	if err != nil {
		log.Panic(err)
	}
	for {
		schema, err := a.Schema(ctx)
		if err != nil {
			log.Panic(err)
		}
		if schema.Found == schema.Newest && len(schema.Outdated) == 0 {
			fmt.Println("up to date")
			break
		}
		fmt.Println("the store is at version", schema.Found)
		if err := store.Migrate(ctx); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// the store is at version 0
	// up to date
}
