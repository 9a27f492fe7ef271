package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Park(ctx context.Context, lease engine.Lease, letter projection.DeadLetter, stream bool) error {
	err := s.moveOver(ctx, lease, letter.Position, "park_events", parkOneArgs(lease, letter, stream)...)
	return failed(err, "park position %d of %s", letter.Position, lease.ID)
}

// parkOneArgs returns the arguments of park_events.sql for one event that failed.
func parkOneArgs(lease engine.Lease, letter projection.DeadLetter, stream bool) []any {
	e := event.Envelope{Position: letter.Position, Stream: letter.Stream, Version: letter.Version, Type: letter.Type}
	return parkArgs(lease, []event.Envelope{e}, letter, stream)
}

// parkArgs returns the arguments of park_events.sql. letter has what the dead letters have in common.
func parkArgs(lease engine.Lease, events []event.Envelope, letter projection.DeadLetter, stream bool) []any {
	n := len(events)
	positions, streams, versions, types := make([]int64, n), make([]string, n), make([]int64, n), make([]string, n)
	for i, e := range events {
		positions[i], streams[i], versions[i], types[i] = e.Position, e.Stream, e.Version, e.Type
	}
	return []any{lease.Row, positions, streams, versions, types, letter.BlockedByStream, excerpt.Storable(letter.Error), excerpt.Storable(letter.Stack), letter.Attempts, n, stream}
}

func (s port) Skip(ctx context.Context, lease engine.Lease, position int64) error {
	return failed(s.moveOver(ctx, lease, position, "count_skip", lease.Row), "skip position %d of %s", position, lease.ID)
}

// moveOver moves the checkpoint over an event that was not applied, in one transaction with a statement that records why.
func (s port) moveOver(ctx context.Context, lease engine.Lease, position int64, statement string, args ...any) error {
	return newBatchTx(s.Store, lease, position, batchOptions{timeout: finishTime}).run(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.control.sql(statement), args...)
		return err
	})
}
