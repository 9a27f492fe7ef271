package control

import (
	"context"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/resplit"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// change runs fn in a transaction under the structural lock of a tenant that is not being dropped or copied.
func (p base) change(ctx context.Context, tenant string, fn func(tx store.Tx) error) error {
	return p.db.Change(ctx, tenant, func(tx store.Tx, state tenancy.State) error {
		if err := Changing(state); err != nil {
			return err
		}
		return fn(tx)
	})
}

// partitions are rows of projections, which a transaction has locked with their leases.
type partitions []locked

type locked struct {
	resplit.Old
	name     string
	epoch    int64
	delivers bool
	// heldBy is the operation for which the partition stands still, 0 for none.
	heldBy int64
}

// lockPartitions locks all partitions of projections of a tenant, and their leases, until the commit.
func lockPartitions(tx store.Tx, tenant string, names ...string) (all partitions, err error) {
	var l locked
	var from, to []int32
	var upto []int64
	var living, dead bool
	columns := []any{&l.Row, &l.name, &l.From, &l.To, &from, &to, &upto, &l.Checkpoint, &l.epoch, &l.CrashCount,
		&l.Skipped, &l.Halted,
		&l.Failing.Position, &l.Failing.Attempts, &l.Crashed.Position, &l.Crashed.Attempts, &living, &dead, &l.delivers,
		&l.heldBy}
	err = tx.Each("lock_partitions", []any{tenant, names}, columns, func() error {
		next := l
		next.Passed = make([]partition.Passed, len(upto))
		for i := range upto {
			next.Passed[i] = partition.Passed{Range: partition.Range{From: from[i], To: to[i]}, Position: upto[i]}
		}
		switch {
		case living:
			next.Owner = resplit.LivingOwner
		case dead:
			next.Owner = resplit.DeadOwner
		}
		all = append(all, next)
		return nil
	})
	return all, err
}

// old returns the partitions as those that others replace.
func (all partitions) old() resplit.Partitions {
	old := make([]resplit.Old, len(all))
	for i, l := range all {
		old[i] = l.Old
	}
	return resplit.Of(old)
}

func (all partitions) rows() []int32 {
	rows := make([]int32, len(all))
	for i, l := range all {
		rows[i] = l.Row
	}
	return rows
}

// stillPartitions locks the partitions of an operation's projections, and returns those of its own projection. It
// returns engine.ErrNotStill unless the operation holds all of them and none has an owner. The locks keep them so until
// the commit.
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
		still = still && l.heldBy == o.Number && l.Owner == resplit.NoOwner
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
