package millrace_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

type OrderPaid struct{ Customer, Amount string }

func (OrderPaid) EventType() string { return "OrderPaid" }

// addUp handles all events of a batch by one statement, which is the fastest way.
func addUp(ctx context.Context, tx pgx.Tx, events []event.Of[OrderPaid]) error {
	customers, amounts := make([]string, len(events)), make([]string, len(events))
	for i, e := range events {
		customers[i], amounts[i] = e.Body.Customer, e.Body.Amount
	}
	_, err := tx.Exec(ctx, `insert into paid
		select customer, sum(amount::numeric) from unnest($1::text[], $2::text[]) as p (customer, amount) group by 1
		on conflict (customer) do update set total = paid.total + excluded.total`, customers, amounts)
	return err
}

// A projection handles many events by one statement. Its checkpoint also moves over events of other types.
func ExampleProjection_batch() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_batch"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	if _, err := store.Pool().Exec(ctx,
		"create table if not exists paid (customer text primary key, total numeric)"); err != nil {
		log.Panic(err)
	}
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Panic(err)
	}
	if err := rt.Register(millrace.Projection{Name: "paid", Handler: pgstore.OnBatch(addUp)}); err != nil {
		log.Panic(err)
	}
	events := []event.Event{
		event.New(OrderPaid{"Ada", "30.00"}), event.Untyped("OrderShipped", nil), event.New(OrderPaid{"Ada", "12.50"}),
	}
	if _, err := store.Append(ctx, "order-1", event.Any, events...); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	var total string
	err = store.Pool().QueryRow(ctx, "select total::text from paid where customer = 'Ada'").Scan(&total)
	fmt.Println(total, err)
	// Output:
	// 42.50 <nil>
}
