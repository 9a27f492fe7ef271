package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

type OrderPlaced struct {
	Cents int64 `json:"cents"`
}

func (OrderPlaced) EventType() string { return "OrderPlaced" }

type OrderPaid struct {
	Cents int64 `json:"cents"`
}

func (OrderPaid) EventType() string { return "OrderPaid" }

// Order is what decisions about an order need to know.
type Order struct {
	Placed     bool
	Open, Paid int64
}

var orders = aggregate.New("order",
	aggregate.On(func(o Order, e event.Of[OrderPlaced]) Order { return Order{Placed: true, Open: e.Body.Cents} }),
	aggregate.On(func(o Order, e event.Of[OrderPaid]) Order {
		o.Open -= e.Body.Cents
		o.Paid += e.Body.Cents
		return o
	}),
)

var ErrNothingToPay = errors.New("there is nothing to pay")

func place(cents int64) func(Order) ([]event.Event, error) {
	return func(o Order) ([]event.Event, error) {
		if o.Placed {
			return nil, nil // nothing to do
		}
		return []event.Event{event.New(OrderPlaced{Cents: cents})}, nil
	}
}

func pay(o Order) ([]event.Event, error) {
	if o.Open == 0 {
		return nil, ErrNothingToPay
	}
	return []event.Event{event.New(OrderPaid{Cents: o.Open})}, nil
}

// open opens a store of the examples' own.
func open(ctx context.Context, schema string) *pgstore.Store {
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: schema})
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
	return store
}

// A command is a decision on the present state. With a key, a client may send it again until it gets an answer.
func Example() {
	ctx := context.Background()
	store := open(ctx, "example_aggregate")
	defer store.Close()

	if _, err := orders.Do(ctx, store, "7", place(42_00)); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		paid, err := orders.Do(ctx, store, "7", pay, aggregate.Key("request 1"))
		fmt.Println(paid.State.Paid, "version", paid.Version, "repeated", paid.Appended.Repeated, err)
	}
	_, err := orders.Do(ctx, store, "7", pay, aggregate.Key("request 2"))
	fmt.Println(err)
	// Output:
	// 4200 version 2 repeated false <nil>
	// 4200 version 2 repeated true <nil>
	// there is nothing to pay
}

// Run decides on several aggregates, and writes a row of the caller's own, in one transaction.
func ExampleRun() {
	ctx := context.Background()
	store := open(ctx, "example_run")
	defer store.Close()
	if _, err := orders.Do(ctx, store, "7", place(42_00)); err != nil {
		log.Fatal(err)
	}

	// split makes two orders of one.
	split := func(ctx context.Context, u *aggregate.Unit) error {
		from, err := orders.Member(ctx, u, "7")
		if err != nil {
			return err
		}
		to, err := orders.Member(ctx, u, "8")
		if err != nil {
			return err
		}
		half := from.State.Open / 2
		row := pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select 'a row of the caller', $1::bigint", half)
			return err
		})
		return errors.Join(to.Append(event.New(OrderPlaced{Cents: half})),
			from.Append(event.New(OrderPaid{Cents: half})), u.Then(row))
	}
	done, err := aggregate.Run(ctx, store, split, aggregate.Key("request 1"))
	fmt.Println(done.Position > 0, done.Repeated, err)
	eight, err := orders.Load(ctx, store, "8")
	fmt.Println(eight.State.Open, err)
	// Output:
	// true false <nil>
	// 2100 <nil>
}

// The handler of a projection reacts to an event by a decision. Its events commit with the checkpoint of the
// projection, so it reacts to each event once.
func ExampleWithin() {
	ctx := context.Background()
	store := open(ctx, "example_within")
	defer store.Close()

	_ = pgstore.Route(pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[OrderPlaced]) error {
		_, err := orders.Do(ctx, aggregate.Within(store, tx), e.Stream[len("order-"):], pay)
		return err
	}))

	err := store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error { // as a handler
		orderStore := aggregate.Within(store, tx)
		if _, err := orders.Do(ctx, orderStore, "7", place(42_00)); err != nil {
			return err
		}
		paid, err := orders.Do(ctx, orderStore, "7", pay)
		fmt.Println(paid.State.Paid)
		return err
	})
	fmt.Println(err)
	// Output:
	// 4200
	// <nil>
}

// Every 200 events a snapshot of the state is saved. Raise the revision when a fold changes.
func ExampleCategory_Snapshot() {
	saving := orders.Snapshot(200, 1)
	fmt.Println(saving.Validate())
	// Output: <nil>
}

// A projection saves snapshots of the streams that were long before the category had any.
func ExampleCategory_SaveSnapshots() {
	ctx := context.Background()
	store := open(ctx, "example_save_snapshots")
	defer store.Close()

	for _, decide := range []func(Order) ([]event.Event, error){place(42_00), pay} { // of a program without snapshots
		if _, err := orders.Do(ctx, store, "7", decide); err != nil {
			log.Fatal(err)
		}
	}

	saving := orders.Snapshot(2, 1)
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	err = rt.Register(millrace.Projection{
		Name: "order_snapshots",
		Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			return saving.SaveSnapshots(ctx, aggregate.Within(store, tx), events)
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Fatal(err)
	}
	order, err := saving.Load(ctx, store, "7")
	fmt.Println(order.Version, order.Snapshot, err)
	// Output: 2 2 <nil>
}

// Up to 64 MB of states stay in memory. A load of one of them reads only what is new.
func ExampleCategory_Cache() {
	caching := orders.Snapshot(200, 1).Cache(64 << 20)
	fmt.Println(caching.Validate())
	// Output: <nil>
}
