package admin

import (
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/waiting"
)

// projectionStatus is the status of a projection by its row and, if it runs here, by its entry. It lacks the end of the
// tenant's events.
func projectionStatus(row engine.ProjectionRow, entry actors.ProjectionEntry, here bool) ProjectionStatus {
	s := ProjectionStatus{
		ID: row.ID, State: State(row.State), Owner: row.Owner, OwnerName: row.OwnerName, Epoch: row.Epoch,
		Checkpoint: row.Checkpoint,
		Position:   row.Checkpoint, Parked: row.Parked, OldestParked: row.OldestParked.UTC(), Skipped: row.Skipped,
		FailingPosition: row.FailingPosition, Attempts: row.Attempts, NextAttempt: row.NextAttempt.UTC(),
		Applied: entry.Applied,
		Reason:  row.LastError, LastError: row.LastError, LastErrorAt: row.LastErrorAt.UTC(), Breaker: entry.Breaker,
	}
	if row.FailingPosition <= row.Checkpoint {
		// The event that failed last has been handled or parked since then.
		s.FailingPosition, s.Attempts, s.Reason = 0, 0, ""
	}
	if s.Attempts == 0 {
		s.FailingPosition = 0 // it waits there for what its handler depends on, and no event fails
	}
	// A node forgets a projection soon after it has released the lease, and the row is newer.
	released := s.State == StatePaused && row.Owner == ""
	switch {
	case here && !released:
		s.State, s.Position, s.Rate = State(entry.Phase), max(entry.Position, row.Checkpoint), entry.Rate()
		if entry.Reason != nil {
			s.Reason = entry.Reason.Error()
		}
	case s.State == StatePaused:
		if reason := waiting.Asleep(row.Tenant); reason != "" {
			s.Reason = reason
		}
	case s.State == StateNotOwned:
		s.NotOwned = row.NotOwned
	case s.State == StateFailed:
		s.Reason = row.Failed
		if row.Halted {
			s.NotOwned = row.NotOwned
		}
	}
	if s.State != StateWaiting || row.FailingPosition <= row.Checkpoint {
		s.NextAttempt = time.Time{}
	}
	s.withOperation(row)
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
