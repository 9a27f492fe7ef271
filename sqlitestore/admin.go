package sqlitestore

import (
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

// unknownProjection returns projection.ErrUnknownTenant or projection.ErrUnknownProjection if there is no such projection.
func unknownProjection(ctx context.Context, q querier, id projection.ID) error {
	var tenant, found bool
	_, err := runOne(ctx, q, "projection_exists", []any{id.Tenant, id.Name, id.Partition}, &tenant, &found)
	switch {
	case err != nil:
		return err
	case !tenant:
		return projection.ErrUnknownTenant
	case !found:
		return projection.ErrUnknownProjection
	}
	return nil
}

// PauseEnded implements engine.Store. It writes only if a dead owner has a lease.
func (s port) PauseEnded(ctx context.Context, id projection.ID) (free bool, err error) {
	id = engine.FullID(id)
	free, dead, err := s.pauseState(ctx, s.readers, id)
	if err == nil && dead {
		err = s.transact(ctx, func(tx *sql.Tx) error {
			living, err := s.livingOwner(ctx, tx)
			if err == nil {
				err = execute(ctx, tx, "free_paused", id.Tenant, id.Name, living, time.Now().UnixMicro())
			}
			if err == nil {
				free, _, err = s.pauseState(ctx, tx, id)
			}
			return err
		})
	}
	switch {
	case err == nil:
		return free, nil
	case errors.Is(err, projection.ErrResumed), errors.Is(err, projection.ErrUnknownProjection):
		return false, err // not a fault of the store, which the caller would retry
	}
	return false, failed(err, "wait for the pause of %s", id)
}

// pauseState reports whether the leases of a paused projection are free, and whether any has a dead owner. It returns
// projection.ErrResumed if the projection is not paused.
func (s *Store) pauseState(ctx context.Context, q querier, id projection.ID) (free, dead bool, err error) {
	living, err := s.livingOwner(ctx, q)
	if err != nil {
		return false, false, err
	}
	var desired engine.DesiredState
	var owner string
	partitions, runs := 0, false
	free = true
	err = each(ctx, q, "pause_state", []any{id.Tenant, id.Name}, []any{&desired, &owner}, func() error {
		partitions++
		runs, free, dead = runs || desired.Runs(), free && owner == "", dead || owner != "" && owner != living
		return nil
	})
	switch {
	case err != nil:
	case partitions == 0:
		err = projection.ErrUnknownProjection
	case runs:
		err = projection.ErrResumed
	}
	return free, dead, err
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
