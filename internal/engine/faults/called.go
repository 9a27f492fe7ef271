package faults

import (
	"context"
	"errors"

	"github.com/millrace-go/millrace/internal/usercode"
)

// Called is what a store knows about a handler that it has called.
type Called interface {
	// Returned returns the fault of a handler that returned err before its limit, or nil after it if it Works.
	Returned(err error) error
	// Works reports whether what the handler did can be committed, although it returned after its limit.
	Works() bool
	// Excuse changes the fault of a handler that was late if the store is the cause.
	Excuse(fault *Fault)
}

// OfCall returns the fault of a handler whose call ended with r, nil if there is none. ctx is the context of its
// batch.
func OfCall(ctx context.Context, r usercode.Result, called Called) error {
	switch {
	case r.Cause == nil:
		return called.Returned(r.Err)
	case ctx.Err() != nil:
		return Cancelled(r.Cause)
	case r.Err == nil && called.Works():
		return called.Returned(nil)
	}
	fault := Late(r.Cause, r.Err)
	called.Excuse(fault)
	return fault
}

// SetClass sets the class. An unclear fault asks for a probe.
func (f *Fault) SetClass(class Class) { f.Class, f.Probe = class, class == Unclear }

// DecidedBy makes f the fault of a statement of the handler's transaction, whatever error the handler returned.
func (f *Fault) DecidedBy(class Class, cause error) {
	f.SetClass(class)
	f.Returned = false
	if !errors.Is(f.Err, cause) {
		f.Err = errors.Join(f.Err, cause)
	}
}

// Passes reports whether the fault ends by itself, so that those who wait for something can go on waiting.
func (f *Fault) Passes() bool { return f != nil && f.Class == Infrastructure }
