package millraceotel_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millraceotel"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A program reports to the providers that it has set by otel.SetMeterProvider and otel.SetTracerProvider. This one has
// set none, so nothing is reported.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	telemetry, err := millraceotel.New(millraceotel.Options{})
	if err != nil {
		log.Panic(err)
	}
	store, err := sqlitestore.Open(ctx, folder+"/events.db",
		sqlitestore.Options{AppendMiddleware: []event.AppendMiddleware{telemetry.Append}})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	rt, err := millrace.New(millrace.Config{
		Store: store, Observer: telemetry.Observer(), Middleware: []millrace.Middleware{telemetry.Handle},
	})
	if err != nil {
		log.Panic(err)
	}
	stopNode, err := telemetry.WatchNode(rt)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = stopNode() }()
	stopDeployment, err := telemetry.WatchDeployment(rt.Admin)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = stopDeployment() }()

	err = rt.Register(millrace.Projection{Name: "orders",
		Handler: sqlitestore.Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
			fmt.Println(e.Type, "of", e.Stream)
			return nil
		})})
	if err != nil {
		log.Panic(err)
	}
	if _, err := store.Append(ctx, "order-1", event.NoStream, event.Untyped("OrderPlaced", nil)); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	// Output:
	// OrderPlaced of order-1
}
