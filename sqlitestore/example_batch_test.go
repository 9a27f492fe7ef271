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
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// countEvents handles all events of a batch with one prepared statement.
func countEvents(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
	count, err := tx.PrepareContext(ctx,
		"insert into counts values (?, 1) on conflict (type) do update set events = events + 1")
	if err != nil {
		return err
	}
	defer count.Close()
	for _, e := range events {
		if _, err := count.ExecContext(ctx, e.Type); err != nil {
			return projection.At(e.Position, err)
		}
	}
	return nil
}

// A handler of batches prepares a statement once for all of their events. An error names its event.
func ExampleBatch() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "counts-")
	if err != nil {
		log.Panic(err)
	}
	defer os.RemoveAll(folder)
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "counts.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	err = store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "create table counts (type text primary key, events integer)")
		return err
	})
	if err != nil {
		log.Panic(err)
	}
	for i := range 100 {
		kind := []string{"Deposited", "Withdrawn", "Deposited"}[i%3]
		if _, err := store.Append(ctx, "account-1", event.Any, event.Untyped(kind, i)); err != nil {
			log.Panic(err)
		}
	}

	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Panic(err)
	}
	if err := rt.Register(millrace.Projection{Name: "counts", Handler: sqlitestore.Batch(countEvents)}); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	rows, err := store.DB().QueryContext(ctx, "select type, events from counts order by type")
	if err != nil {
		log.Panic(err)
	}
	defer rows.Close()
	for rows.Next() {
		var kind string
		var events int
		if err := rows.Scan(&kind, &events); err != nil {
			log.Panic(err)
		}
		fmt.Println(kind, events)
	}
	if err := rows.Err(); err != nil {
		log.Panic(err)
	}
	// Output:
	// Deposited 67
	// Withdrawn 33
}
