package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// checkLease returns projection.ErrLeaseLost unless the lease is held under its epoch, at any checkpoint.
func checkLease(ctx context.Context, tx *sql.Tx, lease engine.Lease) error {
	_, err := checkpointOf(ctx, tx, lease)
	return err
}

// checkFence is checkLease for a lease at its checkpoint.
func checkFence(ctx context.Context, tx *sql.Tx, lease engine.Lease) error {
	checkpoint, err := checkpointOf(ctx, tx, lease)
	if err == nil && checkpoint != lease.Checkpoint {
		err = fmt.Errorf("the checkpoint is %d, not %d: %w", checkpoint, lease.Checkpoint, projection.ErrLeaseLost)
	}
	return err
}

// checkpointOf returns the checkpoint of a lease that is held under its epoch.
func checkpointOf(ctx context.Context, tx *sql.Tx, lease engine.Lease) (checkpoint int64, err error) {
	held, err := runOne(ctx, tx, "check_lease", []any{lease.Row, lease.Owner, lease.Epoch}, &checkpoint)
	if err == nil && !held {
		err = fmt.Errorf("the lease is not held by %s under epoch %d: %w", lease.Owner, lease.Epoch,
			projection.ErrLeaseLost)
	}
	return checkpoint, err
}

// advance moves the checkpoint of a lease, under its fence.
func advance(ctx context.Context, tx *sql.Tx, lease engine.Lease, to int64) error {
	done, err := runOne(ctx, tx, "advance", []any{lease.Row, lease.Owner, lease.Epoch, lease.Checkpoint, to})
	if err == nil && !done {
		err = fmt.Errorf("the lease is not held by %s under epoch %d at %d: %w", lease.Owner, lease.Epoch,
			lease.Checkpoint, projection.ErrLeaseLost)
	}
	return err
}

// runOne runs a statement of the store that changes or returns at most one row. It scans a returned row into results,
// and reports whether there was one.
func runOne(ctx context.Context, q querier, statement string, args []any, results ...any) (bool, error) {
	if len(results) == 0 {
		result, err := q.ExecContext(ctx, queries.Text(statement), args...)
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		return n > 0, err
	}
	err := q.QueryRowContext(ctx, queries.Text(statement), args...).Scan(results...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
