package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/cause"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/within"
)

// Middleware is the middleware around the appends of a store. It is nil if there is none.
type Middleware struct{ outermost event.AppendFunc }

// call is the append that middleware is called around. It travels in the context, since middleware is built only once.
type call struct {
	given event.Appending
	do    event.AppendFunc
}

type callKey struct{}

// NewMiddleware chains middleware, the first outermost.
func NewMiddleware(all []event.AppendMiddleware) (*Middleware, error) {
	if len(all) == 0 {
		return nil, nil
	}
	next := event.AppendFunc(innermost)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] == nil {
			return nil, fmt.Errorf("Options.AppendMiddleware must not contain nil: middleware %d", i+1)
		}
		next = all[i](next)
		if next == nil {
			return nil, fmt.Errorf("Options.AppendMiddleware: middleware %d returned nil", i+1)
		}
	}
	return &Middleware{next}, nil
}

// Around calls do within the middleware, with the ids of the cause that ctx has.
func (m *Middleware) Around(ctx context.Context, a event.Appending, do event.AppendFunc) (event.Appended, error) {
	a.Events = Caused(cause.From(ctx), a.Events)
	if m == nil {
		return do(ctx, a)
	}
	return m.outermost(context.WithValue(ctx, callKey{}, &call{given: a, do: do}), a)
}

// AroundTx is Around for an append to a store in a transaction of the caller. The context of the middleware is marked
// as that of the transaction.
func (m *Middleware) AroundTx(ctx context.Context, store any, a event.Appending,
	do event.AppendFunc) (event.Appended, error) {
	if m != nil {
		marked, end := within.Mark(ctx, store)
		defer end()
		ctx = marked
	}
	return m.Around(ctx, a, do)
}

func innermost(ctx context.Context, a event.Appending) (event.Appended, error) {
	c, ok := ctx.Value(callKey{}).(*call)
	switch {
	case !ok:
		return event.Appended{},
			errors.New("append: middleware must pass on its own context, or one that is derived from it")
	case a.Tenant != c.given.Tenant || a.Stream != c.given.Stream:
		return event.Appended{},
			fmt.Errorf("append: middleware must not change the tenant or the stream: %s of %s became %s of %s",
				excerpt.Quoted(c.given.Stream), excerpt.Quoted(c.given.Tenant), excerpt.Quoted(a.Stream),
				excerpt.Quoted(a.Tenant))
	}
	return c.do(ctx, a)
}
