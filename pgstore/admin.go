package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/projection"
)

// ProjectionRow is what the database knows of a projection.
type ProjectionRow struct {
	ID              projection.ID
	Paused          bool
	FailingPosition int64
	Attempts        int
	LastError       string
	Owner           string
	OwnerAlive      bool
	Epoch           int64
	Checkpoint      int64
	Parked          int64
	// OldestParked is when the oldest of the parked events failed first; zero where none is parked.
	OldestParked time.Time
}

// Projections lists the projections of these tenants as the database knows them, sorted.
func (s Port) Projections(ctx context.Context, tenants []string) ([]ProjectionRow, error) {
	rows, err := s.pool.Query(ctx, s.control.status, tenants)
	if err != nil {
		return nil, fmt.Errorf("list projections: %w", ownFault(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p ProjectionRow, err error) {
		var oldest *time.Time
		err = row.Scan(&p.ID.Tenant, &p.ID.Name, &p.ID.Partition, &p.Paused, &p.FailingPosition, &p.Attempts, &p.LastError,
			&p.Owner, &p.Epoch, &p.Checkpoint, &p.Parked, &oldest, &p.OwnerAlive)
		if oldest != nil {
			p.OldestParked = *oldest
		}
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("list projections: %w", ownFault(err))
	}
	return list, nil
}

// SetPaused says whether a projection is wanted to run, and tells its owner, wherever it is. It returns
// ErrUnknownProjection where there is none of that name.
func (s *Store) SetPaused(ctx context.Context, id projection.ID, paused bool) error {
	id = id.WithDefaults()
	return s.durable(ctx, fmt.Sprintf("set the wanted state of %s", id), func(tx pgx.Tx) error {
		done, err := execOne(ctx, tx, s.control.setPaused, id.Tenant, id.Name, id.Partition, paused)
		if err != nil {
			return err
		}
		if !done {
			return projection.ErrUnknownProjection
		}
		_, err = tx.Exec(ctx, notifyControl, pgx.QueryExecModeExec, s.control.controlChannel, id.Tenant)
		return err
	})
}

// Paused tells which of these leases' projections are wanted to pause.
func (s Port) Paused(ctx context.Context, rows []int32) (map[int32]bool, error) {
	found, err := s.pool.Query(ctx, s.control.paused, rows)
	if err != nil {
		return nil, fmt.Errorf("read wanted states: %w", ownFault(err))
	}
	ids, err := pgx.CollectRows(found, pgx.RowTo[int32])
	if err != nil {
		return nil, fmt.Errorf("read wanted states: %w", ownFault(err))
	}
	paused := make(map[int32]bool, len(ids))
	for _, id := range ids {
		paused[id] = true
	}
	return paused, nil
}

// DeadLetters lists the parked events of a projection behind a position, in order, at most limit of them.
func (s *Store) DeadLetters(ctx context.Context, id projection.ID, after int64, limit int) ([]projection.DeadLetter, error) {
	id = id.WithDefaults()
	rows, err := s.pool.Query(ctx, s.control.deadLetters, id.Tenant, id.Name, id.Partition, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list the dead letters of %s: %w", id, ownFault(err))
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d projection.DeadLetter, err error) {
		err = row.Scan(&d.Position, &d.Stream, &d.Version, &d.Type, &d.Error, &d.Stack, &d.Attempts, &d.FirstFailedAt, &d.LastFailedAt)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list the dead letters of %s: %w", id, ownFault(err))
	}
	return letters, nil
}

// Abandoned counts the handlers that did not return when they were cancelled and were left to themselves.
func (s Port) Abandoned() int64 { return s.abandoned.Load() }
