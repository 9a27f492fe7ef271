package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// Repartition implements engine.Store in one transaction. It waits for commits in progress as changeTenant does, so that
// one long commit does not block the commits of the other partitions. Then it ends the sessions in which batches of dead
// owners still run: they cannot commit any more, but may hold locks on read models.
func (s port) Repartition(ctx context.Context, id projection.ID, n int) error {
	id = engine.FullID(id)
	var r *resplit
	err := s.changeTenant(ctx, id.Tenant, splitLockWait, func(ctx context.Context, tx pgx.Tx, t tenantRow) (err error) {
		if t.state == projection.TenantDropping {
			return projection.ErrTenantDropping
		}
		r, err = s.resplit(ctx, tx, id, n)
		return err
	})
	if err == nil && len(r.dead) > 0 {
		s.endZombieBatches(ctx, r.dead, r.began)
	}
	return failed(err, "split %s into %d partitions", id, n)
}

// splitLockWait limits a wait for a lock. It is less than the server's deadlock_timeout. So if a batch and a re-split
// wait for each other, the re-split gives up first.
const splitLockWait = 500 * time.Millisecond

// resplit replaces the partitions of a projection.
type resplit struct {
	store *Store
	id    projection.ID
	// old are the partitions before, in order of their slots. alive and dead are the rows of those that have an owner.
	old   []oldPartition
	alive []int32
	dead  []int64
	began time.Time
}

// oldPartition is a partition that is replaced.
type oldPartition struct {
	partition.Part
	row        int32
	crashCount int
	skipped    int64
	halted     bool
	// failing and crashed are events that were not handled yet, zero if there is none.
	failing, crashed attempted
}

// attempted is an event whose attempts a partition counts.
type attempted struct {
	position int64
	attempts int
	// slot is -1 if the event is not in the store any more.
	slot int32
}

// newPartition is a partition that is inserted. The pointers are rows of old partitions, nil for none.
type newPartition struct {
	partition.Part
	number                   int
	crashCount               int
	skipped                  int64
	failing, crashed, halted *int32
	crashAttempts            int
}

// resplit replaces the partitions of a projection, unless it has n.
func (s *Store) resplit(ctx context.Context, tx pgx.Tx, id projection.ID, n int) (*resplit, error) {
	r := &resplit{store: s, id: id, alive: []int32{}}
	if err := r.lock(ctx, tx); err != nil {
		return nil, err
	}
	switch len(r.old) {
	case 0:
		return nil, projection.ErrUnknownProjection
	case n:
		return &resplit{}, nil
	}
	if err := r.findSlots(ctx, tx); err != nil {
		return nil, err
	}
	parts, err := r.plan(n)
	if err != nil {
		return nil, err
	}
	return r, r.replace(ctx, tx, parts)
}

// lock locks and reads the partitions.
func (r *resplit) lock(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, r.store.control.sql("lock_partitions"), r.id.Tenant, r.id.Name)
	var o oldPartition
	var from, to []int32
	var upto []int64
	var owned, dead bool
	_, err := pgx.ForEachRow(rows, []any{&o.row, &o.From, &o.To, &from, &to, &upto, &o.Checkpoint, &o.crashCount, &o.skipped, &o.halted,
		&o.failing.position, &o.failing.attempts, &o.crashed.position, &o.crashed.attempts, &owned, &dead, &r.began}, func() error {
		next := o
		next.Passed = make([]partition.Passed, len(upto))
		for i := range upto {
			next.Passed[i] = partition.Passed{Range: partition.Range{From: from[i], To: to[i]}, Position: upto[i]}
		}
		switch {
		case dead:
			r.dead = append(r.dead, int64(next.row))
			next.crashCount++
		case owned:
			// The process is alive, and this ends its attempt.
			r.alive = append(r.alive, next.row)
			next.crashed.attempts--
		}
		if next.failing.position <= next.Checkpoint {
			next.failing = attempted{}
		}
		if next.crashed.position <= next.Checkpoint || next.crashed.attempts <= 0 {
			next.crashed = attempted{}
		}
		r.old = append(r.old, next)
		return nil
	})
	slices.SortFunc(r.old, func(a, b oldPartition) int { return cmp.Compare(a.From, b.From) })
	return err
}

// findSlots reads the slots of the events that fail.
func (r *resplit) findSlots(ctx context.Context, tx pgx.Tx) error {
	var positions []int64
	for _, o := range r.old {
		for _, at := range []int64{o.failing.position, o.crashed.position} {
			if at > 0 {
				positions = append(positions, at)
			}
		}
	}
	if len(positions) == 0 {
		return nil
	}
	tenant, err := r.store.ForTenant(r.id.Tenant)
	if err != nil {
		return err
	}
	slots := make(map[int64]int32)
	rows, _ := tx.Query(ctx, tenant.sql("event_slots"), pgx.QueryExecModeExec, positions)
	var position int64
	var slot int32
	_, err = pgx.ForEachRow(rows, []any{&position, &slot}, func() error {
		slots[position] = slot
		return nil
	})
	for i := range r.old {
		for _, e := range []*attempted{&r.old[i].failing, &r.old[i].crashed} {
			if slot, found := slots[e.position]; found {
				e.slot = slot
			} else {
				e.slot = -1
			}
		}
	}
	return err
}

// plan returns the partitions that continue where the old ones are.
func (r *resplit) plan(n int) ([]newPartition, error) {
	parts := make([]partition.Part, len(r.old))
	for i, o := range r.old {
		parts[i] = o.Part
	}
	frontier, err := partition.FrontierOf(parts)
	if err != nil {
		return nil, err
	}
	var plan []newPartition
	numbers := partition.Numbers(n)
	for i, part := range frontier.Split(n) {
		next := newPartition{Part: part, number: numbers[i]}
		var failing, crashed attempted
		for _, o := range r.old {
			if !o.overlaps(part.Range) {
				continue
			}
			next.crashCount = max(next.crashCount, o.crashCount)
			if part.Contains(o.From) {
				next.skipped += o.skipped
			}
			if o.failing.first(part.Range, failing) {
				failing, next.failing = o.failing, &o.row
			}
			if o.crashed.first(part.Range, crashed) {
				crashed, next.crashed, next.crashAttempts = o.crashed, &o.row, o.crashed.attempts
			}
			if o.haltsIn(part.Range) {
				next.halted = &o.row
			}
		}
		plan = append(plan, next)
	}
	return plan, nil
}

func (o oldPartition) overlaps(r partition.Range) bool { return o.From < r.To && r.From < o.To }

// haltsIn reports whether the partition is halted at an event of the slots of r. If that event is unknown, the partition
// counts as halted in all of its slots.
func (o oldPartition) haltsIn(r partition.Range) bool {
	for _, e := range []attempted{o.failing, o.crashed} {
		if e.position > 0 && e.slot >= 0 {
			return o.halted && r.Contains(e.slot)
		}
	}
	return o.halted
}

// first reports whether the event is in the slots of r, before that of other.
func (e attempted) first(r partition.Range, other attempted) bool {
	return e.position > 0 && e.slot >= 0 && r.Contains(e.slot) && (other.position == 0 || e.position < other.position)
}

// replace inserts the new partitions, moves what belongs to the old ones, and deletes these.
func (r *resplit) replace(ctx context.Context, tx pgx.Tx, parts []newPartition) error {
	c := r.store.control
	old := make([]int32, len(r.old))
	for i, o := range r.old {
		old[i] = o.row
	}
	var insert pgx.Batch
	insert.Queue(c.sql("discard_of_partitions"), old)
	insert.Queue(c.sql("release_partition_numbers"), old)
	rows, froms, tos := make([]int32, len(parts)), make([]int32, len(parts)), make([]int32, len(parts))
	for i, p := range parts {
		froms[i], tos[i] = p.From, p.To
		insert.Queue(c.sql("insert_partition"), p.args(old[0], len(parts))...).QueryRow(func(row pgx.Row) error { return row.Scan(&rows[i]) })
	}
	if err := tx.SendBatch(ctx, &insert).Close(); err != nil {
		return fmt.Errorf("insert the partitions: %w", err)
	}
	var move pgx.Batch
	move.Queue(c.sql("continue_replays"), old, rows, froms, tos)
	move.Queue(c.sql("move_dead_letters"), old, rows, froms, r.alive)
	move.Queue(c.sql("move_parked_streams"), old, rows, froms)
	move.Queue(c.sql("mark_tried"), old, rows)
	move.Queue(c.sql("move_commands"), old, rows[0])
	move.Queue(c.sql("count_parked"), rows)
	move.Queue(c.sql("delete_partitions"), old, c.controlChannel, r.id.Tenant)
	return tx.SendBatch(ctx, &move).Close()
}

// args returns the arguments of insert_partition.sql.
func (p newPartition) args(previous int32, partitions int) []any {
	n := len(p.Passed)
	from, to, upto := make([]int32, n), make([]int32, n), make([]int64, n)
	for i, passed := range p.Passed {
		from[i], to[i], upto[i] = passed.From, passed.To, passed.Position
	}
	return []any{previous, p.number, partitions, p.From, p.To, from, to, upto, p.Checkpoint, p.crashCount, p.skipped,
		p.failing, p.crashed, p.halted, p.crashAttempts}
}
