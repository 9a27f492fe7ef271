// Package cause carries in a context what leads to the events that are appended with it.
package cause

import (
	"cmp"
	"context"
	"strconv"
)

// Cause is what leads to events: an event that is handled, a request with a correlation id, or both. The zero value is
// no cause.
type Cause struct {
	// Tenant and Position identify the event. Position is 0 if there is none.
	Tenant   string
	Position int64
	// Correlation is the correlation id of the event or of the request, empty if it has none.
	Correlation string
}

// CausationID returns the tenant and the position of the event, with a slash between them. It is empty without an
// event.
func (c Cause) CausationID() string {
	if c.Position <= 0 {
		return ""
	}
	return c.Tenant + "/" + strconv.FormatInt(c.Position, 10)
}

// CorrelationID returns the correlation id of what the cause leads to. An event without a correlation id begins one,
// with its own place.
func (c Cause) CorrelationID() string { return cmp.Or(c.Correlation, c.CausationID()) }

type key struct{}

// Context is a context with a cause. A handler of single events has one for each event of a batch, all of them in one
// slice.
type Context struct {
	context.Context
	Cause Cause
}

// Value implements context.Context.
func (c *Context) Value(of any) any {
	if _, own := of.(key); own {
		return &c.Cause
	}
	return c.Context.Value(of)
}

// With returns a context with a cause, in place of that of ctx.
func With(ctx context.Context, c Cause) context.Context { return &Context{ctx, c} }

// From returns the cause of a context.
func From(ctx context.Context) Cause {
	if c, ok := ctx.Value(key{}).(*Cause); ok {
		return *c
	}
	return Cause{}
}
