package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
)

// OldestSnapshot implements engine.Lists. It leaves out its own session.
func (s port) OldestSnapshot(ctx context.Context) (snapshot engine.Snapshot, err error) {
	var age float64
	err = s.pool.QueryRow(ctx, s.control.sql("oldest_snapshot"), pgx.QueryExecModeExec).Scan(&snapshot.PID, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return engine.Snapshot{}, nil
	}
	snapshot.Age = seconds(age)
	return snapshot, wrap(err, "find the oldest snapshot")
}
