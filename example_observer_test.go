package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// An observer sees what happens in a runtime: here, that an event is parked. Its callbacks are called from several
// goroutines.
func ExampleConfig_observer() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_observer"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	decisions := make(chan observe.Decision, 1)
	rt, err := millrace.New(millrace.Config{Store: store, Observer: observe.Observer{
		Decided: func(d observe.Decision) { decisions <- d },
	}})
	if err != nil {
		log.Panic(err)
	}
	err = rt.Register(millrace.Projection{Name: "invoices",
		Handler: pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error {
			return projection.Park(errors.New("no such customer"))
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
	d := <-decisions
	fmt.Println(d.Projection.Name, "decided:", d.Action, d.Stream, "after", d.Attempts, "attempt:", d.Err)
	// Output:
	// invoices decided: park order-1 after 1 attempt: no such customer
}
