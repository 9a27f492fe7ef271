package sqlitestore

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// command is a row of millrace_commands that has not ended. Nothing else writes during the transaction that read it.
type command struct {
	id  int64
	row int32 // of its projection
	// ids, stream, eventType and text are the filter.
	ids                     sql.NullString
	stream, eventType, text sql.NullString
	// limit excludes the dead letters that the other partitions have tried.
	limit, done, failed int64
	// inStream is the parked stream that is being replayed. All dead letters up to after were tried. current is the dead
	// letter whose replay began last.
	inStream sql.NullString
	after    int64
	current  sql.NullInt64
}

// readCommand returns an open command, or nil if there is none.
func readCommand(ctx context.Context, tx *sql.Tx, row int32, id int64) (*command, error) {
	c := &command{id: id, row: row}
	found, err := runOne(ctx, tx, "open_command", []any{id}, &c.ids, &c.stream, &c.eventType, &c.text, &c.limit, &c.inStream, &c.after, &c.done, &c.failed, &c.current)
	if err != nil || !found {
		return nil, err
	}
	return c, nil
}

// letterAt is a dead letter that a command may replay next.
type letterAt struct {
	id, position int64
	stream       string
}

// findLetter returns the dead letter of a statement, or nil if there is none.
func findLetter(ctx context.Context, tx *sql.Tx, statement string, args ...any) (*letterAt, error) {
	var l letterAt
	found, err := runOne(ctx, tx, statement, args, &l.id, &l.position, &l.stream)
	if err != nil || !found {
		return nil, err
	}
	return &l, nil
}

// beginNext begins the next replay of a command. If no work is left, it ends the command and returns nil. lastBegun is the
// dead letter whose replay the caller began last: its process did not crash.
func (c *command) beginNext(ctx context.Context, tx *sql.Tx, lastBegun int64) (*engine.Replay, error) {
	letter, err := c.choose(ctx, tx)
	if err != nil {
		return nil, err
	}
	if letter == nil {
		if err := execute(ctx, tx, "set_replaying", c.id, c.inStream, c.after, nil); err != nil {
			return nil, err
		}
		return nil, endReplay(ctx, tx, c.row, c.id)
	}
	if err := execute(ctx, tx, "set_replaying", c.id, c.inStream, c.after, letter.id); err != nil {
		return nil, err
	}
	// If the stream of the previous dead letter was parked meanwhile, the command continues without that dead letter.
	if c.current.Valid && c.current.Int64 != letter.id {
		if err := execute(ctx, tx, "park_again", c.row, c.current.Int64); err != nil {
			return nil, err
		}
	}
	replay := &engine.Replay{Command: c.id, DeadLetter: letter.id, Position: letter.position, Stream: letter.stream}
	_, err = runOne(ctx, tx, "begin_replay", []any{letter.id, c.id, lastBegun}, &replay.Begun, &replay.Attempts)
	return replay, err
}

// choose returns the dead letter that the command replays next, or nil if no work is left, and moves the command to it. A
// dead letter of a parked stream selects the whole stream. The stream is replayed in order, until a replay fails.
func (c *command) choose(ctx context.Context, tx *sql.Tx) (letter *letterAt, err error) {
	if c.inStream.Valid {
		var same bool
		if _, err := runOne(ctx, tx, "stream_is_replayed", []any{c.row, c.inStream, c.id}, &same); err != nil {
			return nil, err
		}
		c.inStream.Valid = same
	}
	if c.done+c.failed >= c.limit {
		return nil, nil
	}
	if c.inStream.Valid {
		letter, err = findLetter(ctx, tx, "first_of_stream", c.row, c.inStream)
		if err != nil || letter != nil {
			return letter, err
		}
		c.inStream.Valid = false
	}
	low, high, err := c.bounds(ctx, tx)
	if err != nil {
		return nil, err
	}
	letter, err = findLetter(ctx, tx, "next_dead_letter", append([]any{c.row, c.id, max(low, c.after+1), high}, c.filter()...)...)
	if err != nil || letter == nil {
		return nil, err
	}
	c.after = letter.position - 1
	parked, err := runOne(ctx, tx, "try_stream", []any{c.row, letter.stream, c.id})
	if err != nil || !parked {
		return letter, err
	}
	c.inStream = sql.NullString{String: letter.stream, Valid: true}
	return findLetter(ctx, tx, "first_of_stream", c.row, c.inStream)
}

func (c *command) filter() []any { return []any{c.ids, c.stream, c.eventType, c.text} }

// bounds returns the positions of the first and the last dead letter that the filter can select.
func (c *command) bounds(ctx context.Context, tx *sql.Tx) (low, high int64, err error) {
	if !c.ids.Valid {
		return 1, math.MaxInt64, nil
	}
	_, err = runOne(ctx, tx, "positions_of_ids", []any{c.row, c.ids}, &low, &high)
	return low, high, err
}

// endReplay ends a replay command: at its limit, after its last event, or because it was cancelled. A dead letter whose
// replay began and did not end is parked again. If a parked stream is left in the middle, its next event is blocked by no
// earlier event. The caller owns the lease or has fenced it.
func endReplay(ctx context.Context, tx *sql.Tx, row int32, id int64) error {
	var current sql.NullInt64
	var stream sql.NullString
	ended, err := runOne(ctx, tx, "end_replay", []any{id, time.Now().UnixMicro()}, &current, &stream)
	if err != nil || !ended {
		return err
	}
	if current.Valid {
		if err := execute(ctx, tx, "park_again", row, current.Int64); err != nil {
			return err
		}
	}
	if !stream.Valid {
		return nil
	}
	return execute(ctx, tx, "unblock_streams", row, list([]string{stream.String}))
}

// discard discards the dead letters of a command, ends it, and returns their number. Other events of a parked stream stay
// parked. A stream without parked events continues. The caller owns the lease or has fenced it.
func discard(ctx context.Context, tx *sql.Tx, row int32, id int64) (int64, error) {
	c, err := readCommand(ctx, tx, row, id)
	if err != nil || c == nil {
		return 0, err
	}
	low, high, err := c.bounds(ctx, tx)
	if err != nil {
		return 0, err
	}
	now := time.Now().UnixMicro()
	args := append(append([]any{row, id, low, high}, c.filter()...), now, max(c.limit, 0))
	streams, err := column[string](ctx, tx, "discard_dead_letters", args...)
	if err != nil {
		return 0, err
	}
	n := int64(len(streams))
	slices.Sort(streams)
	touched := list(slices.Compact(streams))
	for _, step := range []struct {
		statement string
		args      []any
	}{
		{"release_streams", []any{row, touched}},
		{"unblock_streams", []any{row, touched}},
		{"count_unparked", []any{row, n, 0}},
		{"end_discard", []any{id, now, n}},
	} {
		if err := execute(ctx, tx, step.statement, step.args...); err != nil {
			return 0, err
		}
	}
	return n, nil
}
