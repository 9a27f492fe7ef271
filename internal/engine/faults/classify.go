package faults

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Classify returns the fault behind err, or nil for nil. byStore sets the class of errors of the store and its driver,
// and may add to the fault's error. It returns false for other errors.
func Classify(err error, byStore func(fault *Fault) bool) *Fault {
	if err == nil {
		return nil
	}
	var fault *Fault
	if errors.As(err, &fault) {
		return fault
	}
	fault = &Fault{Class: Handler, Position: projection.FailedPosition(err), Err: err}
	var at *projection.EventError
	if errors.As(err, &at) {
		fault.Stack = at.Stack
	}
	switch {
	case errors.Is(err, event.ErrIncarnationChanged), errors.Is(err, projection.ErrLockWait):
		fault.Class = Infrastructure
	case errors.Is(err, projection.ErrLeaseLost):
		fault.Class = LeaseLost
	case errors.Is(err, event.ErrNotPrimary):
		fault.Class = Unclear // another connection may lead to the primary
	case errors.Is(err, tenancy.ErrRestored), errors.Is(err, tenancy.ErrUnknown), errors.Is(err, tenancy.ErrDropped),
		errors.Is(err, projection.ErrUnknownProjection), errors.Is(err, projection.ErrRetired),
		errors.Is(err, projection.ErrExists),
		errors.Is(err, projection.ErrInUse), errors.Is(err, projection.ErrSeveralVersions),
		errors.Is(err, projection.ErrWithinTx),
		errors.Is(err, projection.ErrQueuedRead):
		fault.Class = Configuration
	case errors.Is(err, projection.ErrTimeout):
		// The handler is at fault, even if the connection failed afterwards.
	case byStore(fault):
	case errors.Is(err, tenancy.ErrArchived), errors.Is(err, tenancy.ErrDropping), errors.Is(err, tenancy.ErrCopying):
		fault.Class = Configuration
	case errors.Is(err, context.Canceled):
		fault.Class = Infrastructure
	}
	fault.SetClass(fault.Class)
	return fault
}

// OfHandler returns the class of an error of a handler's statement. Classes that concern the store become Handler.
func (c Class) OfHandler() Class {
	if c == LeaseLost || c == Configuration {
		return Handler
	}
	return c
}

// OfStore returns the fault of a statement of the store. Classes that would count against a handler become
// Configuration for missing objects, with the error Missing unless that is nil, and Infrastructure otherwise.
func (f *Fault) OfStore() *Fault {
	if f == nil || !f.Class.MayCount() {
		return f
	}
	own := *f
	own.Class = Infrastructure
	if f.Class == MissingObject {
		own.Class = Configuration
		if f.Missing != nil {
			own.Err = errors.Join(f.Missing, f.Err)
		}
	}
	return &own
}

// Returned is the fault of a handler that returned err, whose class is class as far as the store knows. A handler
// that writes outside of its transaction, or reads while it queues, does so with every event. So no event is to blame,
// unless the handler requests an action.
func Returned(class Class, err error) *Fault {
	_, asks := projection.RequestedAction(err)
	if refused := errors.Is(err, projection.ErrWithinTx) || errors.Is(err, projection.ErrQueuedRead); refused && !asks {
		class = Configuration
	}
	return &Fault{
		Class: class, Probe: class == Unclear, Position: projection.FailedPosition(err), Stack: usercode.StackOf(err),
		Err: err, Returned: true,
	}
}

// Ignored is the fault of a handler that returned no error although a statement of its transaction failed with
// cause, so that the transaction cannot commit.
func Ignored(class Class, cause error) *Fault {
	return &Fault{Class: class, Probe: class == Unclear,
		Err: fmt.Errorf("the handler returned no error, but a statement of its transaction failed: %w", cause)}
}

// Late is the fault of a handler whose context was cancelled by a timeout, and which returned err after that.
func Late(timeout, err error) *Fault {
	return &Fault{
		Class: Handler, Position: projection.FailedPosition(err), Stack: usercode.StackOf(err),
		Err: errors.Join(timeout, err),
	}
}

// Cancelled is the fault of a batch whose context ended while the handler ran.
func Cancelled(cause error) *Fault {
	return &Fault{Class: Infrastructure, Err: fmt.Errorf("batch was cancelled: %w", cause)}
}
