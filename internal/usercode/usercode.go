// Package usercode calls functions of users: handlers, and functions that decide about failures. A function may panic,
// end its goroutine, or not return when its context ends. None of that harms its caller. The error that it returns is
// taken apart at once, so that no method of it is called later: see package usererror.
package usercode

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/millrace-go/millrace/internal/growstack"
	"github.com/millrace-go/millrace/projection"
)

// Grace is how long a call may take to return after its context was cancelled.
const Grace = 2 * time.Second

// ErrGoexit is the error of a function that ended its goroutine instead of returning.
var ErrGoexit = errors.New("the handler ended its goroutine")

// Call is a call in a goroutine of its own.
type Call struct {
	done chan struct{}
	err  error
}

// Go calls fn in a goroutine of its own.
func Go(fn func() error) *Call {
	c := &Call{done: make(chan struct{}), err: ErrGoexit}
	go func() {
		growstack.Grow()
		defer close(c.done)
		c.err = Protect(fn)
	}()
	return c
}

// Done is closed when the function has returned.
func (c *Call) Done() <-chan struct{} { return c.done }

// End waits until a function whose context was cancelled has returned, and returns its error. A function that does not
// return within Grace is abandoned: End returns projection.ErrAbandoned, and abandoned is true.
func (c *Call) End() (err error, abandoned bool) {
	timer := time.NewTimer(Grace)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err, false
	case <-timer.C:
		return projection.ErrAbandoned, true
	}
}

// Run calls fn in a goroutine of its own, waits for it, and returns its error. So a function that ends its goroutine
// does not end that of the caller.
func Run(fn func() error) error {
	c := Go(fn)
	<-c.done
	return c.err
}

// Result is how a call ended.
type Result struct {
	// Err is the error of the function, or projection.ErrAbandoned.
	Err error
	// Cause is why the function's context was cancelled. It is nil if the function returned before that.
	Cause error
	// Abandoned reports that the function did not return.
	Abandoned bool
}

// Within calls fn in a goroutine of its own with a context. It cancels the context after limit, with the cause that
// late returns, or when ctx ends. A function that does not return within Grace after that is abandoned.
func Within(ctx context.Context, limit time.Duration, late func() error, fn func(ctx context.Context) error) Result {
	ownCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	call := Go(func() error { return fn(ownCtx) })
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	var cause error
	select {
	case <-call.done:
		if call.err == nil || ctx.Err() == nil {
			return Result{Err: call.err}
		}
		cause = context.Cause(ctx) // it ended first
	case <-deadline.C:
		cause = late()
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	cancel(cause)
	err, abandoned := call.End()
	return Result{Err: err, Cause: cause, Abandoned: abandoned}
}

// Ask calls fn with a context that ends after limit, and returns its answer. If the context ends first Ask returns an
// error, after the function has returned. A function that does not return within Grace is abandoned.
func Ask[T any](ctx context.Context, limit time.Duration, fn func(ctx context.Context) T) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var answer, none T
	call := Go(func() error {
		answer = fn(ctx)
		return nil
	})
	select {
	case <-call.done:
		return answer, call.err
	case <-ctx.Done():
		_, _ = call.End()
		return none, fmt.Errorf("no answer within %v: %w", limit, context.Cause(ctx))
	}
}

// Protect calls fn and returns its error, or that of its panic, taken apart.
func Protect(fn func() error) error { return Take(Catch(fn)) }

// Catch calls fn and returns an error if it panics. It is for a function of the user that is called by another one: it
// returns the error of fn as it is.
func Catch(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{value: r, stack: string(debug.Stack())}
		}
	}()
	return fn()
}

// StackOf returns the stack of the panic in err. It is empty if there is none.
func StackOf(err error) string {
	var p *panicError
	if errors.As(err, &p) {
		return p.stack
	}
	return ""
}

// panicError is a panic of a function of the user's.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%v: %v", projection.ErrHandlerPanic, e.value)
}

func (e *panicError) Is(target error) bool { return target == projection.ErrHandlerPanic }

// Unwrap returns the panic's value if that is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
