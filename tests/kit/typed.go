package kit

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// Typed are the typed constructors of a store, for one type of events.
type Typed[T event.Typed] struct{ Store Store }

// On, OnBatch, OnQueued and OnQueuedBatch are those of the store's package.
func (t Typed[T]) On(f func(ctx context.Context, tx Tx, e event.Of[T]) error,
	o ...event.DecodeOption) millrace.Handler {
	if t.file() {
		return sqlitestore.On(func(ctx context.Context, tx *sql.Tx,
			e event.Of[T]) error {
			return f(ctx, SQLiteTx{tx}, e)
		}, o...)
	}
	return pgstore.On(func(ctx context.Context, tx pgx.Tx, e event.Of[T]) error { return f(ctx, PgTx{tx}, e) }, o...)
}

func (t Typed[T]) OnBatch(f func(ctx context.Context, tx Tx, events []event.Of[T]) error,
	o ...event.DecodeOption) millrace.Handler {
	if t.file() {
		return sqlitestore.OnBatch(func(ctx context.Context, tx *sql.Tx,
			events []event.Of[T]) error {
			return f(ctx, SQLiteTx{tx}, events)
		}, o...)
	}
	return pgstore.OnBatch(func(ctx context.Context, tx pgx.Tx,
		events []event.Of[T]) error {
		return f(ctx, PgTx{tx}, events)
	}, o...)
}

func (t Typed[T]) OnQueued(f func(ctx context.Context, q Queue, e event.Of[T]) error,
	o ...event.DecodeOption) millrace.Handler {
	if t.file() {
		return sqlitestore.OnQueued(queues(f, sqliteRecord), o...)
	}
	return pgstore.OnQueued(queues(f, pgRecord), o...)
}

func (t Typed[T]) OnQueuedBatch(f func(ctx context.Context, q Queue, events []event.Of[T]) error,
	o ...event.DecodeOption) millrace.Handler {
	if t.file() {
		return sqlitestore.OnQueuedBatch(queues(f, sqliteRecord), o...)
	}
	return pgstore.OnQueuedBatch(queues(f, pgRecord), o...)
}

func (t Typed[T]) file() bool {
	_, file := t.Store.(SQLiteStore)
	return file
}

// Route is that of the package of the handlers, which is one.
func Route(first millrace.Handler, others ...millrace.Handler) millrace.Handler {
	if _, file := first.(sqlitestore.Handler); file {
		return sqlitestore.Route(handlersOf[sqlitestore.Handler](first, others)...)
	}
	return pgstore.Route(handlersOf[pgstore.Handler](first, others)...)
}

func handlersOf[H millrace.Handler](first millrace.Handler, others []millrace.Handler) []H {
	all := []H{first.(H)}
	for _, h := range others {
		all = append(all, h.(H))
	}
	return all
}

// EnvelopesOf returns the envelopes of typed events.
func EnvelopesOf[T event.Typed](events []event.Of[T]) []event.Envelope {
	all := make([]event.Envelope, len(events))
	for i, e := range events {
		all[i] = e.Envelope
	}
	return all
}
