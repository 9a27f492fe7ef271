package engine

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/millrace-go/millrace/projection"
)

// Protect calls fn and returns an error if it panics.
func Protect(fn func() error) (err error) {
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

// panicError is a panic of a handler.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%v: %v", projection.ErrHandlerPanic, e.value)
}

func (e *panicError) Is(target error) bool { return target == projection.ErrHandlerPanic }

func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
