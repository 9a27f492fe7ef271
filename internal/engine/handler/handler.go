// Package handler has the handlers and hooks of users, made of their functions: for transactions, for deliveries, and
// those that queue statements, with the middleware and the upcasters around them.
package handler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/cause"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// Handler is a projection's handler without the type of its transaction, so that no package but the store knows its
// driver. Exactly one of Apply and Deliver is set, unless Err is.
type Handler struct {
	// Tx is the type of the transaction that Apply takes. It is nil for Deliver.
	Tx reflect.Type
	// Types are the event types that the handler handles. Nil means all.
	Types []string
	// Apply handles the events of one batch in a transaction of type Tx.
	Apply func(ctx context.Context, tx any, events []event.Envelope) error
	// Queue does what Apply does, and queues the statements that Apply executes. It is nil if Apply may do more than
	// that.
	Queue func(ctx context.Context, q queued.Queue, events []event.Envelope) error
	// Deliver handles the events of one delivery outside of a transaction.
	Deliver func(ctx context.Context, d Delivery) error
	// One delivers one event, the only one of its slice, and does not acknowledge it. It is nil if the handler's
	// function takes deliveries of several events.
	One func(ctx context.Context, d Delivery, event []event.Envelope) error
	// Batches reports whether each function of the handler takes the events of a batch at once, so that larger batches
	// cost fewer statements.
	Batches bool
	// Faults overrides the limits after which Unclear faults count. Only tests set it, because they cannot wait for the
	// defaults.
	Faults faults.Limits
	// Err is why the handler cannot be used.
	Err error

	make func(c Chain) Handler
}

// made returns the Handler that make makes without middleware. Within makes it again.
func made(make func(c Chain) Handler) Handler {
	h := make(nil)
	h.make = make
	return h
}

// Within returns the handler with middleware around each call of its functions.
func (h Handler) Within(c Chain) Handler {
	if h.make != nil {
		again := h.make(c)
		h.Apply, h.Queue, h.Deliver, h.One = again.Apply, again.Queue, again.Deliver, again.One
	}
	return h
}

// Delivery is the store's part of a millrace.Delivery, which documents the methods.
type Delivery interface {
	Events() []event.Envelope
	Token(e event.Envelope) string
	Remaining() time.Duration
	Ack(ctx context.Context, position int64) error
	Reject(ctx context.Context, position int64, cause error) error
}

var errNoFunction = errors.New("the handler's function is nil")

// Batch makes a Handler of a function for the events of one batch.
func Batch[Tx any](f func(ctx context.Context, tx Tx, events []event.Envelope) error) Handler {
	if f == nil {
		return Handler{Err: errNoFunction}
	}
	return made(func(c Chain) Handler {
		return Handler{Tx: reflect.TypeFor[Tx](), Batches: true,
			Apply: func(ctx context.Context, tx any, events []event.Envelope) error {
				return c.call(ctx, events, func(ctx context.Context,
					events []event.Envelope) error {
					return f(ctx, tx.(Tx), events)
				})
			}}
	})
}

// Each makes a Handler of a function for one event. If the function fails or panics, the error names the event.
func Each[Tx any](f func(ctx context.Context, tx Tx, e event.Envelope) error) Handler {
	if f == nil {
		return Handler{Err: errNoFunction}
	}
	return made(func(c Chain) Handler {
		return Handler{Tx: reflect.TypeFor[Tx](), Apply: func(ctx context.Context,
			tx any, events []event.Envelope) error {
			one := func(ctx context.Context, events []event.Envelope) error { return f(ctx, tx.(Tx), events[0]) }
			causing := causing(ctx, events)
			for i := range events {
				if err := named(events[i],
					func() error { return c.call(&causing[i], events[i:i+1:i+1], one) }); err != nil {
					return err
				}
			}
			return nil
		}}
	})
}

// named calls fn. If it fails or panics, the error names the event.
func named(e event.Envelope, fn func() error) error {
	if err := usercode.Protect(fn); err != nil {
		return &projection.EventError{Position: e.Position, Stack: usercode.StackOf(err), Err: err}
	}
	return nil
}

// On makes a Handler of a function for one event of one type.
func On[Tx any, T event.Typed](f func(ctx context.Context, tx Tx, e event.Of[T]) error,
	o ...event.DecodeOption) Handler {
	if f == nil {
		return Handler{Err: errNoFunction}
	}
	return ofType[T](Each(decodesEach(f, o)))
}

// decodesEach decodes the event for f, unless it is left out.
func decodesEach[X any, T event.Typed](f func(ctx context.Context, x X, e event.Of[T]) error,
	o []event.DecodeOption) func(context.Context, X, event.Envelope) error {
	return func(ctx context.Context, x X, e event.Envelope) error {
		if SkipsRedacted(e, o) {
			return nil
		}
		decoded, err := event.As[T](e, o...)
		if err != nil {
			return err
		}
		return f(ctx, x, decoded)
	}
}

// OnBatch makes a Handler of a function for events of one type.
func OnBatch[Tx any, T event.Typed](f func(ctx context.Context, tx Tx, events []event.Of[T]) error,
	o ...event.DecodeOption) Handler {
	if f == nil {
		return Handler{Err: errNoFunction}
	}
	return ofType[T](Batch(decodesBatch(f, o)))
}

// decodesBatch decodes the events for f, as decodesEach does.
func decodesBatch[X any, T event.Typed](f func(ctx context.Context, x X, events []event.Of[T]) error,
	o []event.DecodeOption) func(context.Context, X, []event.Envelope) error {
	return func(ctx context.Context, x X, events []event.Envelope) error {
		all := make([]event.Of[T], 0, len(events))
		for _, e := range events {
			if SkipsRedacted(e, o) {
				continue
			}
			decoded, err := event.As[T](e, o...)
			if err != nil {
				return projection.At(e.Position, err)
			}
			all = append(all, decoded)
		}
		if len(all) == 0 {
			return nil
		}
		return f(ctx, x, all)
	}
}

// SkipsRedacted reports whether a typed handler is not called for an event.
func SkipsRedacted(e event.Envelope, o []event.DecodeOption) bool {
	return e.Redacted() && !slices.Contains(o, event.IncludeRedacted)
}

// ofType limits a handler to the event type of T.
func ofType[T event.Typed](h Handler) Handler {
	eventType, err := usercode.EventType[T]()
	h.Err = err
	if err != nil {
		return h
	}
	h.Types = []string{eventType}
	return h
}

// Route makes one Handler of several for one type each. Each run of consecutive events of one type is handled by one
// call, so that events are handled in order.
func Route[Tx any](handlers ...Handler) Handler {
	all, routes := route("Route", "On, OnBatch, OnQueued or OnQueuedBatch", handlers)
	all.Tx, all.Batches = reflect.TypeFor[Tx](), !slices.ContainsFunc(handlers,
		func(h Handler) bool { return !h.Batches })
	queues := !slices.ContainsFunc(handlers, func(h Handler) bool { return h.Queue == nil })
	all.make = func(c Chain) Handler {
		within := allWithin(c, routes)
		h := Handler{Apply: func(ctx context.Context, tx any, events []event.Envelope) error {
			return routed(events, within, func(h Handler,
				events []event.Envelope) error {
				return h.Apply(ctx, tx, events)
			})
		}}
		if queues {
			h.Queue = func(ctx context.Context, q queued.Queue, events []event.Envelope) error {
				return routed(events, within, func(h Handler,
					events []event.Envelope) error {
					return h.Queue(ctx, q, events)
				})
			}
		}
		return h
	}
	return all.Within(nil)
}

// DeliverRoute is Route for handlers that deliver events one by one.
func DeliverRoute(handlers ...Handler) Handler {
	const by = "DeliverOn"
	all, routes := route("DeliverRoute", by, handlers)
	for i, h := range handlers {
		if h.One == nil && all.Err == nil {
			all.Err = fmt.Errorf("handler %d of DeliverRoute does not deliver: it must be made by %s", i+1, by)
		}
	}
	all.make = func(c Chain) Handler {
		within := allWithin(c, routes)
		return deliversOne(func(ctx context.Context, d Delivery, one []event.Envelope) error {
			return routed(one, within, func(h Handler, one []event.Envelope) error { return h.One(ctx, d, one) })
		})
	}
	return all.Within(nil)
}

// route returns the types of a Handler that routes events to handlers, and the handler of each type. name is the name
// of the function that makes it, and by names those that make its handlers.
func route(name, by string, handlers []Handler) (all Handler, routes map[string]Handler) {
	all.Types, routes = []string{}, make(map[string]Handler)
	refuse := func(err error) {
		if all.Err == nil {
			all.Err = err
		}
	}
	if len(handlers) == 0 {
		refuse(fmt.Errorf("%s has no handlers", name))
	}
	for i, h := range handlers {
		switch {
		case h.Err != nil:
			refuse(h.Err)
		case h.Types == nil:
			refuse(fmt.Errorf("handler %d of %s has no event type: it must be made by %s", i+1, name, by))
		}
		for _, t := range h.Types {
			if _, twice := routes[t]; twice {
				refuse(fmt.Errorf("event type %s is handled twice", excerpt.Quoted(t)))
			}
			routes[t] = h
			all.Types = append(all.Types, t)
		}
	}
	slices.Sort(all.Types)
	return all, routes
}

// allWithin returns handlers with middleware around each call of their functions.
func allWithin(c Chain, routes map[string]Handler) map[string]Handler {
	within := make(map[string]Handler, len(routes))
	for t, h := range routes {
		within[t] = h.Within(c)
	}
	return within
}

// routed calls the handlers of Route.
func routed(events []event.Envelope, routes map[string]Handler,
	call func(h Handler, events []event.Envelope) error) error {
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Type == events[0].Type {
			n++
		}
		h, handled := routes[events[0].Type]
		if !handled { // of a dead letter from an earlier version of the program
			return projection.At(events[0].Position,
				fmt.Errorf("no handler for event type %s", excerpt.Quoted(events[0].Type)))
		}
		if err := call(h, events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// Deliver makes a Handler of a function that delivers the events of one delivery.
func Deliver(f func(ctx context.Context, d Delivery) error) Handler {
	return made(func(c Chain) Handler {
		return Handler{Deliver: func(ctx context.Context, d Delivery) error {
			return c.call(ctx, d.Events(), func(ctx context.Context, _ []event.Envelope) error { return f(ctx, d) })
		}}
	})
}

// DeliverEach makes a Handler of a function that delivers one event. An event is acknowledged when the function returns
// nil. If less time remains than twice what the slowest event took, the other events come with the next delivery, so
// that none is interrupted.
func DeliverEach(f func(ctx context.Context, e event.Envelope, token string) error) Handler {
	return made(func(c Chain) Handler {
		return deliversOne(func(ctx context.Context, d Delivery, one []event.Envelope) error {
			return c.call(ctx, one, func(ctx context.Context,
				one []event.Envelope) error {
				return f(ctx, one[0], d.Token(one[0]))
			})
		})
	})
}

// DeliverType is DeliverEach for events of one type, decoded.
func DeliverType[T event.Typed](f func(ctx context.Context, e event.Of[T], token string) error,
	o ...event.DecodeOption) Handler {
	typed := func(ctx context.Context, token string, e event.Of[T]) error { return f(ctx, e, token) }
	each := decodesEach(typed, o)
	return ofType[T](DeliverEach(func(ctx context.Context, e event.Envelope, token string) error {
		return each(ctx, token, e)
	}))
}

// deliversOne makes a Handler of a function that delivers one event.
func deliversOne(one func(ctx context.Context, d Delivery, event []event.Envelope) error) Handler {
	return Handler{One: one, Deliver: func(ctx context.Context, d Delivery) error {
		var longest time.Duration
		events := d.Events()
		causing := causing(ctx, events)
		for i := range events {
			if i > 0 && events[i].Position != events[i-1].Position && d.Remaining() <= 2*longest {
				return nil
			}
			began := time.Now()
			if err := one(&causing[i], d, events[i:i+1:i+1]); err != nil {
				return err
			}
			if i+1 < len(events) && events[i+1].Position == events[i].Position {
				continue // a part of a split event
			}
			if err := d.Ack(ctx, events[i].Position); err != nil {
				return err
			}
			longest = max(longest, time.Since(began))
		}
		return nil
	}}
}

// causing returns a context for each event: what is appended with it is caused by the event. They are one allocation.
func causing(ctx context.Context, events []event.Envelope) []cause.Context {
	id, _ := ProjectionFrom(ctx)
	list := make([]cause.Context, len(events))
	for i := range events {
		list[i] = cause.Context{Context: ctx,
			Cause: cause.Cause{Tenant: id.Tenant, Position: events[i].Position, Correlation: events[i].CorrelationID}}
	}
	return list
}

type projectionKey struct{}

// WithProjection returns a context that names the projection whose handler is called.
func WithProjection(ctx context.Context, id projection.ID) context.Context {
	return context.WithValue(ctx, projectionKey{}, id)
}

// ProjectionFrom returns the projection that ctx names.
func ProjectionFrom(ctx context.Context) (projection.ID, bool) {
	id, ok := ctx.Value(projectionKey{}).(projection.ID)
	return id, ok
}
