package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Classify(err error) *engine.Fault { return classify(err) }

// classify says where the cause of an error lies.
func classify(err error) *engine.Fault {
	if err == nil {
		return nil
	}
	var fault *engine.Fault
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.Is(err, projection.ErrLeaseLost):
		return &engine.Fault{Class: engine.LeaseLost, Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &engine.Fault{Class: engine.Infrastructure, Err: err}
	}
	return &engine.Fault{Class: engine.HandlerFault, Position: projection.FailedPosition(err), Err: err}
}

// storeFault classifies the error of a statement of the store.
func storeFault(err error) *engine.Fault {
	fault := classify(err)
	if fault == nil || !fault.Class.MayCount() {
		return fault
	}
	own := *fault
	own.Class = engine.Infrastructure
	return &own
}

// failed wraps the error of a statement of the store, and returns nil for nil.
func failed(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), storeFault(err))
}
