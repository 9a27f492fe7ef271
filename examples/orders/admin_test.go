package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/examples/orders/release1"
	"github.com/millrace-go/millrace/sqlitestore"
)

// An operator sees an order of release 1 as the handlers of release 2 get it.
func Example_administer() {
	check := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "orders")
	check(err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "orders.db")
	store, err := sqlitestore.Open(ctx, file, sqlitestore.Options{})
	check(err)
	defer store.Close()
	check(store.Migrate(ctx))
	placed := event.New(release1.OrderPlaced{Customer: "Ada", Cents: 42_00})
	placed.Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, err = store.Append(ctx, "order-7", event.NoStream, placed)
	check(err)

	administer([]string{"--file", file, "events", "tail", "--type", "OrderPlaced.v2"})
	administer([]string{"--file", file, "events", "tail", "--stored"})
	// Output:
	// 1  2026-01-02 03:04:05.000  order-7@1  OrderPlaced.v2  {"customer":"Ada","cents":4200,"currency":"EUR"}
	//        1  2026-01-02 03:04:05.000  order-7@1  OrderPlaced  {"customer":"Ada","cents":4200}
}
