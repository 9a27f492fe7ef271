package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

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
			err = cmp.Or(s.unknown(ctx, tx, id), projection.ErrUnknownProjection)
		}
		return err
	})
}

// unknown returns projection.ErrUnknownTenant, projection.ErrRetired or projection.ErrUnknownProjection if there is no such
// projection.
func (s *Store) unknown(ctx context.Context, q querier, id projection.ID) error {
	var tenant, found bool
	retired := engine.Retired{Tenant: id.Tenant, Name: id.Name}
	err := q.QueryRow(ctx, s.control.sql("projection_exists"), pgx.QueryExecModeExec, id.Tenant, id.Name, id.Partition).
		Scan(&tenant, &found, &retired.Reason, &retired.Successor)
	switch {
	case err != nil:
		return s.missing(err)
	case !tenant:
		return projection.ErrUnknownTenant
	case retired.Reason != "":
		return &retired
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
	stopped, free, err := s.stopEnded(ctx, id, []string{id.Name}, nil)
	if err == nil && !stopped {
		err = projection.ErrResumed
	}
	return free && err == nil, err
}

// stopEnded reports whether all partitions of projections are stopped, by an operation or, without one, by a pause, and
// whether all of their leases are free. It frees the leases of dead owners.
func (s *Store) stopEnded(ctx context.Context, id projection.ID, names []string, operation *int64) (stopped, free bool, err error) {
	rows, _ := s.pool.Query(ctx, s.control.sql("pause_ended"), id.Tenant, names, operation)
	var isStopped, isFree bool
	var of int64
	var began time.Time
	var taken []int64
	stopped, free = true, true
	partitions, err := pgx.ForEachRow(rows, []any{&isStopped, &isFree, &of, &began}, func() error {
		if stopped, free = stopped && isStopped, free && isFree; of != 0 {
			taken = append(taken, of)
		}
		return nil
	})
	switch {
	case err != nil:
		return false, false, storeFault(err)
	case partitions.RowsAffected() == 0:
		return false, false, cmp.Or(s.unknown(ctx, s.pool, id), projection.ErrUnknownProjection)
	}
	if len(taken) > 0 {
		s.endZombieBatches(ctx, taken, began)
	}
	return stopped, free, nil
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

func (s port) Retired(ctx context.Context, tenants, names []string) ([]*engine.Retired, error) {
	rows, _ := s.pool.Query(ctx, s.control.sql("retired_projections"), tenants, names)
	retired, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*engine.Retired, error) {
		var r engine.Retired
		return &r, row.Scan(&r.Tenant, &r.Name, &r.Reason, &r.Successor)
	})
	return retired, failed(err, "list retired projections")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s port) Abandoned() int64 { return s.abandoned.Load() }
