package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/millrace-go/millrace/internal/control"
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
	return control.Unknown(&controlTx{ctx: ctx, q: q}, id)
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
