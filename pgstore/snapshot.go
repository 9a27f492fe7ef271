package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
)

// OldestSnapshot returns the transaction in this database with the oldest snapshot, other than the asking one.
func (s port) OldestSnapshot(ctx context.Context) (snapshot engine.Snapshot, err error) {
	var seconds float64
	err = s.pool.QueryRow(ctx, s.control.sql("oldest_snapshot"), pgx.QueryExecModeExec).Scan(&snapshot.PID, &seconds)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return engine.Snapshot{}, nil
	case err != nil:
		return engine.Snapshot{}, fmt.Errorf("find the oldest snapshot: %w", storeFault(err))
	}
	snapshot.Age = time.Duration(seconds * float64(time.Second))
	return snapshot, nil
}
