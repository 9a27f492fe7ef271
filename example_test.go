package millrace_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

func Example() {
	folder, err := os.MkdirTemp("", "shop-")
	if err != nil {
		log.Panic(err)
	}
	defer os.RemoveAll(folder)
	if err := quickStart(context.Background(), filepath.Join(folder, "shop.db")); err != nil {
		log.Panic(err)
	}
	// Output:
	// order-1 is worth 42.50
}

// From here on this file is the quick start of the README.

type ItemAdded struct{ Cents int64 }

func (ItemAdded) EventType() string { return "ItemAdded" }

func addItem(ctx context.Context, tx *sql.Tx, e event.Of[ItemAdded]) error {
	_, err := tx.ExecContext(ctx, `insert into totals values ($1, $2)
		on conflict (stream) do update set cents = totals.cents + excluded.cents`, e.Stream, e.Body.Cents)
	return err
}

func quickStart(ctx context.Context, file string) error {
	store, err := sqlitestore.Open(ctx, file, sqlitestore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	err = store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `create table if not exists totals (stream text primary key, cents bigint)`)
		return err
	})
	if err != nil {
		return err
	}
	_, err = store.Append(ctx, "order-1", event.Any, event.New(ItemAdded{30_00}), event.New(ItemAdded{12_50}))
	if err != nil {
		return err
	}

	rt, err := millrace.New(millrace.Config{Store: store, Logger: millrace.SlogLogger(slog.Default())})
	if err != nil {
		return err
	}
	if err := rt.Register(millrace.Projection{Name: "totals", Handler: sqlitestore.On(addItem)}); err != nil {
		return err
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil { // a server calls rt.Run(ctx), which blocks until ctx is done
		return err
	}
	var cents int64
	err = store.DB().QueryRowContext(ctx, `select cents from totals where stream = 'order-1'`).Scan(&cents)
	fmt.Printf("order-1 is worth %d.%02d\n", cents/100, cents%100)
	return err
}
