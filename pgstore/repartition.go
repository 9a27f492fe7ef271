package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/resplit"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Repartition implements engine.Store in one transaction. It waits for commits in progress as changeTenant does, so that
// one long commit does not block the commits of the other partitions. Then it ends the sessions in which batches of dead
// owners still run: they cannot commit any more, but may hold locks on read models.
func (s port) Repartition(ctx context.Context, id projection.ID, n int) error {
	id = engine.FullID(id)
	var r *replacement
	err := s.changeTenant(ctx, id.Tenant, splitLockWait, func(ctx context.Context, tx pgx.Tx, t tenantRow) (err error) {
		if err := t.changing(); err != nil {
			return err
		}
		r, err = s.resplit(ctx, tx, id, n)
		return err
	})
	if err == nil {
		if dead := r.dead(); len(dead) > 0 {
			s.endZombieBatches(ctx, dead, r.began)
		}
	}
	return failed(err, "split %s into %d partitions", id, n)
}

// splitLockWait limits a wait for a lock. It is less than the server's deadlock_timeout. So if a batch and a re-split
// wait for each other, the re-split gives up first.
const splitLockWait = 500 * time.Millisecond

// replacement is a re-split in its transaction.
type replacement struct {
	store *Store
	tx    pgx.Tx
	id    projection.ID
	old   resplit.Partitions
	began time.Time
}

// resplit replaces the partitions of a projection, unless it has n.
func (s *Store) resplit(ctx context.Context, tx pgx.Tx, id projection.ID, n int) (*replacement, error) {
	r := &replacement{store: s, tx: tx, id: id}
	if err := r.lock(ctx); err != nil {
		return nil, err
	}
	switch len(r.old) {
	case 0:
		return nil, cmp.Or(s.unknown(ctx, tx, id), projection.ErrUnknownProjection)
	case n:
		return &replacement{}, nil
	}
	slots, err := r.slots(ctx)
	if err != nil {
		return nil, err
	}
	parts, err := r.old.Replace(n, slots)
	if err != nil {
		return nil, err
	}
	return r, r.replace(ctx, parts)
}

// dead returns the rows of the partitions whose owners are dead.
func (r *replacement) dead() (rows []int64) {
	for _, row := range r.old.Owned(resplit.DeadOwner) {
		rows = append(rows, int64(row))
	}
	return rows
}

// lock locks and reads the partitions.
func (r *replacement) lock(ctx context.Context) error {
	rows, _ := r.tx.Query(ctx, r.store.control.sql("lock_partitions"), r.id.Tenant, r.id.Name)
	var list []resplit.Old
	var o resplit.Old
	var from, to []int32
	var upto []int64
	var owned, dead bool
	_, err := pgx.ForEachRow(rows, []any{&o.Row, &o.From, &o.To, &from, &to, &upto, &o.Checkpoint, &o.CrashCount, &o.Skipped, &o.Halted,
		&o.Failing.Position, &o.Failing.Attempts, &o.Crashed.Position, &o.Crashed.Attempts, &owned, &dead, &r.began}, func() error {
		next := o
		next.Passed = make([]partition.Passed, len(upto))
		for i := range upto {
			next.Passed[i] = partition.Passed{Range: partition.Range{From: from[i], To: to[i]}, Position: upto[i]}
		}
		switch {
		case dead:
			next.Owner = resplit.DeadOwner
		case owned:
			next.Owner = resplit.LivingOwner
		}
		list = append(list, next)
		return nil
	})
	r.old = resplit.Of(list)
	return err
}

// slots reads the slots of the events that fail.
func (r *replacement) slots(ctx context.Context) (map[int64]int32, error) {
	positions := r.old.Attempted()
	if len(positions) == 0 {
		return nil, nil
	}
	tenant, err := r.store.ForTenant(r.id.Tenant)
	if err != nil {
		return nil, err
	}
	slots := make(map[int64]int32)
	rows, _ := r.tx.Query(ctx, tenant.sql("event_slots"), pgx.QueryExecModeExec, positions)
	var position int64
	var slot int32
	_, err = pgx.ForEachRow(rows, []any{&position, &slot}, func() error {
		slots[position] = slot
		return nil
	})
	return slots, err
}

// replace inserts the new partitions, moves what belongs to the old ones, and deletes these.
func (r *replacement) replace(ctx context.Context, parts []resplit.New) error {
	c, old := r.store.control, r.old.Rows()
	if err := r.store.on(ctx, r.tx).run(func(tx store.Tx) error { return control.DiscardOf(tx, old) }); err != nil {
		return fmt.Errorf("run the open discards: %w", err)
	}
	var insert pgx.Batch
	insert.Queue(c.sql("release_partition_numbers"), old)
	rows, slots := make([]int32, len(parts)), make([]partition.Range, len(parts))
	for i, p := range parts {
		slots[i] = p.Range
		insert.Queue(c.sql("insert_partition"), partitionArgs(p, old[0], len(parts))...).QueryRow(func(row pgx.Row) error { return row.Scan(&rows[i]) })
	}
	if err := r.tx.SendBatch(ctx, &insert).Close(); err != nil {
		return fmt.Errorf("insert the partitions: %w", err)
	}
	froms := make([]int32, len(parts))
	for i, p := range parts {
		froms[i] = p.From
	}
	marks, err := r.continueReplays(ctx, rows, slots)
	if err != nil {
		return fmt.Errorf("continue the replays: %w", err)
	}
	var move pgx.Batch
	move.Queue(c.sql("move_dead_letters"), old, rows, froms, r.old.Owned(resplit.LivingOwner))
	move.Queue(c.sql("move_parked_streams"), old, rows, froms)
	marks.queue(c, &move, rows)
	move.Queue(c.sql("move_commands"), old, rows[0])
	move.Queue(c.sql("count_parked"), rows)
	move.Queue(c.sql("delete_partitions"), old, c.controlChannel, r.id.Tenant)
	return r.tx.SendBatch(ctx, &move).Close()
}

// partitionArgs returns the arguments of insert_partition.sql.
func partitionArgs(p resplit.New, previous int32, partitions int) []any {
	n := len(p.Passed)
	from, to, upto := make([]int32, n), make([]int32, n), make([]int64, n)
	for i, passed := range p.Passed {
		from[i], to[i], upto[i] = passed.From, passed.To, passed.Position
	}
	return []any{previous, p.Number, partitions, p.From, p.To, from, to, upto, p.Checkpoint, p.CrashCount, p.Skipped,
		p.Failing, p.Crashed, p.Halted, p.CrashAttempts}
}

// continueReplays inserts rows by which the open replays continue in the new partitions with these rows and slots, and
// returns what then counts as tried by them.
func (r *replacement) continueReplays(ctx context.Context, rows []int32, slots []partition.Range) (m marks, err error) {
	c := r.store.control
	found, _ := r.tx.Query(ctx, c.sql("open_replays"), r.old.Rows())
	open, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (o resplit.Replay, err error) {
		return o, row.Scan(&o.ID, &o.Root, &o.From, &o.To, &o.Stream, &o.StreamOnly)
	})
	if err != nil || len(open) == 0 {
		return m, err
	}
	list := resplit.Continue(open, slots)
	n := len(list)
	roots, parts, likes, streams, only := make([]int64, n), make([]int32, n), make([]int64, n), make([]*string, n), make([]bool, n)
	for i, next := range list {
		roots[i], parts[i], likes[i], streams[i], only[i] = next.Root, rows[next.Part], next.Like, next.Stream, next.StreamOnly
	}
	inserted, _ := r.tx.Query(ctx, c.sql("continue_replays"), roots, parts, likes, streams, only, r.old.Rows())
	ids, err := pgx.CollectRows(inserted, pgx.RowTo[int64])
	if err != nil {
		return m, err
	}
	slices.Sort(ids) // in the order of list
	for _, mark := range resplit.Marks(open, list, ids) {
		m.parts, m.streams = append(m.parts, rows[mark.Part]), append(m.streams, mark.Stream)
		m.before, m.after = append(m.before, mark.Before), append(m.after, mark.After)
	}
	return m, nil
}

// marks are the columns of resplit.Mark.
type marks struct {
	parts         []int32
	streams       []*string
	before, after []int64
}

// queue queues the statements that set the marks in the new partitions, those of single streams first.
func (m marks) queue(c controlSchema, batch *pgx.Batch, rows []int32) {
	if len(m.parts) == 0 {
		return
	}
	for _, statement := range []string{"mark_stream_tried", "mark_streams_tried", "mark_dead_letters_tried"} {
		batch.Queue(c.sql(statement), m.parts, m.streams, m.before, m.after, rows)
	}
}
