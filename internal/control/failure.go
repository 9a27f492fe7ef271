package control

import (
	"context"
	"errors"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// RecordFailure writes the attempts at an event, under the lease's fence, and returns when the event failed first. With
// an attempt of 0 it counts nothing and writes only the error, as the reason of a wait. retry is the delay of the next
// attempt, 0 if that is not known. Its transaction is not that of the batch, which was rolled back.
func (p Letters) RecordFailure(ctx context.Context, lease engine.Lease, f projection.Failure,
	retry time.Duration) (first time.Time, err error) {
	args := []any{
		lease.Row, f.Event.Position, f.Attempt, excerpt.Storable(f.Err.Error()),
		errors.Is(f.Err, projection.ErrMissingObject), store.OrNull(retry),
	}
	err = p.fenced(ctx, lease, func(tx store.Tx) error {
		tx.Later("record_failure", args, &first)
		return nil
	}, "record a failure of %s at %d", lease.ID, f.Event.Position)
	return first, err
}

// BeginAttempt counts an attempt at an event before the handler is called, under the lease's fence.
func (p Letters) BeginAttempt(ctx context.Context, lease engine.Lease, position int64, attempts int) error {
	return p.fenced(ctx, lease, func(tx store.Tx) error {
		tx.Exec("begin_attempt", lease.Row, position, attempts)
		return nil
	}, "begin an attempt of %s at %d", lease.ID, position)
}

// SetFailed writes under the lease's fence why a projection waits for a person. An empty reason clears that. It changes
// nothing about a projection that Halt stopped.
func (p Letters) SetFailed(ctx context.Context, lease engine.Lease, reason string) error {
	return p.fenced(ctx, lease, func(tx store.Tx) error {
		tx.Exec("set_failed", lease.Row, store.OrNull(excerpt.Storable(reason)), lease.Epoch)
		return nil
	}, "set the failure of %s", lease.ID)
}

// Halt writes under the lease's fence that the projection waits until a user resumes it, and why.
func (p Letters) Halt(ctx context.Context, lease engine.Lease, reason string) error {
	return p.fenced(ctx, lease, func(tx store.Tx) error {
		halt(tx, lease.Row, reason)
		return nil
	}, "halt %s", lease.ID)
}

func halt(tx store.Tx, row int32, reason string) { tx.Exec("halt", row, excerpt.Storable(reason)) }
