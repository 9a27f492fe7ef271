package millrace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
)

// Store is where events, checkpoints and leases are kept. *pgstore.Store and *sqlitestore.Store are Stores.
type Store = admin.Store

// Handler is what a projection does with its events. Packages of stores make handlers that get a transaction of the
// store: pgstore.Each, pgstore.Batch, pgstore.On and pgstore.OnBatch, pgstore.Queued and the like, and pgstore.Route.
// Deliver, DeliverEach and DeliverOn make handlers that work outside of a transaction, and DeliverRoute combines those
// of DeliverOn.
type Handler interface {
	// Engine is for package millrace.
	Engine() handler.Handler
}

// ProjectionFrom returns the projection of the function that was called with ctx: a handler, middleware around one, a
// hook, or Projection.FailureHandler. It reports false for any other context.
func ProjectionFrom(ctx context.Context) (ProjectionID, bool) { return handler.ProjectionFrom(ctx) }

// TenantFrom returns the tenant of the projection whose function was called with ctx, never empty. It reports false
// where ProjectionFrom does.
//
// An event.AppendMiddleware finds the tenant of its append in event.Appending. In a handler, TenantFrom returns the
// tenant of the handler there too, which may append to another one.
func TenantFrom(ctx context.Context) (tenant string, ok bool) {
	id, ok := handler.ProjectionFrom(ctx)
	return id.Tenant, ok
}

type opaque handler.Handler

func (h opaque) Engine() handler.Handler { return handler.Handler(h) }

// handle returns the projection's handler within its middleware, with the event types that it handles. It returns an
// error if the store cannot run the handler.
func (p Projection) handle(database engine.Database, outer []Middleware) (handler.Handler, error) {
	if p.Handler == nil {
		return handler.Handler{}, errors.New("Projection.Handler must be set")
	}
	h := p.Handler.Engine()
	switch {
	case h.Err != nil:
		return h, fmt.Errorf("Projection.Handler: %w", h.Err)
	case h.Apply == nil && h.Deliver == nil:
		return h, errors.New("Projection.Handler must be made by a constructor such as Deliver or pgstore.Each")
	case h.Apply != nil && h.Tx != database.TxType():
		return h, fmt.Errorf("its handler takes %v, but %s gives %v", h.Tx, database.Name(), database.TxType())
	case h.Types != nil && len(p.Types) > 0:
		return h, fmt.Errorf("Projection.Types must be empty: the handler handles the types %q", h.Types)
	case h.Deliver != nil && p.AsyncCommit:
		return h, errors.New("Projection.AsyncCommit must be false: a delivery has no transaction")
	case h.Deliver != nil && p.Version > 1:
		return h, fmt.Errorf("Projection.Version must be 0 or 1: version %d would deliver every event again", p.Version)
	case h.Types == nil:
		h.Types = p.Types
	}
	return around(h, slices.Concat(outer, p.Middleware))
}

// Deliver makes a Handler of a function whose effects are outside of the database: mails, webhooks, messages to a
// broker. The function works outside of a transaction, under Projection.Timeout. It gets the events of one delivery and
// acknowledges them by Delivery.Ack or Delivery.Reject as it goes.
//
// Every event is delivered at least once, and in order: an event comes only after those before it were acknowledged or
// rejected, or parked or skipped by the projection's policy. An acknowledged event is not delivered again.
//
// An event that was not acknowledged is delivered again, with the same token. So an effect is repeated only if its
// acknowledgement is missing. That happens if the process, its session connection or its lease was lost between effect
// and acknowledgement, or if Ack returned an error. It also happens if the function failed after the effect, was
// stopped by its timeout or by Config.GracePeriod, or left the event unacknowledged.
//
// Two owners never deliver at once as long as functions return when ctx ends. ctx ends at Projection.Timeout. It ends
// as soon as the session connection is lost, since other nodes may then mark this node dead after 0.3 of
// Config.FailureDetection. And it ends at 0.9 of Config.LeaseDuration after the last heartbeat that arrived, a tenth
// before other nodes may claim the lease. A delivery can overlap with a later one in four cases: the function
// ignores ctx; the process was frozen; the server saw the session end and this node did not, for at most 0.9 of
// Config.LeaseDuration; or Repartition was called for a projection that was not paused, until the node is notified. An
// Ack of the earlier delivery then has no effect, and a receiver that remembers tokens sees one event.
//
// A function that has not returned 2 s after the end of ctx is abandoned. Its event may be delivered again while it
// still runs.
//
// The function returns nil when it is done. Events that it left are delivered again at once. Returning nil without any
// event done is a failure, unless Remaining is 0. An error, a panic or the end of the goroutine is a failure of the
// first event that is neither acknowledged nor rejected, even if the error names another event by projection.At. The
// projection's policy decides about the failure, and the requests of projection.Retry, Park, ParkStream, Skip and Stop
// are honored: projection.Retry(err) delivers the rest after a delay. A timeout counts as a failure only if the event
// had the whole time. If other events were done before, the rest is delivered again, unless the function requests an
// action with an error other than that of its context.
func Deliver(f func(ctx context.Context, d *Delivery) error) Handler {
	if f == nil {
		return opaque{Err: errors.New("the function of Deliver is nil")}
	}
	return opaque(handler.Deliver(func(ctx context.Context, d handler.Delivery) error {
		return f(ctx, &Delivery{d})
	}))
}

// DeliverEach is Deliver for one event at a time. Each event is acknowledged when the function returns nil, before the
// next is delivered. Projection.Timeout bounds all events of one delivery. If less time remains than twice what the
// slowest event took, the other events come with the next delivery, so that none is interrupted.
func DeliverEach(f func(ctx context.Context, e Delivered) error) Handler {
	if f == nil {
		return opaque{Err: errors.New("the function of DeliverEach is nil")}
	}
	return opaque(handler.DeliverEach(func(ctx context.Context, e event.Envelope, token string) error {
		return f(ctx, Delivered{Envelope: e, Token: token})
	}))
}

// Delivered is one event of DeliverEach.
type Delivered struct {
	event.Envelope
	// Token identifies the event to the receiver. See Delivery.Token.
	Token string
}

// DeliverOn is DeliverEach for the events of type T.EventType, with their bodies decoded. An event whose body does not
// decode is not retried. With event.Strict, that is also one whose members are not those of T.
func DeliverOn[T event.Typed](f func(ctx context.Context, e DeliveredOf[T]) error,
	options ...event.DecodeOption) Handler {
	if f == nil {
		return opaque{Err: errors.New("the function of DeliverOn is nil")}
	}
	return opaque(handler.DeliverType(func(ctx context.Context, e event.Of[T], token string) error {
		return f(ctx, DeliveredOf[T]{Of: e, Token: token})
	}, options...))
}

// DeliveredOf is one event of DeliverOn, with its decoded body.
type DeliveredOf[T event.Typed] struct {
	event.Of[T]
	// Token identifies the event to the receiver. See Delivery.Token.
	Token string
}

// DeliverRoute combines Handlers of DeliverOn for different event types. Events are delivered one by one, in order.
func DeliverRoute(on ...Handler) Handler {
	handlers := make([]handler.Handler, len(on))
	for i, h := range on {
		if h == nil {
			return opaque{Err: fmt.Errorf("handler %d of DeliverRoute is nil", i+1)}
		}
		handlers[i] = h.Engine()
	}
	return opaque(handler.DeliverRoute(handlers...))
}
