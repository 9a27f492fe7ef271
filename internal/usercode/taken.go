package usercode

import (
	"context"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/usererror"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// What the library asks the errors of functions for, besides the types of packages projection and of the stores.
var (
	_ = usererror.RecognizeType[*panicError]()
	_ = usererror.RecognizeType[*event.DecodeError]()
	_ = usererror.RecognizeType[*backoff.PermanentError]()
	_ = usererror.RecognizeErrors(context.Canceled, context.DeadlineExceeded, ErrGoexit, projection.ErrHandlerPanic,
		tenancy.ErrArchived, tenancy.ErrDropping, tenancy.ErrCopying, event.ErrIncarnationChanged,
		projection.ErrLeaseLost, projection.ErrWithinTx, projection.ErrQueuedRead, projection.ErrMissingObject,
		projection.ErrProcessDied)
)

// Take takes an error of a user apart. The result has a *usererror.Failure, whose methods are no code of the user. A
// projection.EventError stays the outermost error, because the library takes its position off.
func Take(err error) error {
	if at, ok := err.(*projection.EventError); ok && at != nil && at.Err != nil {
		return &projection.EventError{Position: at.Position, Stack: at.Stack, Err: usererror.Take(at.Err)}
	}
	return usererror.Take(err)
}

// Open returns err with the user's own error in place of what Take made of it, for functions of the user.
func Open(err error) error {
	switch e := err.(type) {
	case *projection.EventError:
		own := *e
		own.Err = usererror.Open(e.Err)
		return &own
	case *projection.HandlerError:
		own := *e
		own.Err = usererror.Open(e.Err)
		return &own
	}
	return usererror.Open(err)
}

// ForCaller is Open for the callers of the library, who get nothing of an error whose methods panic or end the
// goroutine.
func ForCaller(err error) error {
	if usererror.Bad(err) {
		return err
	}
	return Open(err)
}
