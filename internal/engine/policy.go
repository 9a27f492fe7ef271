package engine

import (
	"context"
	"math"

	"github.com/millrace-go/millrace/projection"
)

// Policy says what becomes of an event that its handler cannot handle. Its fields are those of millrace.Projection, which
// describes them. The zero value, with the defaults of its parts in place, retries and then parks.
type Policy struct {
	Retry           projection.RetryPolicy
	OnFailure       projection.Action
	FailureHandler  func(ctx context.Context, f projection.Failure) projection.Action
	MaxFailureShare float64
	MaxParked       int64
	Replay          projection.ReplayPolicy
}

// Room is how many more events may be parked where parked are already.
func (p Policy) Room(parked int64) int64 {
	if p.MaxParked < 0 {
		return math.MaxInt64
	}
	return max(0, p.MaxParked-parked)
}

// DecideReplay decides about a dead letter whose replay failed: ActionSkip, ActionStop, or ActionPark, which leaves it
// parked. It is pure. A request of the handler comes first. OnFailure decides about a permanent error, unless FailureHandler is set.
// Any other error leaves the letter parked, since the policy has already decided about its event.
func (p Policy) DecideReplay(err error, permanent bool) projection.Action {
	action, asks := projection.RequestedAction(err)
	if !asks && permanent && p.FailureHandler == nil {
		action = p.OnFailure
	}
	if action == projection.ActionSkip || action == projection.ActionStop {
		return action
	}
	return projection.ActionPark
}

// Decide says what is to be done about a failure. It is pure.
//
// What the handler asks for comes first. Then comes answer, which is what FailureHandler said: nil where it was not asked or has
// no answer. Else the event is retried until its retries are used up, and then it is up to OnFailure. final tells that the
// event must not be tried again: its error is declared to be permanent, or processes die of it. Then no retry is waited
// for, and one that FailureHandler or OnFailure want after all is a parking, since nobody said what else to do.
func (p Policy) Decide(f projection.Failure, final bool, answer *projection.Action) projection.Action {
	if action, asks := projection.RequestedAction(f.Err); asks {
		return action
	}
	action := p.OnFailure
	switch {
	case answer != nil:
		action = *answer
	case !final && !Exhausted(p.Retry, f.Attempt):
		action = projection.ActionRetry
	}
	if final && action == projection.ActionRetry {
		return projection.ActionPark
	}
	return action
}
