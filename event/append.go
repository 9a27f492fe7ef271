package event

import "context"

// Appending is one call of a store's Append or AppendTx.
type Appending struct {
	Tenant   string
	Stream   string
	Expected Expected
	// Events may be the caller's own slice, which must not be changed.
	Events []Event
}

// AppendFunc carries out an append. It returns the result of Append, or its error.
type AppendFunc func(ctx context.Context, a Appending) (Appended, error)

// AppendMiddleware returns an AppendFunc that wraps the next one: it measures, checks the events, or adds headers to
// them from the context. It is called once, when the store is opened. The AppendFunc that it returns is called for each
// Append and AppendTx, from several goroutines at once.
//
//	func traced(next event.AppendFunc) event.AppendFunc {
//		return func(ctx context.Context, a event.Appending) (event.Appended, error) {
//			return next(ctx, a.WithHeaders(map[string]string{"request": requestID(ctx)}))
//		}
//	}
//
// The AppendFunc calls next with the context that it received, or with a context that it derived from that one. It may
// change Events and Expected, but not Tenant or Stream. If it does not call next, nothing is appended, and Append
// returns the result of the AppendFunc.
//
// The events have the ids of their cause already (see CausedBy), and are stored with what the AppendFunc makes of them.
// An event that it adds has only the ids that the AppendFunc sets.
type AppendMiddleware func(next AppendFunc) AppendFunc

// WithHeaders returns a copy whose events also have these headers. Existing headers of an event are kept.
func (a Appending) WithHeaders(headers map[string]string) Appending {
	if len(headers) == 0 {
		return a
	}
	events := make([]Event, len(a.Events))
	for i, e := range a.Events {
		all := make(map[string]string, len(e.Headers)+len(headers))
		for name, value := range headers {
			all[name] = value
		}
		for name, value := range e.Headers {
			all[name] = value
		}
		e.Headers = all
		events[i] = e
	}
	a.Events = events
	return a
}
