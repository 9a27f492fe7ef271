package machine

import (
	"errors"
	"fmt"

	"github.com/cenkalti/backoff/v4"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Permanent reports whether a handler's error says that its event can never be handled: the error is wrapped in
// backoff.Permanent, or the event's body does not decode.
func Permanent(err error) bool {
	var permanent *backoff.PermanentError
	var decode *event.DecodeError
	return errors.As(err, &permanent) || errors.As(err, &decode)
}

// final reports whether an event must not be tried again: its error is permanent, or processes end at it.
func final(err error) bool {
	return Permanent(err) || errors.Is(err, projection.ErrProcessDied)
}

// countAttempt returns the number of the attempt that follows the attempts before. It is the only place that counts one: of an
// event of a batch or of a delivery, of a replay, and of an attempt that is counted before it is made.
func countAttempt(before int) int { return before + 1 }

// Count returns the failure of the event e after as many failures before.
func Count(id projection.ID, e event.Envelope, before int, err error, stack string) projection.Failure {
	if at, ok := err.(*projection.EventError); ok {
		err = at.Err // the failure itself names the position
	}
	return projection.Failure{Projection: id, Event: e, Attempt: countAttempt(before), Err: err, Stack: stack}
}

// Circumstances are what decides about a failure beside the failure itself.
type Circumstances struct {
	Policy *engine.Policy
	// Window is what became of the events before.
	Window engine.FailureWindow
	// Parked is how many events are parked, with those that are about to be.
	Parked int64
	// Answer is what the FailureHandler said, nil if it was not asked or gave no answer.
	Answer *projection.Action
}

// Decision is what becomes of a failed event. Halt is why the projection stops at it, nil if it does not.
type Decision struct {
	Action projection.Action
	Halt   error
}

// Decide decides what becomes of a counted failure. It is the only place that does, for batches and deliveries alike: the
// policy comes first, then whether too many of the recent events failed, and then whether there is room for one more dead
// letter.
func (c Circumstances) Decide(f projection.Failure) Decision {
	action := c.Policy.Decide(f, final(f.Err), c.Answer)
	switch {
	case action == projection.ActionRetry:
		return Decision{Action: action}
	case action == projection.ActionStop:
		return Decision{Action: action, Halt: asError(&f)}
	}
	if failed, of, tooMany := c.Window.TooMany(c.Policy.MaxFailureShare); tooMany {
		err := fmt.Errorf("%d of the last %d events failed: that is no single bad event; the last was %w", failed, of, asError(&f))
		return Decision{Action: projection.ActionStop, Halt: err}
	}
	if action != projection.ActionSkip && c.Policy.Room(c.Parked) == 0 {
		return Decision{Action: projection.ActionStop, Halt: errFull(c.Parked, f.Event.Position)}
	}
	return Decision{Action: action}
}

// errFull says that the event at position cannot be parked.
func errFull(parked, position int64) error {
	return fmt.Errorf("%d events are parked, and no more may be (MaxParked); event at position %d would be the next", parked, position)
}

// Rejection returns the error of an event that a delivery rejects because of cause, with the action that is asked for: to
// park it, unless cause or the policy asks for more.
func Rejection(policy *engine.Policy, cause error) error {
	if _, asks := projection.RequestedAction(cause); asks {
		return cause
	}
	if policy.OnFailure == projection.ActionParkStream {
		return projection.ParkStream(cause)
	}
	return projection.Park(cause)
}
