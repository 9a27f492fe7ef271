package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// store is what the shop needs of either store.
type store interface {
	millrace.Store
	event.Appender
	Close()
	// confirmations appends an OrderConfirmed for each OrderPlaced, in the transaction of its checkpoint.
	confirmations() millrace.Handler
	// orders adds the orders of a batch to the table shop_orders.
	orders() millrace.Handler
}

const (
	createOrders = "create table if not exists shop_orders (stream text primary key, customer text not null, cents bigint not null)"
	addOrder     = "insert into shop_orders (stream, customer, cents) values ($1, $2, $3)"
)

type postgres struct{ *pgstore.Store }

func openPostgres(ctx context.Context, url string, around []event.AppendMiddleware) (store, error) {
	s, err := pgstore.Open(ctx, url, pgstore.Options{AppendMiddleware: around})
	if err != nil {
		return nil, err
	}
	if err := migratePostgres(ctx, s); err != nil {
		s.Close()
		return nil, err
	}
	return postgres{s}, nil
}

func migratePostgres(ctx context.Context, s *pgstore.Store) error {
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	_, err := s.Pool().Exec(ctx, createOrders)
	return err
}

func (s postgres) confirmations() millrace.Handler {
	return pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[OrderPlaced]) error {
		if err := valid(e.Body); err != nil {
			return err
		}
		_, err := s.AppendTx(ctx, tx, e.Stream, event.Any, event.New(OrderConfirmed{}))
		return err
	})
}

func (s postgres) orders() millrace.Handler { return pgstore.OnQueuedBatch(addOrders) }

type file struct{ *sqlitestore.Store }

func openFile(ctx context.Context, path string, around []event.AppendMiddleware) (store, error) {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Options{AppendMiddleware: around})
	if err != nil {
		return nil, err
	}
	if err := migrateFile(ctx, s); err != nil {
		s.Close()
		return nil, err
	}
	return file{s}, nil
}

func migrateFile(ctx context.Context, s *sqlitestore.Store) error {
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	return s.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, createOrders)
		return err
	})
}

func (s file) confirmations() millrace.Handler {
	return sqlitestore.On(func(ctx context.Context, tx *sql.Tx, e event.Of[OrderPlaced]) error {
		if err := valid(e.Body); err != nil {
			return err
		}
		_, err := s.AppendTx(ctx, tx, e.Stream, event.Any, event.New(OrderConfirmed{}))
		return err
	})
}

func (s file) orders() millrace.Handler { return sqlitestore.OnQueuedBatch(addOrders) }

// addOrders serves both stores, since it only writes: their queues are of one type.
func addOrders(_ context.Context, q pgstore.Queue, events []event.Of[OrderPlaced]) error {
	for _, e := range events {
		q.At(e.Envelope).Exec(addOrder, e.Stream, e.Body.Customer, e.Body.Cents)
	}
	return nil
}
