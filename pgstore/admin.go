package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Projections lists the projections of these tenants as the database knows them, sorted.
func (s port) Projections(ctx context.Context, tenants []string) ([]engine.ProjectionRow, error) {
	list, err := queryUncompiled(ctx, s.Store, func(row pgx.CollectableRow) (p engine.ProjectionRow, err error) {
		var oldest *time.Time
		var notOwned float64
		err = row.Scan(&p.ID.Tenant, &p.ID.Name, &p.ID.Partition, &p.Desired, &p.Failed, &p.Halted, &p.Skipped, &p.FailingPosition, &p.Attempts, &p.MissingObject, &p.LastError,
			&p.Owner, &p.Epoch, &p.Checkpoint, &p.Parked, &oldest, &p.OwnerAlive, &notOwned)
		if !p.OwnerAlive {
			p.NotOwned = seconds(notOwned)
		}
		if oldest != nil {
			p.OldestParked = *oldest
		}
		return p, err
	}, "projections", tenants)
	return list, failed(err, "list projections")
}

// SetWanted sets whether a projection should run or pause, and notifies its owner, wherever it is. To run clears its failure; if it
// had stopped at an event, the attempts at that event are counted anew. It returns ErrUnknownTenant or ErrUnknownProjection if
// there is none of that name.
func (s port) SetDesiredState(ctx context.Context, id projection.ID, wanted engine.DesiredState) error {
	id = engine.FullID(id)
	return s.durable(ctx, fmt.Sprintf("set the wanted state of %s", id), func(tx pgx.Tx) error {
		done, err := runOne(ctx, tx, s.control.sql("set_desired_state"), []any{id.Tenant, id.Name, id.Partition, wanted, s.control.controlChannel}, nil)
		if err == nil && !done {
			if err = s.unknown(ctx, tx, id); err == nil {
				err = projection.ErrUnknownProjection // it was made just now
			}
		}
		return err
	})
}

// unknown returns projection.ErrUnknownTenant or projection.ErrUnknownProjection where there is no such projection.
func (s *Store) unknown(ctx context.Context, q querier, id projection.ID) error {
	var tenant, found bool
	err := q.QueryRow(ctx, s.control.sql("projection_exists"), pgx.QueryExecModeExec, id.Tenant, id.Name, id.Partition).Scan(&tenant, &found)
	switch {
	case err != nil:
		return s.missing(err)
	case !tenant:
		return projection.ErrUnknownTenant
	case !found:
		return projection.ErrUnknownProjection
	}
	return nil
}

// PauseEnded reports whether nothing of a paused projection runs any more: its lease is free. A dead owner's lease is taken
// away and left free, and what is left of that owner's batches is ended. It returns projection.ErrResumed if the projection
// was resumed meanwhile.
func (s port) PauseEnded(ctx context.Context, id projection.ID) (free bool, err error) {
	id = engine.FullID(id)
	var wanted engine.DesiredState
	var taken int64
	var began time.Time
	err = s.pool.QueryRow(ctx, s.control.sql("pause_ended"), id.Tenant, id.Name, id.Partition).Scan(&wanted, &free, &taken, &began)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, projection.ErrUnknownProjection
	case err != nil:
		return false, storeFault(err)
	case wanted.Runs():
		return false, projection.ErrResumed
	}
	if taken != 0 {
		s.endLeftovers(ctx, []int64{taken}, began)
	}
	return free, nil
}

// Wanted returns what is asked of the projections of these rows, or with nil of all whose leases the node holds. Those that
// should run and have no commands are left out.
func (s port) Orders(ctx context.Context, node engine.Node, rows []int32) (map[int32]engine.Orders, error) {
	sql, of := s.control.sql("desired_states"), any(rows)
	if rows == nil {
		sql, of = s.control.sql("desired_states_of_node"), node.ID
	}
	found, _ := s.pool.Query(ctx, sql, of)
	states := make(map[int32]engine.Orders)
	var row int32
	var demand engine.Orders
	_, err := pgx.ForEachRow(found, []any{&row, &demand.Desired, &demand.HasCommands}, func() error {
		states[row] = demand
		return nil
	})
	return states, failed(err, "read wanted states")
}

// Nodes lists the nodes as the database knows them, the oldest first.
func (s port) Nodes(ctx context.Context) ([]engine.NodeRow, error) {
	rows, _ := s.pool.Query(ctx, s.control.sql("nodes"))
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n engine.NodeRow, err error) {
		var silent float64
		err = row.Scan(&n.ID, &n.Alive, &n.Draining, &n.Projections, &n.Tenants, &n.StartedAt, &n.HeartbeatAt, &silent, &n.Leases)
		n.Silent = seconds(silent)
		return n, err
	})
	return list, failed(err, "list nodes")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Abandoned counts the handlers that did not return when they were cancelled and were left to themselves.
func (s port) Abandoned() int64 { return s.abandoned.Load() }

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
