package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"sort"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/resplit"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Repartition implements engine.Store in one transaction, which waits for the transaction in progress.
func (s port) Repartition(ctx context.Context, id projection.ID, n int) error {
	id = engine.FullID(id)
	err := s.ready(ctx)
	if err == nil {
		err = s.transact(ctx, func(tx *sql.Tx) error {
			t, err := lookUpTenant(ctx, tx, id.Tenant)
			if err == nil && t.state == projection.TenantDropping {
				err = projection.ErrTenantDropping
			}
			if err != nil {
				return err
			}
			return s.resplit(ctx, tx, id, t.id, n)
		})
	}
	return failed(err, "split %s into %d partitions", id, n)
}

// replacement is a re-split in its transaction.
type replacement struct {
	store  *Store
	tx     *sql.Tx
	tenant int32
	old    resplit.Partitions
	// oldRows is the JSON of the old rows. rows and slots are those of the new partitions.
	oldRows string
	rows    []int32
	slots   []partition.Range
}

// resplit replaces the partitions of a projection, unless it already has n.
func (s *Store) resplit(ctx context.Context, tx *sql.Tx, id projection.ID, tenant int32, n int) error {
	r := &replacement{store: s, tx: tx, tenant: tenant}
	if err := r.read(ctx, id.Name); err != nil {
		return err
	}
	switch len(r.old) {
	case 0:
		return cmp.Or(unknownProjection(ctx, tx, id), projection.ErrUnknownProjection)
	case n:
		return nil
	}
	slots, err := r.slotsOf(ctx, r.old.Attempted())
	if err != nil {
		return err
	}
	parts, err := r.old.Replace(n, slots)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		r.discard,
		func(ctx context.Context) error { return r.insert(ctx, parts) },
		r.endReplays,
		r.moveDeadLetters,
		r.moveParkedStreams,
		r.continueReplays,
		r.deleteOld,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return s.announce(ctx, tx, engine.Notice{Control: true, Tenant: id.Tenant})
}

// read reads the partitions.
func (r *replacement) read(ctx context.Context, name string) error {
	living, err := r.store.livingOwner(ctx, r.tx)
	if err != nil {
		return err
	}
	var old []resplit.Old
	var o resplit.Old
	var passed, owner string
	columns := []any{&o.Row, &o.From, &o.To, &passed, &o.Checkpoint, &o.CrashCount, &o.Skipped, &o.Halted,
		&o.Failing.Position, &o.Failing.Attempts, &o.Crashed.Position, &o.Crashed.Attempts, &owner}
	err = each(ctx, r.tx, "partitions_of_projection", []any{r.tenant, name}, columns, func() (err error) {
		next := o
		switch owner {
		case "":
		case living:
			next.Owner = resplit.LivingOwner
		default:
			next.Owner = resplit.DeadOwner
		}
		next.Passed, err = passedFrom(passed)
		old = append(old, next)
		return err
	})
	r.old = resplit.Of(old)
	r.oldRows = list(r.old.Rows())
	return err
}

// slotsOf returns the slots of the events at these positions.
func (r *replacement) slotsOf(ctx context.Context, positions []int64) (map[int64]int32, error) {
	slots := make(map[int64]int32)
	var position int64
	var slot int32
	err := each(ctx, r.tx, "event_slots", []any{r.tenant, list(positions)}, []any{&position, &slot}, func() error {
		slots[position] = slot
		return nil
	})
	return slots, err
}

// discard runs the open discards of the old partitions.
func (r *replacement) discard(ctx context.Context) error {
	return r.store.on(ctx, r.tx).run(func(tx store.Tx) error { return control.DiscardOf(tx, r.old.Rows()) })
}

// insert inserts the new partitions and their leases.
func (r *replacement) insert(ctx context.Context, parts []resplit.New) error {
	if err := execute(ctx, r.tx, "release_partition_numbers", r.oldRows); err != nil {
		return err
	}
	now := time.Now().UnixMicro()
	for _, p := range parts {
		var row int32
		_, err := runOne(ctx, r.tx, "insert_partition", []any{r.old[0].Row, p.Number, len(parts), p.From, p.To, passedText(p.Passed), p.Skipped,
			p.Failing, p.Crashed, p.Halted, p.CrashAttempts}, &row)
		if err == nil {
			err = execute(ctx, r.tx, "insert_lease", row, p.Checkpoint, p.CrashCount, now)
		}
		if err != nil {
			return fmt.Errorf("insert the partitions: %w", err)
		}
		r.rows, r.slots = append(r.rows, row), append(r.slots, p.Range)
	}
	return nil
}

// partOf returns the index of the new partition that has a stream.
func (r *replacement) partOf(stream string) int {
	slot := partition.Slot(stream)
	return sort.Search(len(r.slots), func(i int) bool { return r.slots[i].To > slot })
}

// endReplays ends the attempts at dead letters that living owners have begun.
func (r *replacement) endReplays(ctx context.Context) error {
	return execute(ctx, r.tx, "end_living_replays", list(r.old.Owned(resplit.LivingOwner)))
}

// moveDeadLetters moves the dead letters of the old partitions to those of their streams' slots.
func (r *replacement) moveDeadLetters(ctx context.Context) error {
	ids := make([][]int64, len(r.rows))
	var id int64
	var stream string
	err := each(ctx, r.tx, "dead_letter_streams", []any{r.oldRows}, []any{&id, &stream}, func() error {
		part := r.partOf(stream)
		ids[part] = append(ids[part], id)
		return nil
	})
	if err != nil {
		return err
	}
	return move(ctx, r, "move_dead_letters", ids)
}

// moveParkedStreams moves the parked streams of the old partitions to those of their slots.
func (r *replacement) moveParkedStreams(ctx context.Context) error {
	streams := make([][][2]any, len(r.rows))
	var row int32
	var stream string
	err := each(ctx, r.tx, "parked_streams_of_partitions", []any{r.oldRows}, []any{&row, &stream}, func() error {
		part := r.partOf(stream)
		streams[part] = append(streams[part], [2]any{row, stream})
		return nil
	})
	if err != nil {
		return err
	}
	return move(ctx, r, "move_parked_streams", streams)
}

// move moves what belongs to each of the new partitions.
func move[T any](ctx context.Context, r *replacement, statement string, to [][]T) error {
	for part, items := range to {
		if len(items) == 0 {
			continue
		}
		if err := execute(ctx, r.tx, statement, list(items), r.rows[part]); err != nil {
			return err
		}
	}
	return nil
}

// continueReplays inserts rows by which the open replays continue in the new partitions, and marks what these have tried.
func (r *replacement) continueReplays(ctx context.Context) error {
	var open []resplit.Replay
	var o resplit.Replay
	columns := []any{&o.ID, &o.Root, &o.From, &o.To, &o.Stream, &o.StreamOnly}
	err := each(ctx, r.tx, "open_replays", []any{r.oldRows}, columns, func() error {
		open = append(open, o)
		return nil
	})
	if err != nil {
		return err
	}
	next := resplit.Continue(open, r.slots)
	ids := make([]int64, len(next))
	for i, n := range next {
		if _, err := runOne(ctx, r.tx, "continue_replay", []any{n.Root, r.rows[n.Part], n.Like, n.Stream, n.StreamOnly}, &ids[i]); err != nil {
			return err
		}
	}
	for _, m := range resplit.Marks(open, next, ids) {
		if err := r.mark(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (r *replacement) mark(ctx context.Context, m resplit.Mark) error {
	row := r.rows[m.Part]
	if m.Stream != nil {
		return execute(ctx, r.tx, "mark_stream_tried", row, *m.Stream, m.Before, m.After)
	}
	if err := execute(ctx, r.tx, "mark_streams_tried", row, m.Before, m.After); err != nil {
		return err
	}
	return execute(ctx, r.tx, "mark_dead_letters_tried", row, m.Before, m.After)
}

// deleteOld moves the commands of the old partitions, and deletes the old partitions.
func (r *replacement) deleteOld(ctx context.Context) error {
	if err := execute(ctx, r.tx, "move_commands", r.oldRows, r.rows[0], time.Now().UnixMicro()); err != nil {
		return err
	}
	if err := execute(ctx, r.tx, "count_parked", list(r.rows)); err != nil {
		return err
	}
	if err := execute(ctx, r.tx, "delete_partition_leases", r.oldRows); err != nil {
		return err
	}
	return execute(ctx, r.tx, "delete_partitions", r.oldRows)
}
