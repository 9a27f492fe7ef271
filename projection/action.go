package projection

import (
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/usererror"
)

// Action is what happens to an event that its handler cannot handle.
type Action int

const (
	// ActionParkStream puts the event into the dead letters, and the projection continues after it. All later events of
	// its stream are parked too, in order, until they are replayed. So the read model never has an event of a stream
	// without those before it. It is the default.
	ActionParkStream Action = iota
	// ActionRetry tries the event again after the delay of the RetryPolicy, without a limit.
	ActionRetry
	// ActionSkip continues after the event. It is logged and counted, and otherwise forgotten.
	ActionSkip
	// ActionStop stops the projection at the event. The projection is failed until it is resumed.
	ActionStop
	// ActionPark puts the event alone into the dead letters, and the projection continues after it, with the later
	// events of its stream too. After that a replay of the event is refused, unless it is asked for: see
	// DeadLetterFilter.OutOfOrder. For a handler that does not mind the order of a stream's events, set
	// Projection.AnyOrder instead.
	ActionPark
)

// String is the action's name in logs.
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

// requestedAction is an error with the action that its handler requests.
type requestedAction struct {
	action Action
	err    error
}

var _ = usererror.RecognizeType[*requestedAction]()

func (r *requestedAction) Error() string { return usererror.Text(r.err) }
func (r *requestedAction) Unwrap() error { return r.err }

// Retry wraps a handler's error so that the event is tried again, after the delays of the projection's RetryPolicy and
// without a limit. It is for errors that are known to be temporary. The attempts are counted and shown.
//
// A request by Retry, Park, ParkStream, Skip or Stop overrides everything that is set for the projection. It applies
// when the event is alone: a batch of several events is narrowed first. The outermost request in an error counts. It
// may be inside or outside of At, and errors.Is and errors.As find the wrapped error. It is ignored for an
// infrastructure fault, such as a deadlock, which is always tried again. A nil err stays nil.
func Retry(err error) error { return request(ActionRetry, err) }

// Park wraps a handler's error so that the event is parked at once, without retries. See Retry.
func Park(err error) error { return request(ActionPark, err) }

// ParkStream wraps a handler's error so that the event and its stream are parked at once, without retries. See Retry.
func ParkStream(err error) error { return request(ActionParkStream, err) }

// Skip wraps a handler's error so that the event is skipped at once, without retries. See Retry.
func Skip(err error) error { return request(ActionSkip, err) }

// Stop wraps a handler's error so that the projection stops at the event at once, without retries. See Retry.
func Stop(err error) error { return request(ActionStop, err) }

func request(action Action, err error) error {
	if err == nil {
		return nil
	}
	return &requestedAction{action: action, err: err}
}

// RequestedAction returns the action that a handler requests by Retry, Park, ParkStream, Skip or Stop. It returns false
// if err requests none.
func RequestedAction(err error) (action Action, ok bool) {
	var r *requestedAction
	if errors.As(err, &r) {
		return r.action, true
	}
	return action, false
}
