package handler

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/usercode"
)

// Call calls a function of a handler with its events: one event, or all events of the call of a batch handler.
type Call func(ctx context.Context, events []event.Envelope) error

// Chain is the middleware of a projection. It is nil if there is none, and then costs nothing.
type Chain Call

// NewChain returns the Chain of n middlewares, the first outermost. around makes the call of one of them around the
// next call.
func NewChain(n int, around func(i int, next Call) Call) (Chain, error) {
	if n == 0 {
		return nil, nil
	}
	next := Call(endOfChain)
	for i := n - 1; i >= 0; i-- {
		err := usercode.Protect(func() error {
			next = around(i, next)
			return nil
		})
		if err == nil && next == nil {
			err = errors.New("it returned a nil function")
		}
		if err != nil {
			return nil, fmt.Errorf("middleware %d of %d: %w", i+1, n, err)
		}
	}
	return Chain(next), nil
}

// Errors of middleware. They are failures of the events, so that the fault cannot go unnoticed.
var (
	errNotCalled  = errors.New("middleware returned nil without calling next: return projection.Skip(err) to skip an event")
	errTwice      = errors.New("middleware called next more than once")
	errEvents     = errors.New("middleware called next with other events than its own")
	errContext    = errors.New("middleware called next with a context that is not derived from its own")
	errUnfinished = errors.New("middleware returned before next had returned")
)

// call calls fn through the chain.
func (c Chain) call(ctx context.Context, events []event.Envelope, fn Call) error {
	if c == nil {
		return fn(ctx, events)
	}
	p := &passage{events: events, fn: fn}
	err := c(context.WithValue(ctx, passageKey{}, p), events)
	return p.result(usercode.Take(err))
}

type passageKey struct{}

// passage is one call through a chain. The context of the call carries it to the end of the chain, so that one chain
// serves all calls.
type passage struct {
	events []event.Envelope
	fn     Call

	mu sync.Mutex
	// returned is closed when fn has returned. It is nil before fn is called.
	returned chan struct{}
	// misuse is the first misuse of next.
	misuse error
}

// endOfChain calls the function of the passage that ctx belongs to.
func endOfChain(ctx context.Context, events []event.Envelope) error {
	p, ok := ctx.Value(passageKey{}).(*passage)
	if !ok {
		return errContext
	}
	if err := p.enter(events); err != nil {
		return err
	}
	defer close(p.returned)
	return usercode.Catch(func() error { return p.fn(ctx, p.events) })
}

// enter returns an error unless this is the only call of next, and with the events of the passage.
func (p *passage) enter(events []event.Envelope) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	switch {
	case p.returned != nil:
		err = errTwice
	case len(events) != len(p.events) || len(events) > 0 && &events[0] != &p.events[0]:
		err = errEvents
	default:
		p.returned = make(chan struct{})
		return nil
	}
	if p.misuse == nil {
		p.misuse = err
	}
	return err
}

// result returns the result of the passage whose middleware returned err. It waits for a call of next that has not
// returned, because that uses the transaction.
func (p *passage) result(err error) error {
	p.mu.Lock()
	returned, misuse := p.returned, p.misuse
	p.mu.Unlock()
	if returned != nil {
		select {
		case <-returned:
		default:
			<-returned
			if misuse == nil {
				misuse = errUnfinished
			}
		}
	}
	switch {
	case misuse != nil && err != nil && !errors.Is(err, misuse):
		return fmt.Errorf("%w: %v", misuse, err) // a request in err is not honored
	case misuse != nil:
		return misuse
	case returned == nil && err == nil:
		return errNotCalled
	}
	return err
}
