package projection

import (
	"errors"
	"fmt"
)

// Action is what is to be done about an event that its handler cannot handle.
type Action int

const (
	// ActionPark puts the event into the dead letters and goes on behind it. It is the default.
	ActionPark Action = iota
	// ActionRetry tries the event again after the delay of the RetryPolicy, also when its retries are used up.
	ActionRetry
	// ActionSkip goes on behind the event: all that stays of it is a warning in the log and a number in the status.
	ActionSkip
	// ActionStop lets the projection wait at the event, in a state of failure, until somebody resumes it.
	ActionStop
	// ActionParkStream puts the event into the dead letters and goes on behind it. All later events of its stream follow it
	// there, in order, until they are replayed: so the read model never sees an event whose predecessor it has not seen.
	ActionParkStream
)

// String is the word that logs use.
func (a Action) String() string {
	switch a {
	case ActionPark:
		return "park"
	case ActionRetry:
		return "retry"
	case ActionSkip:
		return "skip"
	case ActionStop:
		return "stop"
	case ActionParkStream:
		return "park stream"
	}
	return fmt.Sprintf("action %d", int(a))
}

// wish is an error with what its handler asks for.
type requestedAction struct {
	action Action
	err    error
}

func (w *requestedAction) Error() string { return w.err.Error() }
func (w *requestedAction) Unwrap() error { return w.err }

// Retry wraps a handler's error so that the event is tried again, after the delays of the projection's RetryPolicy and
// for ever: for what is known to pass. The attempts are counted and shown.
//
// This and what Park, ParkStream, Skip and Stop ask for wins over everything that is set for the projection, from the moment the
// event stands alone: a batch of several events is narrowed first, as always. The outermost wish in an error counts. It
// may stand inside or outside of At, and errors.Is and errors.As see through it. Of an infrastructure fault, say a
// deadlock, it is ignored: that is tried again whatever is asked for. A nil err stays nil.
func Retry(err error) error { return ask(ActionRetry, err) }

// Park wraps a handler's error so that the event is parked at once, without retries. See Retry.
func Park(err error) error { return ask(ActionPark, err) }

// ParkStream wraps a handler's error so that the event is parked at once, and its stream with it. See Retry.
func ParkStream(err error) error { return ask(ActionParkStream, err) }

// Skip wraps a handler's error so that the event is skipped at once, without retries. See Retry.
func Skip(err error) error { return ask(ActionSkip, err) }

// Stop wraps a handler's error so that the projection stops at the event at once, without retries. See Retry.
func Stop(err error) error { return ask(ActionStop, err) }

func ask(action Action, err error) error {
	if err == nil {
		return nil
	}
	return &requestedAction{action: action, err: err}
}

// Asked returns what a handler asks for by wrapping its error in Retry, Park, ParkStream, Skip or Stop, if it does.
func RequestedAction(err error) (action Action, asks bool) {
	var w *requestedAction
	if errors.As(err, &w) {
		return w.action, true
	}
	return ActionPark, false
}
