package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
	"github.com/millrace-go/millrace/projection"
)

// RecordFailure keeps the count of an event's failures, outside of the batch that was rolled back, and returns when the
// first of them was.
func (s port) RecordFailure(ctx context.Context, lease engine.Lease, f projection.Failure) (first time.Time, err error) {
	err = s.fenced(ctx, fmt.Sprintf("record a failure of %s at %d", lease.ID, f.Event.Position), lease, func(tx pgx.Tx) error {
		return lostIfNoRow(tx.QueryRow(ctx, s.control.sql("record_failure"), lease.Row, lease.Owner, lease.Epoch, f.Event.Position, f.Attempt,
			wire.Text(f.Err.Error()), errors.Is(f.Err, projection.ErrMissingObject)).Scan(&first))
	})
	return first, err
}

// BeginAttempt counts an attempt at the event at position before it is made: deaths is how many there were then without a
// word on how they ended, this one included.
func (s port) BeginAttempt(ctx context.Context, lease engine.Lease, position int64, deaths int) error {
	return s.change(ctx, fmt.Sprintf("begin an attempt of %s at %d", lease.ID, position), s.control.sql("begin_attempt"), lease, position, deaths)
}

// SetFailed keeps why a projection waits for somebody, or with an empty reason that it does not any more. One that Halt
// stopped stays as it is.
func (s port) SetFailed(ctx context.Context, lease engine.Lease, reason string) error {
	return s.change(ctx, fmt.Sprintf("keep the state of %s", lease.ID), s.control.sql("set_failed"), lease, nullable(wire.Text(reason)))
}

// Halt keeps that a projection waits until somebody resumes it, and why.
func (s port) Halt(ctx context.Context, lease engine.Lease, reason string) error {
	return s.change(ctx, fmt.Sprintf("halt %s", lease.ID), s.control.sql("halt"), lease, wire.Text(reason))
}

// change runs a statement of ours that changes one row if the lease is still held.
func (s port) change(ctx context.Context, doing, sql string, lease engine.Lease, more ...any) error {
	return s.fenced(ctx, doing, lease, func(tx pgx.Tx) error {
		done, err := execOne(ctx, tx, sql, append([]any{lease.Row, lease.Owner, lease.Epoch}, more...)...)
		if err == nil && !done {
			err = projection.ErrLeaseLost
		}
		return err
	})
}

// nullable is s, or null where it is empty.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Park writes the dead letter and advances the checkpoint over its event, both or neither, under the lease's fence. stream
// tells that later events of its stream are to be parked behind it.
func (s port) Park(ctx context.Context, lease engine.Lease, letter projection.DeadLetter, stream bool) error {
	e := event.Envelope{Position: letter.Position, Stream: letter.Stream, Version: letter.Version, Type: letter.Type}
	args := parkArgs(lease, []event.Envelope{e}, letter, stream)
	if err := s.passOver(ctx, lease, letter.Position, s.control.sql("park_events"), args...); err != nil {
		return fmt.Errorf("park position %d of %s: %w", letter.Position, lease.ID, err)
	}
	return nil
}

// parkArgs lays out what park_events.sql takes: letter says what they have in common.
func parkArgs(lease engine.Lease, events []event.Envelope, letter projection.DeadLetter, stream bool) []any {
	n := len(events)
	positions, streams, versions, types := make([]int64, n), make([]string, n), make([]int64, n), make([]string, n)
	for i, e := range events {
		positions[i], streams[i], versions[i], types[i] = e.Position, e.Stream, e.Version, e.Type
	}
	return []any{lease.Row, positions, streams, versions, types, letter.BlockedByStream, wire.Text(letter.Error), wire.Text(letter.Stack), letter.Attempts, n, stream}
}

// Skip counts a skipped event and advances the checkpoint over it, both or neither, under the lease's fence.
func (s port) Skip(ctx context.Context, lease engine.Lease, position int64) error {
	if err := s.passOver(ctx, lease, position, s.control.sql("count_skip"), lease.Row); err != nil {
		return fmt.Errorf("skip position %d of %s: %w", position, lease.ID, err)
	}
	return nil
}

// passOver advances the checkpoint over an event that was not applied, with a statement that says what became of it.
func (s port) passOver(ctx context.Context, lease engine.Lease, position int64, sql string, args ...any) error {
	batch := newBatchTx(s.Store, lease, position, batchOptions{deadline: 10 * time.Second})
	err := batch.run(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		return storeFault(err)
	}
	return nil
}
