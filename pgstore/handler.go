package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
)

// Handler handles the events of a millrace.Projection in a transaction. What its function writes through tx commits
// together with the checkpoint, or not at all. The function must not end tx, change settings that outlast it, or use it
// after returning.
type Handler struct{ handler handler.Handler }

// Engine is called by package millrace.
func (h Handler) Engine() handler.Handler { return h.handler }

// Each makes a Handler of a function for one event. It is the simplest handler, with at least one round trip for each
// event.
func Each(f func(ctx context.Context, tx pgx.Tx, e event.Envelope) error) Handler {
	return Handler{handler.Each(f)}
}

// Batch makes a Handler of a function for all events of a batch, in global order. It is fast if it uses one statement
// for many events, or a pgx.Batch. If it fails, the batch is rolled back and tried again in smaller batches, until the
// failing event is alone. An error that names the event by projection.At makes these tries unnecessary.
func Batch(f func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error) Handler {
	return Handler{handler.Batch(f)}
}

// On makes a Handler of a function for the events of type T.EventType, one by one, with their bodies decoded. An event
// whose body does not decode is not retried. With event.Strict, that is also one whose members are not those of T.
func On[T event.Typed](f func(ctx context.Context, tx pgx.Tx, e event.Of[T]) error,
	options ...event.DecodeOption) Handler {
	return Handler{handler.On(f, options...)}
}

// OnBatch is On for all events of a batch.
func OnBatch[T event.Typed](f func(ctx context.Context, tx pgx.Tx, events []event.Of[T]) error,
	options ...event.DecodeOption) Handler {
	return Handler{handler.OnBatch(f, options...)}
}

// Route combines Handlers of On, OnBatch, OnQueued and OnQueuedBatch for different event types. Events are handled in
// global order. A handler of a batch gets consecutive events of its type. If all of them queue, a batch is one message.
func Route(on ...Handler) Handler {
	handlers := make([]handler.Handler, len(on))
	for i, h := range on {
		handlers[i] = h.handler
	}
	return Handler{handler.Route[pgx.Tx](handlers...)}
}

// Hook is a millrace.Hook: a function that a projection runs in a transaction, such as millrace.Projection.Reset. The
// function must not end tx or use it after returning.
type Hook func(ctx context.Context, tx pgx.Tx) error

// Engine is called by package millrace.
func (h Hook) Engine() handler.Hook { return handler.NewHook(h) }
