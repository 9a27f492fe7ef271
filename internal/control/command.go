package control

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Insert inserts a command durably, with a part for each partition, and notifies the owners of the leases. It returns
// tenancy.ErrUnknown or projection.ErrUnknownProjection if there is no such projection.
func (p Letters) Insert(ctx context.Context, id projection.ID, kind engine.CommandKind,
	filter projection.DeadLetterFilter, limit int) (command int64, err error) {
	err = p.db.Tx(ctx, func(tx store.Tx) error {
		tx.Lock(id.Tenant)
		rows, err := column[int32](tx, "letter_projections", id.Tenant, id.Name, id.Partition)
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			return cmp.Or(Unknown(tx, id), projection.ErrUnknownProjection)
		}
		tx.Exec("delete_old_commands", rows)
		if _, err := tx.One("insert_command", commandArgs(nil, rows[:1], kind, filter, limit), &command); err != nil {
			return err
		}
		if filter.OutOfOrder {
			tx.Exec("allow_out_of_order", command)
		}
		if len(rows) > 1 {
			tx.Exec("insert_command", commandArgs(&command, rows[1:], kind, filter, limit)...)
		}
		for _, row := range rows {
			tx.Notify(commanded(row))
		}
		return nil
	})
	return command, p.wrap(err, "insert the command")
}

// commandArgs returns the arguments of insert_command.sql. root is the first row of the command, nil in that row.
func commandArgs(root *int64, rows []int32, kind engine.CommandKind, f projection.DeadLetterFilter, limit int) []any {
	return append(append([]any{root, rows, string(kind)}, filterArgs(f)...), limit)
}

// commanded is the notice that a projection has commands.
func commanded(row int32) engine.Notice {
	return engine.Notice{Control: true, Row: row, Commanded: true}
}

// Cancel ends a command, as far as that needs no owner of a lease, notifies the owners, and returns the parts.
func (p Letters) Cancel(ctx context.Context, id projection.ID, command int64) (parts []engine.CommandPart, err error) {
	err = p.db.Tx(ctx, func(tx store.Tx) error {
		tx.Exec("lock_command", command)
		var row int32
		var ended bool
		var open []int32
		err := tx.Each("cancel_command", []any{command, id.Tenant, id.Name}, []any{&row, &ended}, func() error {
			if !ended {
				open = append(open, row)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, row := range open {
			tx.Notify(commanded(row))
		}
		parts, err = readParts(tx, id, command)
		return err
	})
	return parts, p.wrap(err, "end the command")
}

// Parts returns the parts of a command, none if there is no such command.
func (p Letters) Parts(ctx context.Context, id projection.ID, command int64) (parts []engine.CommandPart, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		parts, err = readParts(v, id, command)
		return err
	})
	return parts, err
}

func readParts(v store.View, id projection.ID, command int64) (parts []engine.CommandPart, err error) {
	var p engine.CommandPart
	row := []any{&p.ID, &p.Row, &p.Ended, &p.Done, &p.Failed, &p.Refused, &p.Stream, &p.Unowned}
	err = v.Each("command_parts", []any{command, id.Tenant, id.Name}, row, func() error {
		parts = append(parts, p)
		return nil
	})
	return parts, err
}

// unownedTime bounds a command without an owner.
const unownedTime = 10 * time.Second

// RunUnowned runs a part that calls no handler, if no living node owns its lease.
func (p Letters) RunUnowned(ctx context.Context, part engine.CommandPart) error {
	_, err := p.RunIfUnowned(ctx, part.Row, part.ID)
	return err
}

// RunIfUnowned is RunUnowned, and reports whether it ran the command.
func (p Letters) RunIfUnowned(ctx context.Context, row int32, command int64) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, unownedTime)
	defer cancel()
	err = p.db.Tx(ctx, func(tx store.Tx) error {
		var kind engine.CommandKind
		free, err := tx.One("fence_unowned", []any{row, command}, &kind)
		done = free
		if err != nil || !free {
			return err
		}
		if kind == engine.ReplayCommand {
			return endReplay(tx, row, command)
		}
		_, err = Discard(tx, row, command)
		return err
	})
	return done, p.wrap(err, "run a command on dead letters without an owner")
}

// command is an open command for one projection. Nothing else changes it during the transaction that read it.
type command struct {
	id  int64
	row int32 // of its projection
	// ids, stream, eventType and text are the filter. The dead letters that it selects are between low and high.
	ids                     []int64
	stream, eventType, text *string
	low, high               int64
	// left is how many dead letters it may try, without those that the other partitions have tried.
	left int64
	// inStream is the parked stream that is being replayed. All dead letters up to after were tried. current is the
	// dead letter whose replay began last.
	inStream *string
	after    int64
	current  *int64
	// outOfOrder reports whether it may replay events whose streams have later handled events. root is its first row.
	outOfOrder bool
	root       int64
}

// openCommand locks and returns an open command, or nil if there is none.
func openCommand(tx store.Tx, row int32, id int64) (*command, error) {
	c := &command{id: id, row: row}
	tx.Exec("lock_command", id)
	found, err := tx.One("open_command", []any{id, row}, &c.ids, &c.stream, &c.eventType, &c.text, &c.left, &c.inStream,
		&c.after, &c.current,
		&c.low, &c.high, &c.outOfOrder, &c.root)
	if err != nil || !found {
		return nil, err
	}
	return c, nil
}

// letterAt is a dead letter that a command may replay next. inParked reports whether its stream is parked.
type letterAt struct {
	id, position int64
	stream       string
	inParked     bool
}

// beginNext begins the next replay of a command. If no work is left, it ends the command and returns nil. A replay that
// would be out of order does not begin, unless the command or the request allows that.
func (c *command) beginNext(tx store.Tx, lease engine.Lease, r engine.ReplayRequest) (*engine.Replay, error) {
	letter, err := c.choose(tx)
	switch {
	case err != nil:
		return nil, err
	case letter == nil:
		tx.Exec("set_replaying", c.id, c.inStream, c.after, nil)
		return nil, endReplay(tx, c.row, c.id)
	}
	// If the stream of the previous dead letter was parked meanwhile, the command continues without that dead letter.
	if c.current != nil && *c.current != letter.id {
		tx.Exec("park_again", c.row, *c.current)
	}
	replay := &engine.Replay{Command: c.id, DeadLetter: letter.id, Position: letter.position, Stream: letter.stream}
	if !c.outOfOrder && !r.AnyOrder {
		replay.OutOfOrder, err = laterHandled(tx, lease, letter, r.Types)
		if err == nil && replay.OutOfOrder {
			err = c.refuse(tx, letter)
		}
		if err != nil || replay.OutOfOrder {
			return replay, err
		}
	}
	tx.Exec("set_replaying", c.id, c.inStream, c.after, letter.id)
	tx.Later("begin_replay", []any{letter.id, c.id, r.LastBegun}, &replay.Begun, &replay.Attempts)
	return replay, nil
}

// choose returns the dead letter that the command replays next, or nil if no work is left, and moves the command to it.
// A dead letter of a parked stream selects the whole stream. The stream is replayed in order, until a replay fails.
func (c *command) choose(tx store.Tx) (*letterAt, error) {
	if c.left <= 0 {
		return nil, nil
	}
	if c.inStream != nil {
		if letter, err := c.first(tx, *c.inStream); err != nil || letter != nil {
			return letter, err
		}
		c.inStream = nil
	}
	var l letterAt
	found, err := tx.One("next_dead_letter", append([]any{c.row, c.id, max(c.low, c.after+1), c.high}, c.filter()...),
		&l.id, &l.position, &l.stream, &l.inParked)
	if err != nil || !found {
		return nil, err
	}
	c.after = l.position - 1
	if !l.inParked {
		return &l, nil
	}
	c.inStream = &l.stream
	tx.Exec("try_stream", c.row, l.stream, c.id)
	first, err := c.first(tx, l.stream)
	if err != nil || first != nil {
		return first, err
	}
	c.inStream = nil // it was released meanwhile
	return &l, nil
}

// first returns the first dead letter of a stream, or nil if there is none.
func (c *command) first(tx store.Tx, stream string) (*letterAt, error) {
	l := letterAt{stream: stream, inParked: true}
	found, err := tx.One("first_of_stream", []any{c.row, stream}, &l.id, &l.position)
	if err != nil || !found {
		return nil, err
	}
	return &l, nil
}

func (c *command) filter() []any { return []any{c.ids, c.stream, c.eventType, c.text} }

// endReplay ends a replay command: at its limit, after its last event, or because it was cancelled. A dead letter whose
// replay began and did not end is parked again. If a parked stream is left in the middle, its next event is blocked by
// no earlier event. The caller owns the lease or has fenced it.
func endReplay(tx store.Tx, row int32, id int64) error {
	var current *int64
	var stream *string
	ended, err := tx.One("end_replay", []any{id}, &current, &stream)
	if err != nil || !ended {
		return err
	}
	if current != nil {
		tx.Exec("park_again", row, *current)
	}
	if stream != nil {
		tx.Exec("unblock_streams", row, []string{*stream})
	}
	return nil
}

// Discard discards the dead letters of a command, ends it, and returns their number. Other events of a parked stream
// stay parked. A stream without parked events continues. The caller owns the lease or has fenced it.
func Discard(tx store.Tx, row int32, id int64) (int64, error) {
	c, err := openCommand(tx, row, id)
	if err != nil || c == nil {
		return 0, err
	}
	streams, err := column[string](tx, "discard_dead_letters",
		append(append([]any{row, id, c.low, c.high}, c.filter()...), max(c.left, 0))...)
	if err != nil {
		return 0, err
	}
	n := int64(len(streams))
	if n > 0 {
		slices.Sort(streams)
		streams = slices.Compact(streams)
		tx.Exec("release_streams", row, streams)
		tx.Exec("unblock_streams", row, streams)
		tx.Exec("count_unparked", row, n, 0)
	}
	tx.Exec("end_discard", id, n)
	return n, nil
}

// DiscardOf runs the open discards of these projections, whose leases the caller has locked.
func DiscardOf(tx store.Tx, rows []int32) error {
	type open struct {
		row int32
		id  int64
	}
	var commands []open
	var c open
	err := tx.Each("open_discards", []any{rows}, []any{&c.row, &c.id}, func() error {
		commands = append(commands, c)
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range commands {
		if _, err := Discard(tx, c.row, c.id); err != nil {
			return err
		}
	}
	return nil
}

// column returns the values of a statement that returns one column.
func column[T any](v store.View, statement string, args ...any) (values []T, err error) {
	var value T
	err = v.Each(statement, args, []any{&value}, func() error {
		values = append(values, value)
		return nil
	})
	return values, err
}
