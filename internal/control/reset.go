package control

import (
	"cmp"
	"context"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/resplit"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Reset sets the checkpoints of all partitions of a projection in one transaction, and notifies the nodes. Previous
// owners cannot commit any more. It forgets what the projection knows about events, and resolves the dead letters above
// the position. It returns projection.ErrOperationOpen if the projection has an open operation, and
// projection.ErrDelivers. Its locks are the structural lock of the tenant, under which partitions and operations
// change, and those of all rows of the projection and their leases. So it waits for commits of batches in progress, and
// what it reads then stays until its own commit. The new epoch ends the batches that run.
func (p Operations) Reset(ctx context.Context, r engine.Reset) (result engine.ResetResult, err error) {
	r.ID = engine.FullID(r.ID)
	err = p.change(ctx, r.ID.Tenant, func(tx store.Tx) error {
		if r.Incarnation != 0 {
			tx.Exec("check_incarnation", int64(r.Incarnation))
		}
		all, err := lockForReset(tx, r)
		if err != nil {
			return err
		}
		return all.reset(tx, r.ID.Tenant, r.Position, &result)
	})
	return result, p.wrap(err, "reset %s to %d", r.ID, r.Position)
}

// Delivers reports whether the handler of a projection worked outside of a transaction when a node claimed it last.
func (p Operations) Delivers(ctx context.Context, id projection.ID) (delivers bool, err error) {
	id = engine.FullID(id)
	err = p.db.View(ctx, func(v store.View) error {
		_, err := v.One("delivers", []any{id.Tenant, id.Name}, &delivers)
		return err
	})
	return delivers, p.wrap(err, "find out whether %s delivers", id)
}

// lockForReset locks all partitions of a projection. It returns an error if the projection must not be reset.
func lockForReset(tx store.Tx, r engine.Reset) (partitions, error) {
	all, err := lockPartitions(tx, r.ID.Tenant, r.ID.Name)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, cmp.Or(Unknown(tx, r.ID), projection.ErrUnknownProjection)
	case all.deliver() && !r.Redeliver:
		return nil, projection.ErrDelivers
	}
	return all, all.noOperation(tx, r.ID)
}

// noOperation returns projection.ErrOperationOpen if an operation of the projection is open, or holds it.
func (all partitions) noOperation(v store.View, id projection.ID) error {
	for _, l := range all {
		if l.heldBy == 0 {
			continue
		}
		open, err := ReadOperation(v, "operation", l.heldBy)
		if err != nil {
			return err
		}
		return engine.OperationOpen(open)
	}
	return refuseOpen(v, id)
}

// reset sets the checkpoints to a position. What the partitions know about events above it is forgotten, and their dead
// letters are resolved.
func (all partitions) reset(tx store.Tx, tenant string, position int64, result *engine.ResetResult) error {
	*result = engine.ResetResult{Lowest: all.lowest(), Position: position}
	for _, l := range all {
		result.Highest = max(result.Highest, l.Checkpoint)
	}
	if position < result.Highest {
		if _, err := tx.One("head_of_tenant", []any{tenant}, &result.Head); err != nil {
			return err
		}
	}
	rows := all.rows()
	tx.Later("count_parked_above", []any{rows, position}, &result.Resolved)
	tx.Exec("resolve_above", rows, position)
	result.Epoch = all.taken(tx, tenant, func(epoch int64) {
		tx.Exec("reset_projections", rows, position, result.Head)
		tx.Exec("reset_leases", rows, position, epoch)
	})
	return nil
}

// taken takes the partitions away from their owners, after dead letters of them have ended: change sets their
// checkpoints and their new epoch, which taken returns. In the end it ends the sessions in which batches of dead owners
// still run.
func (all partitions) taken(tx store.Tx, tenant string, change func(epoch int64)) (epoch int64) {
	var living, dead []int32
	for _, l := range all {
		epoch = max(epoch, l.epoch+1)
		switch l.Owner {
		case resplit.LivingOwner:
			living = append(living, l.Row)
		case resplit.DeadOwner:
			dead = append(dead, l.Row)
		}
	}
	rows := all.rows()
	tx.Exec("end_living_replays", living)
	tx.Exec("release_all_streams", rows)
	tx.Exec("count_parked", rows)
	change(epoch)
	tx.Notify(engine.Notice{Control: true, Tenant: tenant})
	if len(dead) > 0 {
		tx.EndBatches(dead...)
	}
	return epoch
}
