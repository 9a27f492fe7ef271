package millrace_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// A projection runs for all customers in the European Union, including later ones, and for one other customer, whose
// name contains a wildcard. For other tenants the projection has no checkpoint and costs nothing.
func ExampleProjection_tenants() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_tenants"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	customers := []string{"eu-acme", "eu-globex", "us-initech", "what?"}
	if err := store.CreateTenants(ctx, customers...); err != nil {
		log.Panic(err)
	}
	for _, name := range customers {
		customer, err := store.ForTenant(name)
		if err != nil {
			log.Panic(err)
		}
		if _, err := customer.Append(ctx, "invoice-1", event.Any, event.Untyped("InvoiceSent", nil)); err != nil {
			log.Panic(err)
		}
	}
	var mu sync.Mutex
	reported := map[string]int{} // a read model is usually a table
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Panic(err)
	}
	err = rt.Register(millrace.Projection{
		Name:    "tax reports",
		Tenants: []string{"eu-*", millrace.ExactTenant("what?")},
		Handler: pgstore.Each(func(ctx context.Context, _ pgx.Tx, _ event.Envelope) error {
			mu.Lock()
			defer mu.Unlock()
			tenant, _ := millrace.TenantFrom(ctx)
			reported[tenant]++
			return nil
		}),
	})
	if err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	fmt.Println(slices.Sorted(maps.Keys(reported)))
	// Output:
	// [eu-acme eu-globex what?]
}
