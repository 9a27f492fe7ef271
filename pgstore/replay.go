package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
	"github.com/millrace-go/millrace/projection"
)

// behindError is what a dead letter says that did not fail.
const behindError = "parked behind an earlier event of its stream"

// settleLetters writes, within a batch's transaction, what becomes of dead letters with it.
func (s *Store) settleLetters(ctx context.Context, conn *pgx.Conn, lease engine.Lease, batch engine.Batch) error {
	if len(batch.BlockedByStream) > 0 {
		args := parkArgs(lease, batch.BlockedByStream, projection.DeadLetter{BlockedByStream: true, Error: behindError}, false)
		if _, err := conn.Exec(ctx, s.control.sql("park_events"), args...); err != nil {
			return fmt.Errorf("park events behind others: %w", err)
		}
	}
	if r := batch.Replay; r != nil {
		tag, err := conn.Exec(ctx, s.control.sql("resolve_dead_letter"), lease.Row, r.DeadLetter, r.Command)
		if err != nil {
			return fmt.Errorf("resolve dead letter %d: %w", r.DeadLetter, err)
		}
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("resolve dead letter %d: it is not being replayed: %w", r.DeadLetter, projection.ErrLeaseLost)
		}
	}
	return nil
}

// ParkedStreams tells which of these streams are parked.
func (s port) ParkedStreams(ctx context.Context, lease engine.Lease, streams []string) (map[string]bool, error) {
	found, err := queryIn(ctx, s.Store, lease, pgx.RowTo[string], s.control.sql("parked_streams"), lease.Row, streams)
	if err != nil {
		return nil, fmt.Errorf("look for parked streams of %s: %w", lease.ID, storeFault(err))
	}
	parked := make(map[string]bool, len(found))
	for _, stream := range found {
		parked[stream] = true
	}
	return parked, nil
}

// NextCommand returns what is to be done with dead letters, the oldest first, and how many there are.
func (s port) NextCommand(ctx context.Context, lease engine.Lease, discards bool) (engine.ReplayQueue, error) {
	var desk engine.ReplayQueue
	var command engine.Command
	_, err := queryIn(ctx, s.Store, lease, func(row pgx.CollectableRow) (engine.ReplayQueue, error) {
		return desk, row.Scan(&command.ID, &command.Replay, &desk.Parked, &desk.ParkedStreams)
	}, s.control.sql("next_command"), lease.Row, discards)
	if err != nil {
		return desk, fmt.Errorf("look what is to be done with dead letters of %s: %w", lease.ID, storeFault(err))
	}
	if command.ID != 0 {
		desk.Command = &command
	}
	return desk, nil
}

// Discard carries a command out under the lease's fence, and ends it.
func (s port) Discard(ctx context.Context, lease engine.Lease, command int64) (discarded int64, err error) {
	err = s.fenced(ctx, fmt.Sprintf("discard dead letters of %s", lease.ID), lease, func(tx pgx.Tx) error {
		return lostIfNoRow(tx.QueryRow(ctx, s.control.sql("discard_dead_letters"), lease.Row, lease.Owner, lease.Epoch, command).Scan(&discarded))
	})
	return discarded, err
}

// lostIfNoRow returns projection.ErrLeaseLost if a fenced statement found no row, and err otherwise.
func lostIfNoRow(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return projection.ErrLeaseLost
	}
	return err
}

// BeginReplay counts the next replay of a command before it is made; nil tells that nothing is left of the command.
func (s port) BeginReplay(ctx context.Context, lease engine.Lease, command, mine int64) (*engine.Replay, error) {
	replay := engine.Replay{Command: command}
	found := true
	err := s.fenced(ctx, fmt.Sprintf("begin a replay of %s", lease.ID), lease, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, s.control.sql("begin_replay"), lease.Row, lease.Owner, lease.Epoch, command, mine).
			Scan(&replay.DeadLetter, &replay.Position, &replay.Stream, &replay.Begun, &replay.Attempts)
		if errors.Is(err, pgx.ErrNoRows) {
			found = false
			return nil
		}
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	return &replay, nil
}

// FailReplay parks a letter again whose replay failed, and lets the command go on without it.
func (s port) FailReplay(ctx context.Context, lease engine.Lease, f engine.FailedReplay) error {
	return s.failReplay(ctx, lease, f, "")
}

// StopReplay is FailReplay, and also stops the projection until it is resumed, with that reason. The command ends.
func (s port) StopReplay(ctx context.Context, lease engine.Lease, f engine.FailedReplay, reason string) error {
	return s.failReplay(ctx, lease, f, reason)
}

func (s port) failReplay(ctx context.Context, lease engine.Lease, f engine.FailedReplay, stop string) error {
	return s.change(ctx, fmt.Sprintf("park position %d of %s again", f.Position, lease.ID), s.control.sql("fail_replay"), lease,
		f.DeadLetter, f.Command, wire.Text(f.Err.Error()), wire.Text(f.Stack), f.Attempt, nullable(wire.Text(stop)))
}

// SkipReplay gives up a letter whose replay failed, and counts its event as skipped. The command goes on after it.
func (s port) SkipReplay(ctx context.Context, lease engine.Lease, f engine.FailedReplay) error {
	return s.change(ctx, fmt.Sprintf("skip the parked position %d of %s", f.Position, lease.ID), s.control.sql("skip_replay"), lease,
		f.DeadLetter, f.Command, wire.Text(f.Err.Error()), wire.Text(f.Stack), f.Attempt)
}

// ScheduleReplay makes a command of the letter that has been due for longest by the policy, if there is one and no command is open. Else next is
// in how long one is due, 0 where none ever is.
func (s port) ScheduleReplay(ctx context.Context, lease engine.Lease, p projection.ReplayPolicy) (scheduled bool, next time.Duration, err error) {
	replays := p.MaxReplays
	if replays < 0 {
		replays = math.MaxInt32
	}
	var letter int64
	var due float64
	err = s.pool.QueryRow(ctx, s.control.sql("next_due_replay"), lease.Row, replays, p.Interval.Seconds(), p.Factor, p.Cap.Seconds(), p.Error).Scan(&letter, &due)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, 0, nil
	case err != nil:
		return false, 0, fmt.Errorf("look for a replay of %s: %w", lease.ID, storeFault(err))
	case due > 0:
		return false, max(time.Millisecond, seconds(due)), nil
	}
	err = s.fenced(ctx, fmt.Sprintf("schedule a replay of %s", lease.ID), lease, func(tx pgx.Tx) error {
		var err error
		scheduled, err = execOne(ctx, tx, s.control.sql("schedule_replay"), lease.Row, lease.Owner, lease.Epoch, letter, replayedAtOnce)
		return err
	})
	return scheduled, p.Interval, err
}

// replayedAtOnce bounds how much of a parked stream is replayed by itself in one go.
const replayedAtOnce = 10_000

// finishUnowned carries out a command that calls no handler, if no living node holds the projection. It reports whether it
// did.
func (s *Store) finishUnowned(ctx context.Context, row int32, command int64) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	err = s.durable(ctx, "carry out a command on dead letters that no node holds", func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, s.control.sql("run_unowned_command"), row, command).Scan(new(int64))
		if done = err == nil; errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return done, err
}
