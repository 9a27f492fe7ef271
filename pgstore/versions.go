package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
)

// Versions implements engine.Store.
func (s port) Versions(ctx context.Context, id projection.ID, types []string) (state versions.State, err error) {
	id = engine.FullID(id)
	err = s.onConn(ctx, func(conn *pgx.Conn) (err error) {
		state, err = s.versions(ctx, conn, id, types)
		return err
	})
	return state, failed(err, "read the versions up to %s", id)
}

// versions reads a version and the earlier one. types are the event types that the version selects.
func (s *Store) versions(ctx context.Context, q querier, id projection.ID, types []string) (state versions.State, err error) {
	rows, _ := q.Query(ctx, s.control.sql("versions"), id.Tenant, versions.Names(id))
	partitions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p versions.Partition, err error) {
		return p, row.Scan(&p.Row, &p.Name, &p.Slots.From, &p.Slots.To, &p.Checkpoint, &p.Reached, &p.Paused, &p.Failed, &p.Parked)
	})
	if err != nil {
		return state, err
	}
	state, err = versions.Of(id, partitions)
	if errors.Is(err, projection.ErrUnknownProjection) {
		err = cmp.Or(s.unknown(ctx, q, id), err)
	}
	if err == nil {
		_, err = runOne(ctx, q, s.control.sql("succeeds"), []any{id.Tenant, id.Name}, &state.Succeeds, &state.Replaced)
	}
	if err != nil || !state.Missing {
		return state, err
	}
	state.Missing, err = s.misses(ctx, q, state, types)
	return state, err
}

// misses reports whether there are events up to the target that the version may have to handle.
func (s *Store) misses(ctx context.Context, q querier, state versions.State, types []string) (bool, error) {
	if state.Behind() > versions.MaxSearched {
		return true, nil
	}
	tenant, err := s.ForTenant(state.ID.Tenant)
	if err != nil {
		return false, err
	}
	if len(types) == 0 {
		types = nil
	}
	for _, p := range state.Lagging() {
		var found bool
		err := q.QueryRow(ctx, tenant.sql("has_events"), pgx.QueryExecModeExec, p.Checkpoint, state.Target(), p.Slots.From, p.Slots.To, types).Scan(&found)
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// beginVersions makes the rows of those later versions that still have none, since their tenants have no earlier ones.
func (s *Store) beginVersions(ctx context.Context, later []engine.NewProjection, begins begins) error {
	if len(later) == 0 {
		return nil
	}
	missing, _, err := s.withoutRows(ctx, s.pool, later)
	if err != nil {
		return failed(err, "list new projections")
	}
	return engine.BeginVersions(ctx, missing, func(err error) *engine.Fault { return classify(err) }, func(p engine.NewProjection) error {
		return s.beginVersion(ctx, p, begins)
	})
}

// beginVersion lets readers of a tenant use a version from the beginning: it retires the earlier versions, inserts the rows, and
// runs the hook, in one transaction. If the tenant has an earlier version by now, it only inserts the rows.
func (s *Store) beginVersion(ctx context.Context, p engine.NewProjection, at begins) error {
	id := p.ID()
	b := newTx(s, id, "the beginning", batchOptions{timeout: p.Timeout, durable: true})
	b.fence = fence{begin: "true", end: fmt.Sprintf("%s.check_transaction('%s')", s.control.quoted, b.name)}
	return b.run(engine.WithProjection(ctx, id), func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockTenants(ctx, tx, p.Tenant); err != nil {
			return err
		}
		// A node of an earlier release may have created the earlier version in the meantime.
		if missing, _, err := s.withoutRows(ctx, tx, []engine.NewProjection{p}); err != nil || len(missing) == 0 {
			return err
		}
		begins, err := tx.Exec(ctx, s.control.sql("begin_version"), p.Tenant, p.Name, versions.Earlier(id), false)
		if err == nil {
			err = s.insertProjections(ctx, tx, []engine.NewProjection{p}, at)
		}
		if err != nil || begins.RowsAffected() == 0 || p.Swap.Run == nil {
			return err
		}
		return p.Swap.Run(ctx, tx)
	})
}

// swap makes a version take the place of the earlier one, after the hook. The partitions of both are locked.
func (s *Store) swap(ctx context.Context, q executor, o engine.Operation, types []string) error {
	state, err := s.versions(ctx, q, o.ID, types)
	if err != nil || state.InUse() {
		return err
	}
	var options engine.SwapOptions
	if err := o.Decode(&options); err != nil {
		return engine.EndsOperation(err)
	}
	if err := cmp.Or(state.Ready(options.AllowParked), state.Reached()); err != nil {
		return engine.EndsOperation(err)
	}
	tenant, name := o.ID.Tenant, o.ID.Name
	if state.Earlier == "" { // it was forgotten meanwhile
		_, err := q.Exec(ctx, s.control.sql("begin_version"), tenant, name, versions.Earlier(o.ID), true)
		return err
	}
	_, earlier := state.Rows()
	names, err := s.namesOf(ctx, q, []string{tenant})
	if err != nil {
		return err
	}
	replaced := engine.Retired{Tenant: tenant, Name: state.Earlier, Reason: engine.Replaced, Successor: name}
	if err := s.endOperationOf(ctx, q, projection.ID{Tenant: tenant, Name: state.Earlier}, &replaced); err != nil {
		return err
	}
	return s.deleteProjections(ctx, q, tenant, earlier, names[tenant].Replace(tenant, state.Earlier, name))
}

// dropVersion deletes the rows of a version that was not swapped in, after the hook. They are locked.
func (s *Store) dropVersion(ctx context.Context, q executor, id projection.ID, rows []int32) error {
	var replaced bool
	if _, err := runOne(ctx, q, s.control.sql("succeeds"), []any{id.Tenant, id.Name}, nil, &replaced); err != nil {
		return err
	}
	if replaced {
		return engine.EndsOperation(projection.ErrVersionInUse)
	}
	names, err := s.namesOf(ctx, q, []string{id.Tenant})
	if err != nil {
		return err
	}
	change, err := names[id.Tenant].Forget(id.Tenant, id.Name)
	if err != nil {
		return err
	}
	return s.deleteProjections(ctx, q, id.Tenant, rows, change)
}

// deleteProjections deletes locked rows of a tenant's projections, and changes names.
func (s *Store) deleteProjections(ctx context.Context, q executor, tenant string, rows []int32, change rename.Change) error {
	if _, err := q.Exec(ctx, s.control.sql("delete_projections"), rows); err != nil {
		return err
	}
	_, err := s.changeNames(ctx, q, map[string]rename.Change{tenant: change})
	return err
}
