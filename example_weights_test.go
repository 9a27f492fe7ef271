package millrace_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// A customer has a plan with three times the share of the others. While projections of several customers wait for
// slots, three batches of that customer run for each batch of another customer. In the end each has all of its batches.
// Tenants that the plans do not name have the weight 1.
func ExampleConfig_tenantWeight() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_weights"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	customers := []string{"acme", "globex"}
	if err := store.CreateTenants(ctx, customers...); err != nil {
		log.Panic(err)
	}
	for _, name := range customers {
		customer, err := store.ForTenant(name)
		if err != nil {
			log.Panic(err)
		}
		invoices := slices.Repeat([]event.Event{event.Untyped("InvoiceSent", nil)}, 40)
		if _, err := customer.Append(ctx, "invoices", event.Any, invoices...); err != nil {
			log.Panic(err)
		}
	}
	plans := map[string]int{"acme": 3}
	rt, err := millrace.New(millrace.Config{
		Store:        store,
		MaxBatches:   1,
		TenantWeight: func(tenant string) int { return plans[tenant] },
	})
	if err != nil {
		log.Panic(err)
	}
	var mu sync.Mutex
	batches := make(map[string]int)
	for i := range 8 {
		err := rt.Register(millrace.Projection{
			Name:      fmt.Sprint("report ", i),
			MaxEvents: 1,
			Handler: pgstore.Batch(func(ctx context.Context, _ pgx.Tx, _ []event.Envelope) error {
				mu.Lock()
				defer mu.Unlock()
				tenant, _ := millrace.TenantFrom(ctx)
				batches[tenant]++
				return nil
			}),
		})
		if err != nil {
			log.Panic(err)
		}
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	fmt.Println("batches of acme:", batches["acme"])
	fmt.Println("batches of globex:", batches["globex"])
	// Output:
	// batches of acme: 320
	// batches of globex: 320
}
