package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// SetDesiredState implements engine.Store. It returns projection.ErrUnknownTenant or projection.ErrUnknownProjection if
// there is no such projection.
func (s port) SetDesiredState(ctx context.Context, id projection.ID, desired engine.DesiredState) error {
	id = engine.FullID(id)
	err := s.transact(ctx, func(tx *sql.Tx) error {
		rows, err := column[int32](ctx, tx, "set_desired_state", id.Tenant, id.Name, desired)
		if err == nil && len(rows) == 0 {
			err = unknownProjection(ctx, tx, id)
		}
		for _, row := range rows {
			if err == nil {
				err = s.announce(ctx, tx, engine.Notice{Control: true, Row: row})
			}
		}
		return err
	})
	return failed(err, "set the desired state of %s", id)
}

// unknownProjection returns projection.ErrUnknownTenant, projection.ErrRetired or projection.ErrUnknownProjection if there is
// no such projection.
func unknownProjection(ctx context.Context, q querier, id projection.ID) error {
	var tenant, found bool
	retired := engine.Retired{Tenant: id.Tenant, Name: id.Name}
	_, err := runOne(ctx, q, "projection_exists", []any{id.Tenant, id.Name, id.Partition}, &tenant, &found, &retired.Reason, &retired.Successor)
	switch {
	case err != nil:
		return err
	case !tenant:
		return projection.ErrUnknownTenant
	case retired.Reason != "":
		return &retired
	case !found:
		return projection.ErrUnknownProjection
	}
	return nil
}

// PauseEnded implements engine.Store. It writes only if a dead owner has a lease.
func (s port) PauseEnded(ctx context.Context, id projection.ID) (free bool, err error) {
	id = engine.FullID(id)
	stopped, free, err := s.stopEnded(ctx, id, []string{id.Name}, nil)
	switch {
	case errors.Is(err, projection.ErrUnknownProjection), errors.Is(err, projection.ErrRetired), errors.Is(err, projection.ErrUnknownTenant):
		return false, err // not a fault of the store, which the caller would retry
	case err != nil:
		return false, failed(err, "wait for the pause of %s", id)
	case !stopped:
		return false, projection.ErrResumed
	}
	return free, nil
}

// stopEnded reports whether all partitions of projections are stopped, by an operation or, without one, by a pause, and
// whether all of their leases are free. It frees the leases of dead owners.
func (s *Store) stopEnded(ctx context.Context, id projection.ID, names []string, operation *int64) (stopped, free bool, err error) {
	stopped, free, dead, err := s.stopState(ctx, s.readers, id, names, operation)
	if err != nil || !stopped || !dead {
		return stopped, free, err
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		living, err := s.livingOwner(ctx, tx)
		if err == nil {
			err = execute(ctx, tx, "free_paused", id.Tenant, list(names), operation, living, time.Now().UnixMicro())
		}
		if err == nil {
			stopped, free, _, err = s.stopState(ctx, tx, id, names, operation)
		}
		return err
	})
	return stopped, free, err
}

// stopState reports whether all partitions of projections are stopped, whether their leases are free, and whether any has a
// dead owner.
func (s *Store) stopState(ctx context.Context, q querier, id projection.ID, names []string, operation *int64) (stopped, free, dead bool, err error) {
	living, err := s.livingOwner(ctx, q)
	if err != nil {
		return false, false, false, err
	}
	var isStopped bool
	var owner string
	partitions := 0
	stopped, free = true, true
	err = each(ctx, q, "pause_state", []any{id.Tenant, list(names), operation}, []any{&isStopped, &owner}, func() error {
		partitions++
		stopped, free, dead = stopped && isStopped, free && owner == "", dead || owner != "" && owner != living
		return nil
	})
	if err == nil && partitions == 0 {
		err = cmp.Or(unknownProjection(ctx, q, id), projection.ErrUnknownProjection)
	}
	return stopped, free, dead, err
}

func (s port) Retired(ctx context.Context, tenants, names []string) (retired []*engine.Retired, err error) {
	var r engine.Retired
	err = each(ctx, s.readers, "retired_projections", []any{list(tenants), list(names)}, []any{&r.Tenant, &r.Name, &r.Reason, &r.Successor}, func() error {
		one := r
		retired = append(retired, &one)
		return nil
	})
	return retired, failed(err, "list retired projections")
}

func (s port) Orders(ctx context.Context, node engine.Node, rows []int32) (map[int32]engine.Orders, error) {
	owner := ""
	if rows == nil {
		owner = node.ID
	}
	states := make(map[int32]engine.Orders)
	var row int32
	var state engine.Orders
	err := each(ctx, s.readers, "orders", []any{list(rows), owner}, []any{&row, &state.Desired, &state.HasCommands}, func() error {
		states[row] = state
		return nil
	})
	return states, failed(err, "read desired states")
}
