package pgstore

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Reset implements engine.Store. It waits for commits in progress as Repartition does. Then it ends the sessions in which
// batches of dead owners still run: they cannot commit any more, but may hold locks on read models.
func (s port) Reset(ctx context.Context, r engine.Reset) (result engine.ResetResult, err error) {
	r.ID = engine.FullID(r.ID)
	var p *partitionSet
	err = s.changeTenant(ctx, r.ID.Tenant, splitLockWait, func(ctx context.Context, tx pgx.Tx, t tenantRow) (err error) {
		if err := t.changing(); err != nil {
			return err
		}
		if r.Incarnation != 0 {
			if _, err := tx.Exec(ctx, s.control.sql("check_incarnation"), int64(r.Incarnation)); err != nil {
				return err
			}
		}
		if p, err = s.lockAll(ctx, tx, r); err != nil {
			return err
		}
		result, err = p.reset(ctx, r.Position)
		return err
	})
	if err == nil && len(p.dead) > 0 {
		s.endZombieBatches(ctx, p.dead, p.began)
	}
	return result, failed(err, "reset %s to %d", r.ID, r.Position)
}

func (s port) Delivers(ctx context.Context, id projection.ID) (delivers bool, err error) {
	id = engine.FullID(id)
	_, err = runOne(ctx, s.pool, s.control.sql("delivers"), []any{id.Tenant, id.Name}, &delivers)
	return delivers, failed(s.missing(err), "find out whether %s delivers", id)
}

// lockAll locks the partitions of a projection for a reset.
func (s *Store) lockAll(ctx context.Context, q executor, r engine.Reset) (*partitionSet, error) {
	set := &partitionSet{store: s, q: q, id: r.ID}
	rows, _ := q.Query(ctx, s.control.sql("lock_all"), r.ID.Tenant, r.ID.Name)
	var row int32
	var checkpoint, epoch, heldBy, operation int64
	var living, dead, delivers, delivering bool
	_, err := pgx.ForEachRow(rows, []any{&row, &checkpoint, &epoch, &living, &dead, &delivers, &heldBy, &set.began}, func() error {
		set.Add(row, checkpoint, epoch)
		if living {
			set.living = append(set.living, row)
		}
		if dead {
			set.dead = append(set.dead, int64(row))
		}
		delivering, operation = delivering || delivers, max(operation, heldBy)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(set.Rows) == 0 {
		return nil, cmp.Or(s.unknown(ctx, q, r.ID), projection.ErrUnknownProjection)
	}
	if delivering && !r.Redeliver {
		return nil, projection.ErrDelivers
	}
	if operation == 0 {
		return set, control.AlreadyOpen(s.on(ctx, q), r.ID)
	}
	open, err := control.ReadOperation(s.on(ctx, q), "operation", operation)
	if err == nil {
		err = engine.AlreadyOpen(open)
	}
	return nil, err
}

// stillPartitions locks the partitions of an operation's projections, and returns those of its own projection. It returns
// engine.ErrNotStill unless the operation holds all of them and none has an owner.
func (s *Store) stillPartitions(ctx context.Context, q executor, o engine.Operation) (*partitionSet, error) {
	if err := control.Active(s.onPlainly(ctx, q), o.ID.Tenant); err != nil {
		return nil, err
	}
	set := &partitionSet{store: s, q: q, id: o.ID}
	rows, _ := q.Query(ctx, s.control.sql("lock_held"), o.ID.Tenant, o.Holds, o.Number, o.ID.Name)
	var row int32
	var checkpoint, epoch int64
	var still bool
	_, err := pgx.ForEachRow(rows, []any{&row, &checkpoint, &epoch, &still}, func() error {
		set.Add(row, checkpoint, epoch)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(set.Rows) == 0:
		return nil, projection.ErrUnknownProjection
	case !still:
		return nil, engine.ErrNotStill
	}
	return set, nil
}

// partitionSet are all partitions of a projection, locked in a transaction.
type partitionSet struct {
	store *Store
	q     executor
	id    projection.ID
	engine.PartitionRows
	// living are those with a living owner, dead those with a dead one.
	living []int32
	dead   []int64
	// began is when the transaction began, by the server's clock.
	began time.Time
}

// reset sets the checkpoints to a position. What the projection knows about events above it is forgotten, and their dead
// letters are resolved.
func (p *partitionSet) reset(ctx context.Context, position int64) (result engine.ResetResult, err error) {
	tenant, err := p.store.ForTenant(p.id.Tenant)
	if err != nil {
		return result, err
	}
	c := p.store.control
	result = p.ResultAt(position)
	if position < p.Highest {
		if err := p.q.QueryRow(ctx, tenant.sql("head"), pgx.QueryExecModeExec).Scan(&result.Head); err != nil {
			return result, p.store.missing(err)
		}
	}
	living := p.living
	if living == nil {
		living = []int32{}
	}
	if err := p.q.QueryRow(ctx, c.sql("reset_dead_letters"), p.Rows, position, living).Scan(&result.Resolved); err != nil {
		return result, err
	}
	if _, err := p.q.Exec(ctx, c.sql("reset_projections"), p.Rows, position, position, result.Head); err != nil {
		return result, err
	}
	_, err = p.q.Exec(ctx, c.sql("reset_leases"), p.Rows, position, c.controlChannel, p.id.Tenant, result.Epoch)
	return result, err
}

// rebuild makes the changes of a rebuild, after the hook.
func (p *partitionSet) rebuild(ctx context.Context) error {
	_, err := p.reset(ctx, 0)
	return err
}
