package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

type (
	LinePacked   struct{ Cents int }
	LineReturned struct{ Cents int }
)

func (LinePacked) EventType() string   { return "LinePacked" }
func (LineReturned) EventType() string { return "LineReturned" }

// linesPacked queues one statement for all events of a batch. The rows are passed as JSON.
func linesPacked(_ context.Context, q sqlitestore.Queue, events []event.Of[LinePacked]) error {
	cents := make(map[string]int)
	for _, e := range events {
		cents[e.Stream] += e.Body.Cents
	}
	q.Exec(`insert into parcels select key, value from json_each($1) where true
		on conflict (parcel) do update set cents = parcels.cents + excluded.cents`, cents)
	return nil
}

// lineReturned fails, and parks the event in the end, if there is no such parcel.
func lineReturned(_ context.Context, q sqlitestore.Queue, e event.Of[LineReturned]) error {
	q.Expect(1).Exec("update parcels set cents = cents - $1 where parcel = $2", e.Body.Cents, e.Stream)
	return nil
}

// Handlers that only write queue their statements. While such a handler runs, others may write to the file.
func ExampleQueued() {
	check := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example-")
	check(err)
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "events.db"), sqlitestore.Options{})
	check(err)
	defer store.Close()
	check(store.Migrate(ctx))
	check(store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			`create table parcels (parcel text primary key, cents integer not null); create table facts (position integer, type text);
			create table bodies (position integer, body text)`)
		return err
	}))
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(
		millrace.Projection{
			Name: "parcels", Handler: sqlitestore.Route(sqlitestore.OnQueuedBatch(linesPacked),
				sqlitestore.OnQueued(lineReturned)),
		},
		millrace.Projection{Name: "facts",
			Handler: sqlitestore.QueuedEach(func(_ context.Context, q sqlitestore.Queue, e event.Envelope) error {
				q.Exec("insert into facts values ($1, $2)", e.Position, e.Type)
				return nil
			})},
		millrace.Projection{Name: "bodies",
			Handler: sqlitestore.Queued(func(_ context.Context, q sqlitestore.Queue, events []event.Envelope) error {
				for _, e := range events {
					q.At(e).Exec("insert into bodies values ($1, $2)", e.Position, e.Body)
				}
				return nil
			})},
	))
	_, err = store.Append(ctx, "parcel-1", event.NoStream, event.New(LinePacked{30_00}), event.New(LinePacked{12_50}),
		event.New(LineReturned{40_00}))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	var cents, facts, bodies int
	check(store.DB().QueryRowContext(ctx,
		`select (select cents from parcels where parcel = 'parcel-1'), (select count(*) from facts),
		(select sum(body ->> 'Cents') from bodies)`).Scan(&cents, &facts, &bodies))
	fmt.Println(cents, facts, bodies)
	// Output:
	// 250 3 8250
}
