package event

import (
	"context"

	"github.com/millrace-go/millrace/internal/cause"
)

// CausedBy returns a context for what is appended because of an event of a tenant. An event that is appended with it,
// or with a context derived from it, gets
//
//   - the tenant and the position of e as its CausationID, such as "acme/1042",
//   - and the CorrelationID of e. If e has none, it is the tenant and the position of e: it is the first one of its
//     conversation.
//
// Ids that the appended event has already are kept. Redacted events get none.
//
// The context of a handler of single events is such a context: that of Each, On, QueuedEach, OnQueued, DeliverEach and
// DeliverOn, and of Projection.FailureHandler. Other functions call CausedBy: handlers of batches and of deliveries,
// and programs that read events themselves. A handler of a batch does not know which of its events leads to an append,
// even if the batch has only one.
//
// The innermost CausedBy applies. All appends of a store and package aggregate use it. The key of aggregate.Key stays
// the CausationID.
func CausedBy(ctx context.Context, tenant string, e Envelope) context.Context {
	return cause.With(ctx, cause.Cause{Tenant: tenant, Position: e.Position, Correlation: e.CorrelationID})
}

// WithCorrelation returns a context for what is appended in one conversation, such as a request with an id. An event
// that is appended with it gets the id as its CorrelationID, unless it has one. Handlers pass it on to the events that
// follow: see CausedBy. In a handler, the id replaces that of the handled event, which stays the cause. An empty id
// changes nothing.
func WithCorrelation(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	c := cause.From(ctx)
	c.Correlation = id
	return cause.With(ctx, c)
}
