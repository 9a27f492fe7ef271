package projection

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/usererror"
)

// EventError is the error of a batch handler that names the failed event. At makes it.
type EventError struct {
	Position int64
	// Stack is the stack of a panic. It is empty if there was none.
	Stack string
	Err   error
}

var _ = usererror.RecognizeType[*EventError]()

// At wraps err so that it names the event at position as the failed one. Without it, the batch is halved until the
// failed event is found. A nil err stays nil.
func At(position int64, err error) error {
	if err == nil {
		return nil
	}
	return &EventError{Position: position, Err: err}
}

func (e *EventError) Error() string {
	return fmt.Sprintf("event at position %d: %s", e.Position, usererror.Text(e.Err))
}

// Unwrap returns the wrapped error.
func (e *EventError) Unwrap() error { return e.Err }

// FailedPosition returns the position that err names by At, or 0.
func FailedPosition(err error) int64 {
	var at *EventError
	if errors.As(err, &at) {
		return at.Position
	}
	return 0
}

// HandlerError is the failure of an event, as shown in Status and logs.
type HandlerError struct {
	Projection ID
	Position   int64
	Attempt    int
	Stack      string
	Err        error
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("projection %s: event at position %d, attempt %d: %s", e.Projection, e.Position, e.Attempt,
		usererror.Text(e.Err))
}

// Unwrap returns the handler's error.
func (e *HandlerError) Unwrap() error { return e.Err }

// Failure is an event that its handler could not handle, for Projection.FailureHandler.
type Failure struct {
	Projection ID
	// Event is the failed event.
	Event event.Envelope
	// Attempt counts the failures of this event, this one included, across restarts and changes of the owner.
	Attempt int
	// Err is the error or panic of the handler, or ErrProcessDied.
	Err error
	// Stack is the stack of a panic. It is empty if there was none.
	Stack string
	// FirstFailedAt is when the event first failed, by the clock of the server, or of the machine that has the file.
	FirstFailedAt time.Time
}
