package control

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Park writes the dead letter and advances the checkpoint over its event in one fenced transaction. With stream, the
// later events of its stream are parked, too.
func (p Letters) Park(ctx context.Context, lease engine.Lease, letter projection.DeadLetter, stream bool) error {
	return p.moveOver(ctx, lease, letter.Position, func(tx store.Tx) { ParkFailed(tx, lease.Row, letter, stream) },
		"park")
}

// Skip counts a skipped event and advances the checkpoint to its position, in one fenced transaction.
func (p Letters) Skip(ctx context.Context, lease engine.Lease, position int64) error {
	return p.moveOver(ctx, lease, position, func(tx store.Tx) {
		tx.Exec("count_skip", lease.Row)
		tx.Exec("clear_failure", lease.Row)
	}, "skip")
}

// moveOver moves the checkpoint over an event that was not applied, in one transaction with record.
func (p Letters) moveOver(ctx context.Context, lease engine.Lease, position int64, record func(tx store.Tx),
	doing string) error {
	return p.fenced(ctx, lease, func(tx store.Tx) error {
		record(tx)
		moved := fmt.Errorf("the checkpoint is not %d: %w", lease.Checkpoint, projection.ErrLeaseLost)
		tx.Must(moved, "move_checkpoint", lease.Row, lease.Checkpoint, position)
		return nil
	}, "%s position %d of %s", doing, position, lease.ID)
}

// Settle records what a batch does beside its events: it parks those that are blocked by an earlier event of their
// stream, and resolves the dead letter that it replays. It is part of the batch's transaction.
func Settle(tx store.Tx, lease engine.Lease, batch engine.Batch) {
	if len(batch.BlockedByStream) > 0 {
		park(tx, lease.Row, batch.BlockedByStream, projection.DeadLetter{BlockedByStream: true, Error: blockedError},
			true)
	}
	if r := batch.Replay; r != nil {
		Resolve(tx, lease.Row, r)
	}
}

// blockedError is the error of a dead letter whose event did not fail.
const blockedError = "parked after an earlier event of its stream"

// ParkFailed parks an event that failed. With stream, the later events of its stream are parked, too.
func ParkFailed(tx store.Tx, row int32, letter projection.DeadLetter, stream bool) {
	e := event.Envelope{Position: letter.Position, Stream: letter.Stream, Version: letter.Version, Type: letter.Type}
	park(tx, row, []event.Envelope{e}, letter, stream)
	tx.Exec("clear_failure", row)
}

// park parks events, and their streams if streams is true. letter has what their dead letters have in common. Events
// that are parked are counted first: that locks the row of the projection, and later statements see what its other
// writers have committed.
func park(tx store.Tx, row int32, events []event.Envelope, letter projection.DeadLetter, streams bool) {
	n := len(events)
	positions, names, versions, types := make([]int64, n), make([]string, n), make([]int64, n), make([]string, n)
	for i, e := range events {
		positions[i], names[i], versions[i], types[i] = e.Position, e.Stream, e.Version, e.Type
	}
	tx.Exec("count_newly_parked", row, positions)
	if streams {
		tx.Exec("park_streams", row, names)
	}
	tx.Exec("park_events", row, positions, names, versions, types, letter.BlockedByStream,
		excerpt.Storable(letter.Error), excerpt.Storable(letter.Stack), letter.Attempts)
}
