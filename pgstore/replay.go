package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// blockedError is the error of a dead letter whose event did not fail.
const blockedError = "parked after an earlier event of its stream"

// settleDeadLetters parks the blocked events of a batch and resolves the dead letter that it replayed, in its transaction.
func (s *Store) settleDeadLetters(ctx context.Context, conn *pgx.Conn, lease engine.Lease, batch engine.Batch) error {
	if len(batch.BlockedByStream) > 0 {
		args := parkArgs(lease, batch.BlockedByStream, projection.DeadLetter{BlockedByStream: true, Error: blockedError}, false)
		if _, err := conn.Exec(ctx, s.control.sql("park_events"), args...); err != nil {
			return fmt.Errorf("park blocked events: %w", err)
		}
	}
	if r := batch.Replay; r != nil {
		done, err := runOne(ctx, conn, s.control.sql("resolve_dead_letter"), []any{lease.Row, r.DeadLetter, r.Command})
		if err == nil && !done {
			err = fmt.Errorf("it is not being replayed: %w", projection.ErrLeaseLost)
		}
		if err != nil {
			return fmt.Errorf("resolve dead letter %d: %w", r.DeadLetter, err)
		}
	}
	return nil
}

func (s port) ParkedStreams(ctx context.Context, lease engine.Lease, streams []string) (map[string]bool, error) {
	found, err := queryIn(ctx, s.Store, lease, pgx.RowTo[string], "parked_streams", lease.Row, streams)
	if err != nil {
		return nil, failed(err, "list parked streams of %s", lease.ID)
	}
	parked := make(map[string]bool, len(found))
	for _, stream := range found {
		parked[stream] = true
	}
	return parked, nil
}

func (s port) NextCommand(ctx context.Context, lease engine.Lease, discards bool) (queue engine.ReplayQueue, err error) {
	var command engine.Command
	_, err = queryIn(ctx, s.Store, lease, func(row pgx.CollectableRow) (engine.ReplayQueue, error) {
		return queue, row.Scan(&command.ID, &command.Replay, &queue.Parked, &queue.ParkedStreams)
	}, "next_command", lease.Row, discards)
	if err != nil {
		return queue, failed(err, "read the next command of %s", lease.ID)
	}
	if command.ID != 0 {
		queue.Command = &command
	}
	return queue, nil
}

func (s port) Discard(ctx context.Context, lease engine.Lease, command int64) (discarded int64, err error) {
	err = s.change(ctx, fmt.Sprintf("discard dead letters of %s", lease.ID), "discard_dead_letters", lease, []any{command}, &discarded)
	return discarded, err
}

func (s port) BeginReplay(ctx context.Context, lease engine.Lease, command, lastBegun int64) (*engine.Replay, error) {
	replay := engine.Replay{Command: command}
	found := false
	err := s.fenced(ctx, fmt.Sprintf("begin a replay of %s", lease.ID), lease, func(tx pgx.Tx) (err error) {
		found, err = runOne(ctx, tx, s.control.sql("begin_replay"), leaseArgs(lease, command, lastBegun),
			&replay.DeadLetter, &replay.Position, &replay.Stream, &replay.Begun, &replay.Attempts)
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	return &replay, nil
}

func (s port) FailReplay(ctx context.Context, lease engine.Lease, f engine.FailedReplay) error {
	args := append(failedReplayArgs(f), nullable(excerpt.Storable(f.Halt)))
	return s.change(ctx, fmt.Sprintf("park position %d of %s again", f.Position, lease.ID), "fail_replay", lease, args)
}

func (s port) SkipReplay(ctx context.Context, lease engine.Lease, f engine.FailedReplay) error {
	return s.change(ctx, fmt.Sprintf("skip the parked position %d of %s", f.Position, lease.ID), "skip_replay", lease, failedReplayArgs(f))
}

func failedReplayArgs(f engine.FailedReplay) []any {
	return []any{f.DeadLetter, f.Command, excerpt.Storable(f.Err.Error()), excerpt.Storable(f.Stack), f.Attempt}
}

// maxAutomaticReplays bounds how many events of a parked stream one automatic command replays.
const maxAutomaticReplays = 10_000

func (s port) ScheduleReplay(ctx context.Context, lease engine.Lease, p projection.ReplayPolicy) (scheduled bool, next time.Duration, err error) {
	replays := p.MaxReplays
	if replays < 0 {
		replays = math.MaxInt
	}
	var letter int64
	var due float64
	err = s.pool.QueryRow(ctx, s.control.sql("next_due_replay"), lease.Row, replays, p.Interval.Seconds(), p.Factor, p.Cap.Seconds(), p.Error).Scan(&letter, &due)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, 0, nil
	case err != nil:
		return false, 0, failed(err, "find a due replay of %s", lease.ID)
	case due > 0:
		return false, max(time.Millisecond, seconds(due)), nil
	}
	err = s.fenced(ctx, fmt.Sprintf("schedule a replay of %s", lease.ID), lease, func(tx pgx.Tx) (err error) {
		scheduled, err = runOne(ctx, tx, s.control.sql("schedule_replay"), leaseArgs(lease, letter, maxAutomaticReplays))
		return err
	})
	return scheduled, p.Interval, err
}

// runUnowned runs a command that calls no handler, if no living node owns the lease. It reports whether it did.
func (s *Store) runUnowned(ctx context.Context, row int32, command int64) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	err = s.durable(ctx, "run a command on dead letters without an owner", func(tx pgx.Tx) (err error) {
		done, err = runOne(ctx, tx, s.control.sql("run_unowned_command"), []any{row, command}, new(int64))
		return err
	})
	return done, err
}
