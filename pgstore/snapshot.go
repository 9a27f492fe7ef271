package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Snapshot is a transaction that keeps dead rows from being cleaned up.
type Snapshot struct {
	// PID is its backend, 0 where there is none.
	PID int
	// Age is how long the transaction has been open.
	Age time.Duration
}

// OldestSnapshot returns the transaction in this database with the oldest snapshot, other than the asking one.
func (s Port) OldestSnapshot(ctx context.Context) (snapshot Snapshot, err error) {
	var seconds float64
	err = s.pool.QueryRow(ctx, s.control.oldestSnapshot, pgx.QueryExecModeExec).Scan(&snapshot.PID, &seconds)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Snapshot{}, nil
	case err != nil:
		return Snapshot{}, fmt.Errorf("find the oldest snapshot: %w", storeFault(err))
	}
	snapshot.Age = time.Duration(seconds * float64(time.Second))
	return snapshot, nil
}
