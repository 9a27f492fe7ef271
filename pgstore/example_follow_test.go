package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// A program follows an order until it is paid. It begins after what it has seen before.
func ExampleStore_Follow() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_follow"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	seen, err := store.Settled(ctx)
	if err != nil {
		log.Panic(err)
	}
	go func() {
		for _, eventType := range []string{"OrderPlaced", "OrderPacked", "OrderPaid"} {
			if _, err := store.Append(ctx, "order-1", event.Any, event.Untyped(eventType, nil)); err != nil {
				log.Panic(err)
			}
		}
	}()
	for e, err := range store.Follow(ctx, event.ReadOptions{After: seen, Types: []string{"OrderPlaced", "OrderPaid"}}) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(e.Stream, e.Type)
		if e.Type == "OrderPaid" {
			break
		}
	}
	// Output:
	// order-1 OrderPlaced
	// order-1 OrderPaid
}
