package millrace

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
)

// HandleFunc calls a function of a handler. The function of Each, On, DeliverEach and DeliverOn gets one event, and so
// does its HandleFunc. The function of Batch, OnBatch and Deliver gets several events, and its HandleFunc gets the same
// ones.
type HandleFunc func(ctx context.Context, events []event.Envelope) error

// Middleware returns a HandleFunc that wraps the next one: it measures, logs, or adds values to the context. It is
// called once for each projection that is registered. The functions that it returns are called from several goroutines
// at once, for each event or batch, each retry, and each replay of a dead letter. ProjectionFrom returns the
// projection.
//
//	func logged(next millrace.HandleFunc) millrace.HandleFunc {
//		return func(ctx context.Context, events []event.Envelope) error {
//			err := next(ctx, events)
//			if err != nil {
//				slog.ErrorContext(ctx, "handler failed", "position", events[0].Position, "error", err)
//			}
//			return err
//		}
//	}
//
// The innermost HandleFunc returns the error of the function. It also returns the error if an event cannot be decoded
// for On or OnBatch. If the function panics, the error wraps projection.ErrHandlerPanic. Middleware should return the
// error as it is or wrap it with %w. A wrapped error still names the failed event and the action that the handler
// requests, for instance with projection.Park. Middleware may request an action itself: to skip an event, it returns
// projection.Skip(err) and does not call next. If middleware returns nil instead of the error, the event counts as
// handled. The writes that the function made before it failed are then committed, unless the transaction itself has
// failed.
//
// Middleware must call next at most once, with the events and the context that it received, or with a context derived
// from that one. It must not return before next has returned. It must not return nil without calling next. If it breaks
// one of these rules, the event counts as failed. Projection.Timeout includes the time that the middleware takes.
type Middleware func(next HandleFunc) HandleFunc

// around returns a handler with middleware around its functions, the first outermost.
func around(h handler.Handler, all []Middleware) (handler.Handler, error) {
	c, err := handler.NewChain(len(all), func(i int,
		next handler.Call) handler.Call {
		return handler.Call(all[i](HandleFunc(next)))
	})
	return h.Within(c), err
}

// validateMiddleware returns an error if one of the middlewares of that field is nil.
func validateMiddleware(field string, all []Middleware) error {
	for i, m := range all {
		if m == nil {
			return fmt.Errorf("%s must not contain nil: middleware %d", field, i+1)
		}
	}
	return nil
}
