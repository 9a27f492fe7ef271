package projection

import (
	"errors"
	"fmt"
)

// Class is the first question asked of every error: whose fault is it?
type Class int

const (
	// Infrastructure faults are retried for ever and never counted against an event.
	Infrastructure Class = iota
	// LeaseLost ends the actor; another owner goes on.
	LeaseLost
	// HandlerFault is counted for the event, and a policy decides what becomes of that.
	HandlerFault
	// Configuration faults stop the projection until somebody mends them.
	Configuration
)

// String is the word that logs and status use.
func (c Class) String() string {
	switch c {
	case Infrastructure:
		return "infrastructure"
	case LeaseLost:
		return "lease lost"
	case HandlerFault:
		return "handler"
	case Configuration:
		return "configuration"
	}
	return fmt.Sprintf("class %d", int(c))
}

// Fault is a classified error of a projection's batch.
type Fault struct {
	Class Class
	// Position is the event that failed where the handler could say so, else 0.
	Position int64
	// Stack is where a panic happened, else empty.
	Stack string
	// Unreachable tells that the server as a whole cannot be worked with, not merely this one batch.
	Unreachable bool
	// Err is what happened.
	Err error
}

func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns what happened.
func (f *Fault) Unwrap() error { return f.Err }

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

// ErrProcessDied is what an attempt is counted with before the handler runs, where handlers seem to end their processes.
// It stays where nobody was left to say anything else.
var ErrProcessDied = errors.New("the process ended while the handler ran")

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
