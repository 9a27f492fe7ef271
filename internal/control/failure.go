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

// RecordFailure implements engine.Store. Its transaction is not that of the batch, which was rolled back.
func (p Plane) RecordFailure(ctx context.Context, lease engine.Lease, f projection.Failure, retry time.Duration) (first time.Time, err error) {
	args := []any{lease.Row, f.Event.Position, f.Attempt, excerpt.Storable(f.Err.Error()), errors.Is(f.Err, projection.ErrMissingObject), store.OrNull(retry)}
	err = p.fenced(ctx, lease, func(tx store.Tx) error {
		tx.Later("record_failure", args, &first)
		return nil
	}, "record a failure of %s at %d", lease.ID, f.Event.Position)
	return first, err
}

// BeginAttempt implements engine.Store.
func (p Plane) BeginAttempt(ctx context.Context, lease engine.Lease, position int64, attempts int) error {
	return p.fenced(ctx, lease, func(tx store.Tx) error {
		tx.Exec("begin_attempt", lease.Row, position, attempts)
		return nil
	}, "begin an attempt of %s at %d", lease.ID, position)
}

// SetFailed implements engine.Store.
func (p Plane) SetFailed(ctx context.Context, lease engine.Lease, reason string) error {
	return p.fenced(ctx, lease, func(tx store.Tx) error {
		tx.Exec("set_failed", lease.Row, store.OrNull(excerpt.Storable(reason)), lease.Epoch)
		return nil
	}, "set the failure of %s", lease.ID)
}

// Halt implements engine.Store.
func (p Plane) Halt(ctx context.Context, lease engine.Lease, reason string) error {
	return p.fenced(ctx, lease, func(tx store.Tx) error {
		halt(tx, lease.Row, reason)
		return nil
	}, "halt %s", lease.ID)
}

func halt(tx store.Tx, row int32, reason string) { tx.Exec("halt", row, excerpt.Storable(reason)) }
