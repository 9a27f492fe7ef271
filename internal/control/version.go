package control

import (
	"cmp"
	"context"
	"errors"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
)

// Versions returns how far a version of a projection is behind the earlier one. types are the event types that the
// version selects. It returns projection.ErrUnknownProjection, projection.ErrRetired or tenancy.ErrUnknown if the
// version has no rows, and projection.ErrSeveralVersions.
func (p Operations) Versions(ctx context.Context, id projection.ID, types []string) (state versions.State, err error) {
	id = engine.FullID(id)
	err = p.db.View(ctx, func(v store.View) error {
		state, err = readVersions(v, id, types)
		return err
	})
	return state, p.wrap(err, "read the versions up to %s", id)
}

// readVersions reads a version and the earlier one. types are the event types that the version selects.
func readVersions(v store.View, id projection.ID, types []string) (state versions.State, err error) {
	var partitions []versions.Partition
	var p versions.Partition
	columns := []any{
		&p.Row, &p.Name, &p.Slots.From, &p.Slots.To, &p.Checkpoint, &p.Reached, &p.Paused, &p.Failed, &p.Parked,
	}
	err = v.Each("versions", []any{id.Tenant, versions.Names(id)}, columns, func() error {
		partitions = append(partitions, p)
		return nil
	})
	if err != nil {
		return state, err
	}
	state, err = versions.Of(id, partitions)
	switch {
	case errors.Is(err, projection.ErrUnknownProjection):
		return state, cmp.Or(Unknown(v, id), err)
	case err != nil:
		return state, err
	}
	_, err = v.One("succeeds", []any{id.Tenant, id.Name}, &state.Succeeds, &state.Replaced)
	if err != nil || !state.Missing {
		return state, err
	}
	state.Missing, err = misses(v, state, types)
	return state, err
}

// misses reports whether there are events up to the target that the version may have to handle.
func misses(v store.View, state versions.State, types []string) (found bool, err error) {
	if state.Behind() > versions.MaxSearched {
		return true, nil
	}
	if len(types) == 0 {
		types = nil
	}
	for _, p := range state.Lagging() {
		_, err := v.One("has_events", []any{state.ID.Tenant,
			p.Checkpoint, state.Target(), p.Slots.From, p.Slots.To, types}, &found)
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// swap makes a version take the place of the earlier one, after the hook. The partitions of both are locked, so that
// what it reads stays until the commit.
func swap(tx store.Tx, o engine.Operation, types []string) error {
	state, err := readVersions(tx, o.ID, types)
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
		retire(tx, rename.NeverUsed(o.ID))
		return nil
	}
	_, earlier := state.Rows()
	names, err := namesOf(tx, tenant)
	if err != nil {
		return err
	}
	replaced := engine.Retired{Tenant: tenant, Name: state.Earlier, Reason: engine.Replaced, Successor: name}
	if _, err := EndOperationOf(tx, projection.ID{Tenant: tenant, Name: state.Earlier}, &replaced); err != nil {
		return err
	}
	DeleteProjections(tx, earlier)
	changeNames(tx, tenant, names.Replace(tenant, state.Earlier, name))
	return nil
}

// dropVersion deletes the rows of a version that was not swapped in, after the hook. They are locked.
func dropVersion(tx store.Tx, id projection.ID, rows []int32) error {
	var succeeds, replaced bool
	if _, err := tx.One("succeeds", []any{id.Tenant, id.Name}, &succeeds, &replaced); err != nil {
		return err
	}
	if replaced {
		return engine.EndsOperation(projection.ErrVersionInUse)
	}
	names, err := namesOf(tx, id.Tenant)
	if err != nil {
		return err
	}
	change, err := names.Forget(id.Tenant, id.Name)
	if err != nil {
		return err
	}
	DeleteProjections(tx, rows)
	changeNames(tx, id.Tenant, change)
	return nil
}

// DeleteProjections deletes rows of projections, their leases, and all that belongs to them. Their owners cannot commit
// any more. The caller has locked the rows, so that nothing is inserted for them meanwhile.
func DeleteProjections(tx store.Tx, rows []int32) {
	tx.Exec("delete_commands_of", rows)
	tx.Exec("delete_dead_letters_of", rows)
	tx.Exec("delete_parked_streams_of", rows)
	tx.Exec("delete_partition_leases", rows)
	tx.Exec("delete_partitions", rows)
}

// changeNames retires and restores names of a tenant, and notifies the nodes.
func changeNames(tx store.Tx, tenant string, change rename.Change) {
	for _, name := range change.Restored {
		tx.Exec("restore_name", tenant, name)
	}
	retire(tx, change.Retired)
	tx.Notify(engine.Notice{Control: true, Tenant: tenant})
}

func retire(tx store.Tx, names []*engine.Retired) {
	for _, r := range names {
		tx.Exec("retire_name", r.Tenant, r.Name, string(r.Reason), r.Successor)
	}
}
