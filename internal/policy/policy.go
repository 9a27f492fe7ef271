// Package policy decides what becomes of an event that failed: of a batch, of a delivery, and of a replay. It is pure.
package policy

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

// Final reports whether an event must not be tried again: its error is permanent, or processes end at it.
func Final(err error) bool {
	return Permanent(err) || errors.Is(err, projection.ErrProcessDied)
}

// NextAttempt returns the number of the attempt that follows the attempts before. It is the only place that counts
// one: of an event of a batch or of a delivery, of a replay, and of an attempt that is counted before it is made.
func NextAttempt(before int) int { return before + 1 }

// Count returns the failure of the event e after as many failures before.
func Count(id projection.ID, e event.Envelope, before int, err error, stack string) projection.Failure {
	if at, ok := err.(*projection.EventError); ok {
		err = at.Err // the failure itself names the position
	}
	return projection.Failure{Projection: id, Event: e, Attempt: NextAttempt(before), Err: err, Stack: stack}
}

// Circumstances are the facts beside a failure that decide what becomes of its event.
type Circumstances struct {
	Policy *engine.Policy
	// FailureWindow has the outcomes of the events before.
	FailureWindow engine.FailureWindow
	// Parked is how many events that failed are parked.
	Parked int64
	// Answer is the action that the FailureHandler returned, nil if it was not asked or gave no answer.
	Answer *projection.Action
}

// Decision is what becomes of a failed event. Halt is why the projection stops at it, nil if it does not.
type Decision struct {
	Action projection.Action
	Halt   error
}

// Decide decides what becomes of the event of a counted failure, of a batch or a delivery: first by the policy, then by
// the share of recent events that failed, and then by the room for one more dead letter.
func (c Circumstances) Decide(f projection.Failure) Decision {
	action := c.action(f)
	switch action {
	case projection.ActionRetry:
		return Decision{Action: action}
	case projection.ActionStop:
		return Decision{Action: action, Halt: Error(&f)}
	}
	if failed, of, tooMany := c.FailureWindow.TooMany(c.Policy.MaxFailureShare); tooMany {
		err := fmt.Errorf("%d of the last %d events failed, so the cause is not a single event; the last error was %w",
			failed, of, Error(&f))
		return Decision{Action: projection.ActionStop, Halt: err}
	}
	if action != projection.ActionSkip && c.Policy.Room(c.Parked) == 0 {
		return Decision{Action: projection.ActionStop, Halt: Full(c.Parked, f.Event.Position)}
	}
	return Decision{Action: action}
}

// action decides by the policy. An action that the handler requested comes first, then the FailureHandler's answer.
// Without either, the event is retried until its attempts are used up, and then OnFailure applies. If the error is
// final, only the handler itself can have the event retried; else it is parked instead: see parking.
func (c Circumstances) action(f projection.Failure) projection.Action {
	if action, asks := projection.RequestedAction(f.Err); asks {
		return action
	}
	action := c.Policy.OnFailure
	switch {
	case c.Answer != nil:
		action = *c.Answer
	case !Final(f.Err) && f.Attempt < c.Policy.Retry.MaxAttempts:
		return projection.ActionRetry
	case action == projection.ActionParkStream:
		return parking(c.Policy)
	}
	if Final(f.Err) && action == projection.ActionRetry {
		return parking(c.Policy)
	}
	return action
}

// parking returns how a policy parks an event for which nothing else was requested: alone if OnFailure parks single
// events or the handler does not mind the order, and else with its stream. OnFailure cannot ask for the stream then,
// since that is its zero value.
func parking(p *engine.Policy) projection.Action {
	if p.OnFailure == projection.ActionPark || p.AnyOrder {
		return projection.ActionPark
	}
	return projection.ActionParkStream
}

// ReplayAction decides about a dead letter whose replay failed with err: ActionSkip, ActionStop, or ActionPark, which
// leaves it parked. An action that the handler requested comes first. OnFailure applies to a permanent error, unless
// there is a FailureHandler. After any other error the dead letter stays parked, since the policy has already decided
// about its event.
func ReplayAction(p *engine.Policy, err error) projection.Action {
	action, asks := projection.RequestedAction(err)
	if !asks && Permanent(err) && p.FailureHandler == nil {
		action = p.OnFailure
	}
	if action == projection.ActionSkip || action == projection.ActionStop {
		return action
	}
	return projection.ActionPark
}

// Full returns the error that the event at position, which failed, cannot be parked.
func Full(parked, position int64) error {
	return fmt.Errorf("%d events that failed are parked, which is the limit Projection.MaxParked; the event at position %d would be the next", parked, position)
}

// FullOfBlocked returns the error that the event at position cannot be parked after an earlier event of its stream.
func FullOfBlocked(blocked, position int64) error {
	return fmt.Errorf("%d events are parked after others of their streams, which is the limit Projection.MaxBlocked; the event at position %d would be the next",
		blocked, position)
}

// Rejection returns the error of an event that a delivery rejects because of cause, with the action that is asked for:
// to park its stream, unless cause asks for another action or the policy parks single events.
func Rejection(policy *engine.Policy, cause error) error {
	if _, asks := projection.RequestedAction(cause); asks {
		return cause
	}
	if parking(policy) == projection.ActionPark {
		return projection.Park(cause)
	}
	return projection.ParkStream(cause)
}

// Error returns a failure as status and logs report it.
func Error(f *projection.Failure) *projection.HandlerError {
	return &projection.HandlerError{Projection: f.Projection, Position: f.Event.Position, Attempt: f.Attempt,
		Stack: f.Stack, Err: f.Err}
}
