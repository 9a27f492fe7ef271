package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
)

// Handler handles the events of a millrace.Projection in a transaction. What its function writes through tx commits
// together with the checkpoint, or not at all. The function must not end tx or use it after returning.
//
// If a statement fails, SQLite undoes only that statement, and tx can still commit. So a function that ignores the
// error decides that its batch is done without that statement. After some errors, for instance if the disk is full,
// SQLite rolls back the transaction. Then the batch fails, also if the function returns nil.
//
// The file has one writer. While a function runs, all other handlers, appends and transactions of the file wait. So it
// should be fast, and do other work, such as calls of web services, in a delivery. When Projection.Timeout passes, the
// statement that runs is interrupted. If the function does not return within 2 s after that, it loses its connection:
// all later uses of tx fail.
//
// If the function only writes, Queued does not hold up the others while it runs.
//
// Within the function, append by AppendTx with its tx. All other calls that write fail with ErrWithinTx.
//
// The function must close its rows. If it leaves rows open, its transaction ends as usual, but its connection is not
// used again. If a row was scanned into sql.RawBytes, the connection stays open until the rows are closed.
type Handler struct{ handler handler.Handler }

// Engine is called by package millrace.
func (h Handler) Engine() handler.Handler { return h.handler }

// Each makes a Handler of a function for one event. It is the simplest handler.
func Each(f func(ctx context.Context, tx *sql.Tx, e event.Envelope) error) Handler {
	return Handler{handler.Each(f)}
}

// Batch makes a Handler of a function for all events of a batch, in global order. It can prepare a statement once, or
// use one statement for many events. If it fails, the batch is rolled back and tried again in smaller batches, until
// the failing event is alone. An error that names the event by projection.At makes these tries unnecessary.
func Batch(f func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error) Handler {
	return Handler{handler.Batch(f)}
}

// On makes a Handler of a function for the events of type T.EventType, one by one, with their bodies decoded. An event
// whose body does not decode is not retried. With event.Strict, that is also one whose members are not those of T.
func On[T event.Typed](f func(ctx context.Context, tx *sql.Tx, e event.Of[T]) error,
	options ...event.DecodeOption) Handler {
	return Handler{handler.On(f, options...)}
}

// OnBatch is On for all events of a batch.
func OnBatch[T event.Typed](f func(ctx context.Context, tx *sql.Tx, events []event.Of[T]) error,
	options ...event.DecodeOption) Handler {
	return Handler{handler.OnBatch(f, options...)}
}

// Route combines Handlers of On, OnBatch, OnQueued and OnQueuedBatch for different event types. Events are handled in
// global order. A handler of OnBatch or OnQueuedBatch gets consecutive events of its type. Only if all of them queue,
// the Route runs without a transaction.
func Route(on ...Handler) Handler {
	handlers := make([]handler.Handler, len(on))
	for i, h := range on {
		handlers[i] = h.handler
	}
	return Handler{handler.Route[*sql.Tx](handlers...)}
}

// Hook is a millrace.Hook: a function that a projection runs in a transaction, such as millrace.Projection.Reset. The
// function must not end tx or use it after returning. It must pass ctx to every statement.
type Hook func(ctx context.Context, tx *sql.Tx) error

// Engine is called by package millrace.
func (h Hook) Engine() handler.Hook { return handler.NewHook(h) }
