package main

import (
	"context"
	"log"

	"github.com/millrace-go/millrace/commandline"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/examples/orders/release1"
	"github.com/millrace-go/millrace/pgstore"
)

// eventTypes is the registry of both stores. They take no other event types, and give handlers and aggregates current
// events only.
func eventTypes() (*eventtype.Types, error) {
	return eventtype.New(
		eventtype.Upcast(inEuros, event.Strict),
		eventtype.Of[OrderPaid](), eventtype.Of[OrderCancelled](),
		eventtype.Of[PaymentRequested](), eventtype.Of[PaymentMade](), eventtype.Of[PaymentDeclined](),
		eventtype.Of[RefundRequested](),
	)
}

// inEuros makes an order of this release of one of release 1, which knew no other currency.
func inEuros(old release1.OrderPlaced) (OrderPlaced, error) {
	return OrderPlaced{Customer: old.Customer, Cents: old.Cents, Currency: "EUR"}, nil
}

// administer runs a command of operators with the registry, and returns the exit status. It shows events as handlers
// get them.
func administer(args []string) int {
	types, err := eventTypes()
	if err != nil {
		log.Print(err)
		return 1
	}
	return commandline.Main(args, commandline.Options{Types: types})
}

// turnoverTable is that of the turnover, a read model that release 2 adds. It begins at the first event, so it has the
// orders of release 1.
const turnoverTable = `create table if not exists turnover (currency text primary key, cents bigint not null)`

func addTurnover(_ context.Context, q pgstore.Queue, e event.Of[OrderPlaced]) error {
	q.Exec(`insert into turnover (currency, cents) values ($1, $2)
		on conflict (currency) do update set cents = turnover.cents + excluded.cents`, e.Body.Currency, e.Body.Cents)
	return nil
}
