package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Park(ctx context.Context, lease engine.Lease, letter projection.DeadLetter, stream bool) error {
	e := event.Envelope{Position: letter.Position, Stream: letter.Stream, Version: letter.Version, Type: letter.Type}
	return s.moveOver(ctx, fmt.Sprintf("park position %d of %s", letter.Position, lease.ID), lease, letter.Position, func(tx *sql.Tx) error {
		return parkEvents(ctx, tx, lease, []event.Envelope{e}, letter, stream)
	})
}

func (s port) Skip(ctx context.Context, lease engine.Lease, position int64) error {
	return s.moveOver(ctx, fmt.Sprintf("skip position %d of %s", position, lease.ID), lease, position, func(tx *sql.Tx) error {
		return execute(ctx, tx, "count_skip", lease.Row)
	})
}

// moveOver moves the checkpoint over an event that was not applied, in one transaction with fn, which records why.
func (s port) moveOver(ctx context.Context, doing string, lease engine.Lease, position int64, fn func(tx *sql.Tx) error) error {
	return s.fenced(ctx, doing, lease, func(tx *sql.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return advance(ctx, tx, lease, position)
	})
}

// blockedError is the error of a dead letter whose event did not fail.
const blockedError = "parked after an earlier event of its stream"

// settleDeadLetters parks the blocked events of a batch and resolves the dead letter that it replayed, in its transaction.
func (s *Store) settleDeadLetters(ctx context.Context, tx *sql.Tx, lease engine.Lease, batch engine.Batch) error {
	if len(batch.BlockedByStream) > 0 {
		letter := projection.DeadLetter{BlockedByStream: true, Error: blockedError}
		if err := parkEvents(ctx, tx, lease, batch.BlockedByStream, letter, false); err != nil {
			return fmt.Errorf("park blocked events: %w", err)
		}
	}
	if r := batch.Replay; r != nil {
		return s.on(ctx, tx).run(func(tx store.Tx) error {
			control.Resolve(tx, lease.Row, r)
			return nil
		})
	}
	return nil
}

// parkEvents parks one event that failed, or events that are blocked by earlier events of their streams. All dead letters
// get the fields of letter. If stream is true, the later events of the stream are parked, too.
func parkEvents(ctx context.Context, tx *sql.Tx, lease engine.Lease, events []event.Envelope, letter projection.DeadLetter, stream bool) error {
	rows := make([][]any, len(events))
	for i, e := range events {
		rows[i] = []any{e.Position, e.Stream, e.Version, e.Type}
	}
	parked := list(rows)
	var already int
	if _, err := runOne(ctx, tx, "count_parked_of", []any{lease.Row, parked}, &already); err != nil {
		return err
	}
	if stream || letter.BlockedByStream {
		if err := execute(ctx, tx, "park_streams", lease.Row, parked); err != nil {
			return err
		}
	}
	err := execute(ctx, tx, "park_events", lease.Row, parked, letter.BlockedByStream, excerpt.Storable(letter.Error), excerpt.Storable(letter.Stack),
		letter.Attempts, time.Now().UnixMicro())
	if err != nil {
		return err
	}
	return execute(ctx, tx, "count_parks", lease.Row, len(events)-already, letter.BlockedByStream)
}
