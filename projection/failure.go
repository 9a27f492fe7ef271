package projection

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
)

// EventError tells which event of a batch could not be handled.
type EventError struct {
	Position int64
	Stack    string
	Err      error
}

// At wraps err so that it names the event at position as the one that failed. A batch handler that returns it spares
// the narrowing by halving that would be needed to find the event.
func At(position int64, err error) error {
	if err == nil {
		return nil
	}
	return &EventError{Position: position, Err: err}
}

func (e *EventError) Error() string {
	return fmt.Sprintf("event at position %d: %v", e.Position, e.Err)
}

// Unwrap returns what happened.
func (e *EventError) Unwrap() error { return e.Err }

// FailedPosition returns the position that err names by At, or 0.
func FailedPosition(err error) int64 {
	var at *EventError
	if errors.As(err, &at) {
		return at.Position
	}
	return 0
}

// HandlerError is what a handler's failure is reported as.
type HandlerError struct {
	Projection ID
	Position   int64
	Attempt    int
	Stack      string
	Err        error
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("projection %s: event at position %d, attempt %d: %v", e.Projection, e.Position, e.Attempt, e.Err)
}

// Unwrap returns what happened.
func (e *HandlerError) Unwrap() error { return e.Err }

// Failure is what a policy decides about: one event that its handler could not handle.
type Failure struct {
	Projection ID
	// Event is the event that failed.
	Event event.Envelope
	// Attempt counts the failures of this event, this one included, across restarts and moves of the lease.
	Attempt int
	// Err is what happened: what the handler returned or panicked with, or ErrProcessDied.
	Err error
	// Stack is where a panic happened, else empty.
	Stack string
	// FirstFailedAt is when the event failed first, by the server's clock.
	FirstFailedAt time.Time
}
