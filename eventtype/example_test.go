package eventtype_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/pgstore"
)

// ItemAdded is what is appended today, and ItemAddedV1 what was until last year.
type ItemAdded struct {
	Cents int64 `json:"cents"`
}

func (ItemAdded) EventType() string { return "ItemAdded.v2" }

type ItemAddedV1 struct {
	Amount string `json:"amount"` // "12.50"
}

func (ItemAddedV1) EventType() string { return "ItemAdded" }

// PaidAndShipped was one event in the days of cash on delivery.
type PaidAndShipped struct {
	Cents int64 `json:"cents"`
}

func (PaidAndShipped) EventType() string { return "PaidAndShipped" }

// A shop has changed its events over the years. Its handlers know the current ones only, and its old events stay as
// they are.
func Example() {
	check := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	ctx := context.Background()
	types, err := eventtype.New(
		eventtype.Upcast(func(old ItemAddedV1) (ItemAdded, error) {
			euros, err := strconv.ParseFloat(old.Amount, 64)
			return ItemAdded{Cents: int64(math.Round(euros * 100))}, err
		}, event.Strict),
		eventtype.Split(func(old PaidAndShipped) ([]event.Event, error) {
			return []event.Event{event.Untyped("Paid", old), event.Untyped("Shipped", nil)}, nil
		}, "Paid", "Shipped"),
		eventtype.UpcastJSON("Payed", "Paid", func(body json.RawMessage) (json.RawMessage, error) {
			return fmt.Appendf(nil, `{"cents": %s}`, body), nil
		}),
		eventtype.Renamed("cancelled", "Cancelled"),
		eventtype.Named("Paid", "Shipped", "Cancelled"),
	)
	check(err)

	// Last year's release had no registry.
	dsn := os.Getenv("MILLRACE_DSN")
	old, err := pgstore.Open(ctx, dsn, pgstore.Options{Schema: "example_eventtype"})
	check(err)
	defer old.Close()
	check(old.Migrate(ctx))
	_, err = old.Append(ctx, "order-1", event.NoStream, event.New(ItemAddedV1{"12.50"}),
		event.New(PaidAndShipped{1250}))
	check(err)
	_, err = old.Append(ctx, "order-2", event.NoStream, event.New(ItemAddedV1{"7"}), event.Untyped("Payed", 700),
		event.Untyped("cancelled", nil))
	check(err)

	store, err := pgstore.Open(ctx, dsn, pgstore.Options{Schema: "example_eventtype", Types: types})
	check(err)
	defer store.Close()
	_, err = store.Append(ctx, "order-3", event.NoStream, event.Untyped("ItemAded", nil))
	fmt.Println("misspelt:", errors.Is(err, eventtype.ErrNotRegistered))

	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{
		Name: "receipts",
		Handler: pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
			fmt.Println(e.Stream, e.Version, e.Part, e.Type, string(e.Body))
			return nil
		}),
	}))
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	// Output:
	// misspelt: true
	// order-1 1 0 ItemAdded.v2 {"cents":1250}
	// order-1 2 1 Paid {"cents":1250}
	// order-1 2 2 Shipped null
	// order-2 1 0 ItemAdded.v2 {"cents":700}
	// order-2 2 0 Paid {"cents": 700}
	// order-2 3 0 Cancelled null
}
