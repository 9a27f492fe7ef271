package pgstore_test

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

type (
	Deposited struct{ Cents int }
	Withdrawn struct{ Cents int }
)

func (Deposited) EventType() string { return "Deposited" }
func (Withdrawn) EventType() string { return "Withdrawn" }

// deposited queues one statement for all events of a batch.
func deposited(_ context.Context, q pgstore.Queue, events []event.Of[Deposited]) error {
	accounts, cents := make([]string, len(events)), make([]int, len(events))
	for i, e := range events {
		accounts[i], cents[i] = e.Stream, e.Body.Cents
	}
	q.Exec(`insert into balances select account, sum(cents) from unnest($1::text[], $2::bigint[]) u (account, cents) group by account
		on conflict (account) do update set cents = balances.cents + excluded.cents`, accounts, cents)
	return nil
}

// withdrawn fails, and parks the event in the end, if there is no such account.
func withdrawn(_ context.Context, q pgstore.Queue, e event.Of[Withdrawn]) error {
	q.Expect(1).Exec("update balances set cents = cents - $1 where account = $2", e.Body.Cents, e.Stream)
	return nil
}

// Handlers that only write queue their statements, which are sent in one message with the checkpoint and the commit.
func ExampleQueued() {
	check := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_queued"})
	check(err)
	defer store.Close()
	check(store.Migrate(ctx))
	_, err = store.Pool().Exec(ctx,
		`create table balances (account text primary key, cents bigint not null); create table facts (position bigint, type text);
		create table bodies (position bigint, body jsonb)`, pgx.QueryExecModeSimpleProtocol)
	check(err)
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(
		millrace.Projection{
			Name: "balances", Handler: pgstore.Route(pgstore.OnQueuedBatch(deposited), pgstore.OnQueued(withdrawn)),
		},
		millrace.Projection{Name: "facts",
			Handler: pgstore.QueuedEach(func(_ context.Context, q pgstore.Queue, e event.Envelope) error {
				q.Exec("insert into facts values ($1, $2)", e.Position, e.Type)
				return nil
			})},
		millrace.Projection{Name: "bodies",
			Handler: pgstore.Queued(func(_ context.Context, q pgstore.Queue, events []event.Envelope) error {
				for _, e := range events {
					q.At(e).Exec("insert into bodies values ($1, $2)", e.Position, e.Body)
				}
				return nil
			})},
	))
	_, err = store.Append(ctx, "account-1", event.NoStream, event.New(Deposited{30_00}), event.New(Deposited{12_50}),
		event.New(Withdrawn{40_00}))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	var cents, facts, bodies int
	check(store.Pool().QueryRow(ctx,
		`select (select cents from balances where account = 'account-1'), (select count(*) from facts),
		(select sum((body ->> 'Cents')::bigint) from bodies)`).Scan(&cents, &facts, &bodies))
	fmt.Println(cents, facts, bodies)
	// Output:
	// 250 3 8250
}
