package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// One statement for a whole batch of events is the fastest way to handle them. The handler is given the types that it
// asks for; its checkpoint moves over the others all the same.
func ExampleProjection_batch() {
	store, drop := exampleStore()
	defer drop()
	rt := exampleRuntime(store, millrace.Projection{
		Name:  "paid",
		Types: []string{"OrderPaid"},
		Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			bodies := make([]string, len(events))
			for i, e := range events {
				bodies[i] = string(e.Body)
			}
			_, err := tx.Exec(ctx, `insert into paid
				select b ->> 'customer', sum((b ->> 'amount')::numeric) from unnest($1::jsonb[]) b group by 1
				on conflict (customer) do update set total = paid.total + excluded.total`, bodies)
			return err
		}),
	})
	ctx := context.Background()
	for _, e := range []event.Event{
		{Type: "OrderPaid", Body: []byte(`{"customer": "Ada", "amount": 30.00}`)},
		{Type: "OrderShipped", Body: []byte(`{"customer": "Ada", "amount": 99}`)},
		{Type: "OrderPaid", Body: []byte(`{"customer": "Ada", "amount": 12.50}`)},
	} {
		if _, err := store.Append(ctx, "order-1", event.Any, e); err != nil {
			log.Panic(err)
		}
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	fmt.Println(exampleValue(store, "select total::text from paid where customer = 'Ada'"))
	// Output:
	// 42.50
}

// An event that its handler cannot handle is tried again and then parked, while the others are applied. A batch handler
// that knows the event says which it is, so that it need not be searched for.
func ExampleProjection_deadLetters() {
	store, drop := exampleStore()
	defer drop()
	rt := exampleRuntime(store, millrace.Projection{
		Name:  "visits",
		Retry: projection.RetryPolicy{MaxAttempts: 3, Base: 10 * time.Millisecond},
		Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			for _, e := range events {
				if e.Type != "Visited" {
					return projection.At(e.Position, errors.New("nobody told me what that is"))
				}
				if err := countVisit(ctx, tx, e); err != nil {
					return projection.At(e.Position, err)
				}
			}
			return nil
		}),
	})
	ctx := context.Background()
	for _, eventType := range []string{"Visited", "Teleported", "Visited"} {
		if _, err := store.Append(ctx, "page-1", event.Any, event.Event{Type: eventType}); err != nil {
			log.Panic(err)
		}
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	fmt.Println("visits:", exampleValue(store, "select n from visits where page = 'page-1'"))
	letters, err := store.DeadLetters(millrace.ProjectionID{Name: "visits"}).List(ctx, projection.DeadLetterPage{})
	if err != nil {
		log.Panic(err)
	}
	for _, d := range letters {
		fmt.Printf("%s at %d failed %d times: %s\n", d.Type, d.Position, d.Attempts, d.Error)
	}
	// Output:
	// visits: 2
	// Teleported at 2 failed 3 times: nobody told me what that is
}

// What a handler appends is part of its batch: it is there once, and only if the batch is. That makes of a projection a
// process that answers events by events.
func ExampleProjection_appendTx() {
	store, drop := exampleStore()
	defer drop()
	rt := exampleRuntime(store, millrace.Projection{
		Name:  "invoicing",
		Types: []string{"OrderPlaced"},
		Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			requested := event.Event{Type: "InvoiceRequested", Body: e.Body, CausationID: fmt.Sprint(e.Position)}
			_, _, err := store.AppendTx(ctx, tx, "invoice-of-"+e.Stream, event.NoStream, requested)
			return err
		}),
	})
	ctx := context.Background()
	if _, err := store.Append(ctx, "order-1", event.NoStream, event.Event{Type: "OrderPlaced", Body: []byte(`{"amount": 5}`)}); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	for e, err := range store.ReadStream(ctx, "invoice-of-order-1", 1) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(e.Type, string(e.Body), "caused by the event at", e.CausationID)
	}
	// Output:
	// InvoiceRequested {"amount": 5} caused by the event at 1
}
