package projection

import (
	"context"
	"math"
	"time"

	"github.com/millrace-go/millrace/event"
)

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

// Policy says what becomes of an event that its handler cannot handle. The zero value, with the defaults of its parts in
// place, retries and then parks.
type Policy struct {
	// Retry says when a failing event is tried again.
	Retry RetryPolicy
	// OnFailure is what happens when the retries are used up.
	OnFailure Action
	// Decide, where it is set, decides in place of Retry.MaxRetries and OnFailure.
	Decide func(ctx context.Context, f Failure) Action
	// MaxFailureShare is the share of the recent events that may be parked or skipped; negative means all.
	MaxFailureShare float64
	// MaxParked is how many events may be parked at a time; negative means any number.
	MaxParked int64
	// Replay has dead letters replayed by themselves.
	Replay ReplayPolicy
}

// Room is how many more events may be parked where parked are already.
func (p Policy) Room(parked int64) int64 {
	if p.MaxParked < 0 {
		return math.MaxInt64
	}
	return max(0, p.MaxParked-parked)
}

// ReplayVerdict decides about a dead letter whose replay failed: ActionSkip, ActionStop, or ActionPark, which leaves it
// parked. It is pure. A request of the handler comes first. OnFailure decides about a permanent error, unless Decide is set.
// Any other error leaves the letter parked, since the policy has already decided about its event.
func (p Policy) ReplayVerdict(err error, permanent bool) Action {
	action, asks := Asked(err)
	if !asks && permanent && p.Decide == nil {
		action = p.OnFailure
	}
	if action == ActionSkip || action == ActionStop {
		return action
	}
	return ActionPark
}

// Verdict says what is to be done about a failure. It is pure.
//
// What the handler asks for comes first. Then comes answer, which is what Decide said: nil where it was not asked or has
// no answer. Else the event is retried until its retries are used up, and then it is up to OnFailure. final tells that the
// event must not be tried again: its error is declared to be permanent, or processes die of it. Then no retry is waited
// for, and one that Decide or OnFailure want after all is a parking, since nobody said what else to do.
func (p Policy) Verdict(f Failure, final bool, answer *Action) Action {
	if action, asks := Asked(f.Err); asks {
		return action
	}
	action := p.OnFailure
	switch {
	case answer != nil:
		action = *answer
	case !final && !p.Retry.Exhausted(f.Attempt):
		action = ActionRetry
	}
	if final && action == ActionRetry {
		return ActionPark
	}
	return action
}
