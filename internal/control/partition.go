package control

import (
	"context"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// change runs fn in a transaction under the structural lock of a tenant that is not being dropped or copied.
func (p Plane) change(ctx context.Context, tenant string, fn func(tx store.Tx) error) error {
	return p.db.Change(ctx, tenant, func(tx store.Tx, state projection.TenantState) error {
		if state == projection.TenantDropping || state == projection.TenantCopying {
			return closed[state]
		}
		return fn(tx)
	})
}

// partitions are rows of projections, which a transaction has locked with their leases.
type partitions []locked

type locked struct {
	row               int32
	name              string
	checkpoint, epoch int64
	// living reports whether a living node holds the lease, dead whether a dead one does.
	living, dead bool
	delivers     bool
	// heldBy is the operation for which the partition stands still, 0 for none.
	heldBy int64
}

// lockPartitions locks all partitions of projections of a tenant, and their leases, until the commit.
func lockPartitions(tx store.Tx, tenant string, names ...string) (all partitions, err error) {
	var l locked
	err = tx.Each("lock_with_leases", []any{tenant, names}, []any{&l.row, &l.name, &l.checkpoint, &l.epoch, &l.living, &l.dead, &l.delivers, &l.heldBy}, func() error {
		all = append(all, l)
		return nil
	})
	return all, err
}

func (all partitions) rows() []int32 {
	rows := make([]int32, len(all))
	for i, l := range all {
		rows[i] = l.row
	}
	return rows
}

// stillPartitions locks the partitions of an operation's projections, and returns those of its own projection. It returns
// engine.ErrNotStill unless the operation holds all of them and none has an owner. The locks keep them so until the commit.
func stillPartitions(tx store.Tx, o engine.Operation) (own partitions, err error) {
	if err := Active(tx, o.ID.Tenant); err != nil {
		return nil, err
	}
	all, err := lockPartitions(tx, o.ID.Tenant, o.Holds...)
	if err != nil {
		return nil, err
	}
	still := true
	for _, l := range all {
		still = still && l.heldBy == o.Number && !l.living && !l.dead
		if l.name == o.ID.Name {
			own = append(own, l)
		}
	}
	switch {
	case len(own) == 0:
		return nil, projection.ErrUnknownProjection
	case !still:
		return nil, engine.ErrNotStill
	}
	return own, nil
}
