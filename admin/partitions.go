package admin

import (
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/projection"
)

// worst has the states of partitions, the worst first: the state of the whole projection is the first that one of them
// has.
var worst = []State{
	StateFailed, StateNotOwned, StateUnregistered, StateMissingObject, StateWaiting, StatePaused, StateStarting,
	StateCatchUp, StateLive,
}

var worstBreaker = []projection.BreakerState{
	projection.BreakerOpen, projection.BreakerHalfOpen, projection.BreakerClosed,
}

// together returns the status of the projection id, which has these partitions.
func together(id projection.ID, parts []ProjectionStatus) ProjectionStatus {
	if len(parts) == 0 {
		return ProjectionStatus{}
	}
	worse := func(a, b ProjectionStatus) int { return slices.Index(worst, a.State) - slices.Index(worst, b.State) }
	all := slices.MinFunc(parts, worse)
	if all.Reason != "" {
		all.Reason = fmt.Sprintf("partition %d: %s", all.ID.Partition, all.Reason)
	}
	all.ID = id
	all.Applied, all.Parked, all.Skipped = 0, 0, 0
	for _, p := range parts {
		all.Applied, all.Parked, all.Skipped = all.Applied+p.Applied, all.Parked+p.Parked, all.Skipped+p.Skipped
		if p.Position < all.Position {
			all.Rate = p.Rate
		}
		all.Checkpoint, all.Position = min(all.Checkpoint, p.Checkpoint), min(all.Position, p.Position)
		all.Mark, all.Head, all.Behind = max(all.Mark, p.Mark), max(all.Head, p.Head), max(all.Behind, p.Behind)
		all.Lag, all.NotOwned = max(all.Lag, p.Lag), max(all.NotOwned, p.NotOwned)
		if p.LastErrorAt.After(all.LastErrorAt) {
			all.LastError, all.LastErrorAt = p.LastError, p.LastErrorAt
		}
		if !p.NextAttempt.IsZero() && (all.NextAttempt.IsZero() || p.NextAttempt.Before(all.NextAttempt)) {
			all.NextAttempt = p.NextAttempt
		}
		if !p.OldestParked.IsZero() && (all.OldestParked.IsZero() || p.OldestParked.Before(all.OldestParked)) {
			all.OldestParked = p.OldestParked
		}
		if p.FailingPosition != 0 && (all.FailingPosition == 0 || p.FailingPosition < all.FailingPosition) {
			all.FailingPosition, all.Attempts = p.FailingPosition, p.Attempts
		}
		if i := slices.Index(worstBreaker, p.Breaker); i >= 0 &&
			(all.Breaker == "" || i < slices.Index(worstBreaker, all.Breaker)) {
			all.Breaker = p.Breaker
		}
		if p.Owner != all.Owner {
			all.Owner, all.OwnerName = "", ""
		}
	}
	all.Rebuild = rebuildOf(parts)
	if len(parts) > 1 {
		all.Epoch = 0
	}
	return all
}
