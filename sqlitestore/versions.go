package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
)

// Versions implements engine.Store.
func (s port) Versions(ctx context.Context, id projection.ID, types []string) (versions.State, error) {
	id = engine.FullID(id)
	state, err := readVersions(ctx, s.readers, id, types)
	return state, failed(err, "read the versions up to %s", id)
}

// readVersions reads a version and the earlier one. types are the event types that the version selects.
func readVersions(ctx context.Context, q querier, id projection.ID, types []string) (state versions.State, err error) {
	var partitions []versions.Partition
	var p versions.Partition
	columns := []any{&p.Row, &p.Name, &p.Slots.From, &p.Slots.To, &p.Checkpoint, &p.Reached, &p.Paused, &p.Failed, &p.Parked}
	err = each(ctx, q, "versions", []any{id.Tenant, list(versions.Names(id))}, columns, func() error {
		partitions = append(partitions, p)
		return nil
	})
	if err != nil {
		return state, err
	}
	state, err = versions.Of(id, partitions)
	if errors.Is(err, projection.ErrUnknownProjection) {
		err = cmp.Or(unknownProjection(ctx, q, id), err)
	}
	if err == nil {
		_, err = runOne(ctx, q, "succeeds", []any{id.Tenant, id.Name}, &state.Succeeds, &state.Replaced)
	}
	if err != nil || !state.Missing {
		return state, err
	}
	state.Missing, err = misses(ctx, q, state, types)
	return state, err
}

// misses reports whether there are events up to the target that the version may have to handle.
func misses(ctx context.Context, q querier, state versions.State, types []string) (found bool, err error) {
	if state.Behind() > versions.MaxSearched {
		return true, nil
	}
	for _, p := range state.Lagging() {
		_, err := runOne(ctx, q, "has_events", []any{state.ID.Tenant, p.Checkpoint, state.Target(), p.Slots.From, p.Slots.To, list(types)}, &found)
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// beginVersions makes the rows of those later versions that still have none, since their tenants have no earlier ones.
func (s *Store) beginVersions(ctx context.Context, later []engine.NewProjection) error {
	if len(later) == 0 {
		return nil
	}
	missing, _, err := s.withoutRows(ctx, s.readers, later)
	if err != nil {
		return err
	}
	return engine.BeginVersions(ctx, missing, func(err error) *engine.Fault { return classify(err) }, func(p engine.NewProjection) error {
		return s.beginVersion(ctx, p)
	})
}

// beginVersion lets readers of a tenant use a version from the beginning: it retires the earlier versions, inserts the rows, and
// runs the hook, in one transaction. If the tenant has an earlier version by now, it only inserts the rows.
func (s *Store) beginVersion(ctx context.Context, p engine.NewProjection) error {
	id := p.ID()
	begins := false
	b := batchTx{store: s, id: id, what: "the beginning", timeout: p.Timeout,
		check: func(ctx context.Context, tx *sql.Tx) (err error) {
			begins = false // the transaction may run twice
			// A process of an earlier release may have created the earlier version in the meantime.
			if missing, _, err := s.withoutRows(ctx, tx, []engine.NewProjection{p}); err != nil || len(missing) == 0 {
				return err
			}
			begins, err = runOne(ctx, tx, "begin_version", []any{p.Tenant, p.Name, list(versions.Earlier(id)), time.Now().UnixMicro(), false})
			if err == nil {
				err = insertProjections(ctx, tx, []engine.NewProjection{p})
			}
			return err
		},
		change: func(context.Context, *sql.Tx) error { return nil },
	}
	return b.run(engine.WithProjection(ctx, id), func(ctx context.Context, tx *sql.Tx) error {
		if !begins || p.Swap.Run == nil {
			return nil
		}
		return p.Swap.Run(ctx, tx)
	})
}

// swap makes a version take the place of the earlier one, after the hook.
func (s *Store) swap(ctx context.Context, tx *sql.Tx, o engine.Operation, types []string) error {
	state, err := readVersions(ctx, tx, o.ID, types)
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
	if state.Earlier == "" { // it was forgotten meanwhile
		return execute(ctx, tx, "begin_version", o.ID.Tenant, o.ID.Name, list(versions.Earlier(o.ID)), time.Now().UnixMicro(), true)
	}
	_, earlier := state.Rows()
	names, err := namesOf(ctx, tx, []string{o.ID.Tenant})
	if err != nil {
		return err
	}
	replaced := engine.Retired{Tenant: o.ID.Tenant, Name: state.Earlier, Reason: engine.Replaced, Successor: o.ID.Name}
	if err := s.endOperationOf(ctx, tx, projection.ID{Tenant: o.ID.Tenant, Name: state.Earlier}, &replaced); err != nil {
		return err
	}
	return s.deleteProjections(ctx, tx, o.ID.Tenant, earlier, names[o.ID.Tenant].Replace(o.ID.Tenant, state.Earlier, o.ID.Name))
}

// dropVersion deletes the rows of a version that was not swapped in, after the hook.
func (s *Store) dropVersion(ctx context.Context, tx *sql.Tx, id projection.ID, rows []int32) error {
	var replaced bool
	if _, err := runOne(ctx, tx, "succeeds", []any{id.Tenant, id.Name}, new(bool), &replaced); err != nil {
		return err
	}
	if replaced {
		return engine.EndsOperation(projection.ErrVersionInUse)
	}
	names, err := namesOf(ctx, tx, []string{id.Tenant})
	if err != nil {
		return err
	}
	change, err := names[id.Tenant].Forget(id.Tenant, id.Name)
	if err != nil {
		return err
	}
	return s.deleteProjections(ctx, tx, id.Tenant, rows, change)
}

// deleteProjections deletes rows of a tenant's projections, and all that belongs to them, and changes names.
func (s *Store) deleteProjections(ctx context.Context, tx *sql.Tx, tenant string, rows []int32, change rename.Change) error {
	for _, deletion := range []string{"delete_commands_of", "delete_dead_letters_of", "delete_parked_streams_of", "delete_partition_leases", "delete_partitions"} {
		if err := execute(ctx, tx, deletion, list(rows)); err != nil {
			return err
		}
	}
	return s.changeNames(ctx, tx, map[string]rename.Change{tenant: change})
}
