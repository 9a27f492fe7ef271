package control

import (
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// laterHandled reports whether the holder of a lease has handled a later event of the dead letter's stream. types are
// those that the projection handles, none for all. Only the holder of the lease handles events and parks them, and the
// fence checks at the commit that there is no other one. If an earlier commit of the holder got no answer,
// lease.Checkpoint may be too low: then the replay itself is refused, and begins anew with the row.
func laterHandled(v store.View, lease engine.Lease, l *letterAt, types []string) (later bool, err error) {
	if len(types) == 0 {
		types = nil
	}
	upTo := lease.Share.HandledUpTo(l.stream, lease.Checkpoint)
	_, err = v.One("later_handled", []any{lease.ID.Tenant, l.id, upTo, types, l.inParked}, &later)
	return later, err
}

// refusedStreams is how many streams a command names of those whose replays it refused: see projection.Refused.
const refusedStreams = 10

// refuse leaves a dead letter parked, since its replay would be out of order, and counts it in the command's result.
// The automatic replayer leaves it alone from now on. If its stream is parked, the command leaves the stream, as after
// a failed replay: the events after it would be applied without it.
func (c *command) refuse(tx store.Tx, l *letterAt) error {
	tx.Must(projection.ErrLeaseLost, "refuse_replay", c.row, l.id, c.id)
	tx.Exec("leave_refused", c.id, c.after)
	var row int64
	_, err := tx.One("refused_row", []any{c.root, l.stream, refusedStreams}, &row)
	switch {
	case err != nil:
		return err
	case row == 0:
		tx.Exec("insert_refused", c.root, c.row, l.stream)
	default:
		tx.Exec("count_refused", row)
	}
	return nil
}
