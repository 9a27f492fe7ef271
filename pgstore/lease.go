package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/projection"
)

// Ensure makes the rows of the projections for each tenant where they are missing.
func (s Port) Ensure(ctx context.Context, tenants, names []string) error {
	return s.durable(ctx, "register projections", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.control.ensure, tenants, names)
		return err
	})
}

// Claim takes up to limit leases of the node's projections that are free or whose owner's heartbeat ran out, and raises
// their epochs. It commits synchronously and waits for nobody.
func (s Port) Claim(ctx context.Context, node projection.Node, tenants []string, limit int) (leases []projection.Lease, err error) {
	err = s.durable(ctx, "claim leases", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.control.claim, node.ID, node.Projections, tenants, limit)
		if err != nil {
			return err
		}
		leases, err = pgx.CollectRows(rows, leaseFrom)
		return err
	})
	return leases, err
}

// Owned returns all leases that the node holds, also those of a claim whose answer was lost.
func (s Port) Owned(ctx context.Context, node projection.Node) ([]projection.Lease, error) {
	rows, err := s.pool.Query(ctx, s.control.owned, node.ID)
	if err != nil {
		return nil, fmt.Errorf("list owned leases: %w", ownFault(err))
	}
	leases, err := pgx.CollectRows(rows, leaseFrom)
	if err != nil {
		return nil, fmt.Errorf("list owned leases: %w", ownFault(err))
	}
	return leases, nil
}

func leaseFrom(row pgx.CollectableRow) (l projection.Lease, err error) {
	err = row.Scan(&l.Row, &l.ID.Tenant, &l.ID.Name, &l.ID.Partition, &l.Owner, &l.Epoch, &l.Checkpoint, &l.Unclean,
		&l.Paused, &l.Attempts, &l.FailingPosition)
	return l, err
}

// Reload reads the lease anew. It returns ErrLeaseLost where the owner and epoch of lease no longer hold it.
func (s Port) Reload(ctx context.Context, lease projection.Lease) (projection.Lease, error) {
	rows, err := s.pool.Query(ctx, s.control.reload, lease.Row)
	if err != nil {
		return projection.Lease{}, fmt.Errorf("reload the lease of %s: %w", lease.ID, ownFault(err))
	}
	now, err := pgx.CollectExactlyOneRow(rows, leaseFrom)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return projection.Lease{}, fmt.Errorf("reload the lease of %s: the projection was removed: %w", lease.ID, projection.ErrLeaseLost)
	case err != nil:
		return projection.Lease{}, fmt.Errorf("reload the lease of %s: %w", lease.ID, ownFault(err))
	case now.Owner != lease.Owner || now.Epoch != lease.Epoch:
		return projection.Lease{}, fmt.Errorf("reload the lease of %s: %q holds it under epoch %d: %w", lease.ID, now.Owner, now.Epoch, projection.ErrLeaseLost)
	}
	return now, nil
}

// Release gives leases back. Those that are no longer held are passed over.
func (s Port) Release(ctx context.Context, advances []projection.Advance) error {
	if len(advances) == 0 {
		return nil
	}
	owner, args := advanceArgs(advances)
	return s.durable(ctx, "release leases", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.control.release, append(args, owner)...)
		return err
	})
}

// Advance moves checkpoints over events that do not concern their projections, all in one statement, and returns the
// rows that moved. It need not be durable: what a crash takes back is only passed over again.
func (s Port) Advance(ctx context.Context, advances []projection.Advance) (map[int32]bool, error) {
	moved := make(map[int32]bool, len(advances))
	if len(advances) == 0 {
		return moved, nil
	}
	owner, args := advanceArgs(advances)
	rows, err := s.pool.Query(ctx, s.control.advanceMany, append(args, owner)...)
	if err != nil {
		return nil, fmt.Errorf("advance checkpoints: %w", ownFault(err))
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil, fmt.Errorf("advance checkpoints: %w", ownFault(err))
	}
	for _, id := range ids {
		moved[id] = true
	}
	return moved, nil
}

// advanceArgs lays advances out as the arrays that release and advance_many take, and names their owner, which is the
// same for all.
func advanceArgs(advances []projection.Advance) (owner string, args []any) {
	n := len(advances)
	ids, epochs, olds, news := make([]int32, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, a := range advances {
		ids[i], epochs[i], olds[i], news[i] = a.Lease.Row, a.Lease.Epoch, a.Lease.Checkpoint, a.To
	}
	return advances[0].Lease.Owner, []any{ids, epochs, olds, news}
}

// RecordFailure keeps the count of an event's failures, outside of the batch that was rolled back.
func (s Port) RecordFailure(ctx context.Context, lease projection.Lease, f projection.Failure) error {
	return s.durable(ctx, fmt.Sprintf("record a failure of %s at %d", lease.ID, f.Position), func(tx pgx.Tx) error {
		done, err := execOne(ctx, tx, s.control.recordFailure, lease.Row, lease.Owner, lease.Epoch, f.Position, f.Attempt, storable(f.Err.Error()))
		if err == nil && !done {
			err = projection.ErrLeaseLost
		}
		return err
	})
}

// Park writes the dead letter and advances the checkpoint over its event, both or neither, under the lease's fence.
func (s Port) Park(ctx context.Context, lease projection.Lease, letter projection.DeadLetter) error {
	batch := newBatchTx(s.Store, lease, letter.Position, batchOptions{deadline: 10 * time.Second})
	err := batch.run(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.control.park, lease.Row, letter.Position, letter.Stream, letter.Version, letter.Type,
			storable(letter.Error), storable(letter.Stack), letter.Attempts)
		return err
	})
	if err != nil {
		return fmt.Errorf("park position %d of %s: %w", letter.Position, lease.ID, ownFault(err))
	}
	return nil
}
