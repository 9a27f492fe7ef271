package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

func (s port) ParkedStreams(ctx context.Context, lease engine.Lease, streams []string) (map[string]bool, error) {
	found, err := column[string](ctx, s.readers, "parked_streams", lease.Row, list(streams))
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
	_, err = runOne(ctx, s.readers, "next_command", []any{lease.Row, discards}, &command.ID, &command.Replay, &queue.Parked, &queue.ParkedStreams)
	if err != nil {
		return queue, failed(err, "read the next command of %s", lease.ID)
	}
	if command.ID != 0 {
		queue.Command = &command
	}
	return queue, nil
}

func (s port) Discard(ctx context.Context, lease engine.Lease, command int64) (discarded int64, err error) {
	err = s.fenced(ctx, fmt.Sprintf("discard dead letters of %s", lease.ID), lease, func(tx *sql.Tx) error {
		discarded, err = discard(ctx, tx, lease.Row, command)
		return err
	})
	return discarded, err
}

func (s port) BeginReplay(ctx context.Context, lease engine.Lease, command, lastBegun int64) (replay *engine.Replay, err error) {
	err = s.fenced(ctx, fmt.Sprintf("begin a replay of %s", lease.ID), lease, func(tx *sql.Tx) error {
		c, err := readCommand(ctx, tx, lease.Row, command)
		if err == nil && c != nil {
			replay, err = c.beginNext(ctx, tx, lastBegun)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return replay, nil
}

func (s port) FailReplay(ctx context.Context, lease engine.Lease, f engine.FailedReplay) error {
	return s.fenced(ctx, fmt.Sprintf("park position %d of %s again", f.Position, lease.ID), lease, func(tx *sql.Tx) error {
		parked, err := runOne(ctx, tx, "fail_replay", failedReplayArgs(lease, f))
		if err == nil && !parked {
			err = projection.ErrLeaseLost
		}
		if err != nil {
			return err
		}
		if err := execute(ctx, tx, "count_failed_replay", f.Command, f.Halt != ""); err != nil || f.Halt == "" {
			return err
		}
		return execute(ctx, tx, "halt", lease.Row, excerpt.Storable(f.Halt))
	})
}

func (s port) SkipReplay(ctx context.Context, lease engine.Lease, f engine.FailedReplay) error {
	return s.fenced(ctx, fmt.Sprintf("skip the parked position %d of %s", f.Position, lease.ID), lease, func(tx *sql.Tx) error {
		return endDeadLetter(ctx, tx, lease.Row, f.Command, 1, "skip_replay", failedReplayArgs(lease, f)...)
	})
}

func failedReplayArgs(lease engine.Lease, f engine.FailedReplay) []any {
	return []any{lease.Row, f.DeadLetter, time.Now().UnixMicro(), excerpt.Storable(f.Err.Error()), excerpt.Storable(f.Stack), f.Attempt}
}

// resolve marks the dead letter of a replay as resolved, in the transaction that applied its event.
func resolve(ctx context.Context, tx *sql.Tx, lease engine.Lease, r *engine.Replay) error {
	return endDeadLetter(ctx, tx, lease.Row, r.Command, 0, "resolve_dead_letter", lease.Row, r.DeadLetter, time.Now().UnixMicro())
}

// endDeadLetter ends the dead letter that a command replays by a statement that returns its stream, and counts it. skipped
// is 1 if its event counts as skipped. After the last dead letter of a parked stream, it releases the stream.
func endDeadLetter(ctx context.Context, tx *sql.Tx, row int32, command int64, skipped int, statement string, args ...any) error {
	var stream string
	ended, err := runOne(ctx, tx, statement, args, &stream)
	if err == nil && !ended {
		err = fmt.Errorf("it is not being replayed: %w", projection.ErrLeaseLost)
	}
	if err == nil {
		err = execute(ctx, tx, "release_streams", row, list([]string{stream}))
	}
	if err == nil {
		err = execute(ctx, tx, "count_replay", command)
	}
	if err == nil {
		err = execute(ctx, tx, "count_unparked", row, 1, skipped)
	}
	return err
}

// maxAutomaticReplays bounds how many events of a parked stream one automatic command replays.
const maxAutomaticReplays = 10_000

func (s port) ScheduleReplay(ctx context.Context, lease engine.Lease, p projection.ReplayPolicy) (scheduled bool, next time.Duration, err error) {
	letter, due, err := s.nextDueReplay(ctx, lease, p)
	switch {
	case err != nil:
		return false, 0, failed(err, "find a due replay of %s", lease.ID)
	case letter == 0:
		return false, 0, nil
	case time.Until(due) > 0:
		return false, max(time.Millisecond, time.Until(due)), nil
	}
	err = s.fenced(ctx, fmt.Sprintf("schedule a replay of %s", lease.ID), lease, func(tx *sql.Tx) error {
		var busy, parked bool
		_, err := runOne(ctx, tx, "has_open_command", []any{lease.Row, letter}, &busy, &parked)
		if err != nil || busy || !parked {
			return err
		}
		scheduled = true
		args := append(filterArgs(projection.DeadLetterFilter{IDs: []int64{letter}}), maxAutomaticReplays)
		_, err = s.insertCommand(ctx, tx, lease.Row, nil, deadletters.Replay, args)
		return err
	})
	return scheduled && err == nil, p.Interval, err
}

// nextDueReplay returns the dead letter whose automatic replay is due first, and when. The letter is 0 if none ever is.
func (s port) nextDueReplay(ctx context.Context, lease engine.Lease, p projection.ReplayPolicy) (letter int64, due time.Time, err error) {
	replays := p.MaxReplays
	if replays < 0 {
		replays = math.MaxInt
	}
	var id int64
	var tried int
	var failedAt time.Time
	err = each(ctx, s.readers, "due_replays", []any{lease.Row, replays, p.Error}, []any{&id, &tried, micros{&failedAt}}, func() error {
		delay := min(float64(p.Interval)*math.Pow(p.Factor, float64(min(tried, 60))), float64(p.Cap))
		if at := failedAt.Add(time.Duration(delay)); letter == 0 || at.Before(due) {
			letter, due = id, at
		}
		return nil
	})
	return letter, due, err
}
