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

func (s port) Projections(ctx context.Context, tenants []string) ([]engine.ProjectionRow, error) {
	list, err := queryUncompiled(ctx, s.Store, func(row pgx.CollectableRow) (p engine.ProjectionRow, err error) {
		var notOwned float64
		err = row.Scan(&p.ID.Tenant, &p.ID.Name, &p.ID.Partition, &p.Partitions, &p.Desired, &p.Tenant, &p.Failed, &p.Halted,
			&p.Skipped, &p.FailingPosition, &p.Attempts,
			&p.MissingObject, &p.LastError, &p.Owner, &p.Epoch, &p.Checkpoint, &p.Parked, orZero{&p.OldestParked}, &p.OwnerAlive, &notOwned)
		if !p.OwnerAlive {
			p.NotOwned = seconds(notOwned)
		}
		return p, err
	}, "projections", tenants)
	return list, failed(err, "list projections")
}

// SetDesiredState implements engine.Store. It returns projection.ErrUnknownTenant or projection.ErrUnknownProjection if
// there is no such projection.
func (s port) SetDesiredState(ctx context.Context, id projection.ID, desired engine.DesiredState) error {
	id = engine.FullID(id)
	return s.durable(ctx, fmt.Sprintf("set the desired state of %s", id), func(tx pgx.Tx) error {
		if err := s.lockTenants(ctx, tx, id.Tenant); err != nil {
			return err
		}
		changed, err := tx.Exec(ctx, s.control.sql("set_desired_state"), id.Tenant, id.Name, desired, s.control.controlChannel)
		if err == nil && changed.RowsAffected() == 0 {
			if err = s.unknown(ctx, tx, id); err == nil {
				err = projection.ErrUnknownProjection // it was created just now
			}
		}
		return err
	})
}

// unknown returns projection.ErrUnknownTenant or projection.ErrUnknownProjection if there is no such projection.
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

// PauseEnded implements engine.Store. An expired heartbeat alone takes the lease away, unlike in Claim, where a node
// that was cut off itself does not trust heartbeats. In Claim, that rule prevents a takeover of all leases after an
// outage of all nodes. Here no node takes over, because the projection is paused. An owner that is alive after all
// cannot commit under its old epoch. It also stopped its deliveries before the server's clock ended its lease.
func (s port) PauseEnded(ctx context.Context, id projection.ID) (free bool, err error) {
	id = engine.FullID(id)
	rows, _ := s.pool.Query(ctx, s.control.sql("pause_ended"), id.Tenant, id.Name)
	var desired engine.DesiredState
	var of int64
	var began time.Time
	var taken []int64
	partitions, isFree := 0, false
	runs := false
	free = true
	_, err = pgx.ForEachRow(rows, []any{&desired, &isFree, &of, &began}, func() error {
		partitions++
		if runs, free = runs || desired.Runs(), free && isFree; of != 0 {
			taken = append(taken, of)
		}
		return nil
	})
	switch {
	case err != nil:
		return false, storeFault(err)
	case partitions == 0:
		return false, projection.ErrUnknownProjection
	case runs:
		return false, projection.ErrResumed
	}
	if len(taken) > 0 {
		s.endZombieBatches(ctx, taken, began)
	}
	return free, nil
}

func (s port) Orders(ctx context.Context, node engine.Node, rows []int32) (map[int32]engine.Orders, error) {
	sql, of := s.control.sql("desired_states"), any(rows)
	if rows == nil {
		sql, of = s.control.sql("desired_states_of_node"), node.ID
	}
	found, _ := s.pool.Query(ctx, sql, of)
	states := make(map[int32]engine.Orders)
	var row int32
	var state engine.Orders
	_, err := pgx.ForEachRow(found, []any{&row, &state.Desired, &state.HasCommands}, func() error {
		states[row] = state
		return nil
	})
	return states, failed(err, "read desired states")
}

func (s port) Nodes(ctx context.Context) ([]engine.NodeRow, error) {
	rows, _ := s.pool.Query(ctx, s.control.sql("nodes"))
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n engine.NodeRow, err error) {
		var silent float64
		var filtered, filters []string
		err = row.Scan(&n.ID, &n.Alive, &n.Draining, &n.Projections, &n.Tenants, &filtered, &filters, &n.StartedAt, &n.HeartbeatAt, &silent, &n.Leases)
		n.Filters, n.Silent = filtersFrom(filtered, filters), seconds(silent)
		return n, err
	})
	return list, failed(err, "list nodes")
}

// OldestSnapshot implements engine.Store. It leaves out its own session.
func (s port) OldestSnapshot(ctx context.Context) (snapshot engine.Snapshot, err error) {
	var age float64
	err = s.pool.QueryRow(ctx, s.control.sql("oldest_snapshot"), pgx.QueryExecModeExec).Scan(&snapshot.PID, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return engine.Snapshot{}, nil
	}
	snapshot.Age = seconds(age)
	return snapshot, failed(err, "find the oldest snapshot")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s port) Abandoned() int64 { return s.abandoned.Load() }
