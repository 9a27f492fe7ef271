package control

import (
	"context"
	"maps"
	"slices"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Create creates a projection whose name may be retired, and notifies the nodes. It returns projection.ErrExists if a
// projection has that name. Where the projection begins is found before the transaction, which may wait for locks. The
// projection is unknown then if the tenant was created again meanwhile, or has no earlier version. Names and states of
// the tenant change under its structural lock alone.
func (p Names) Create(ctx context.Context, n engine.NewProjection) error {
	begins, err := p.db.Begins(ctx, []engine.NewProjection{n})
	if err != nil {
		return p.wrap(err, "find where %s begins", n.ID())
	}
	err = p.db.Change(ctx, n.Tenant, func(tx store.Tx, state tenancy.State) error {
		if err := closed[state]; err != nil {
			return err
		}
		names, err := namesOf(tx, n.Tenant)
		switch {
		case err != nil:
			return err
		case names.Existing[n.Name]:
			return projection.ErrExists
		}
		tx.Exec("restore_name", n.Tenant, n.Name)
		delete(names.Retired, n.Name)
		all := map[string]rename.Names{n.Tenant: names}
		insert(tx, all, rename.Register([]engine.NewProjection{n}, all, nil).Create, begins)
		if err := Unknown(tx, n.ID()); err != nil {
			return err
		}
		tx.Notify(engine.Notice{Control: true, Tenant: n.Tenant})
		return nil
	})
	return p.wrap(err, "create %s", n.ID())
}

// Retired returns the retired ones of these names in these tenants.
func (p Names) Retired(ctx context.Context, tenants, names []string) (retired []*engine.Retired, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		retired = nil
		var r engine.Retired
		return v.Each("retired_projections", []any{tenants, names}, []any{&r.Tenant, &r.Name, &r.Reason, &r.Successor},
			func() error {
				one := r
				retired = append(retired, &one)
				return nil
			})
	})
	return retired, p.wrap(err, "list retired projections")
}

// Forget deletes a projection and all that belongs to it, and retires its name. It returns projection.ErrInUse if a
// living node registers the projection, or holds its lease. If it was forgotten already, Forget does nothing. After the
// structural lock it locks the rows of the projection and their leases, so it waits for commits of batches in progress,
// and no node claims a lease that was free.
func (p Names) Forget(ctx context.Context, id projection.ID) error {
	err := p.change(ctx, id.Tenant, func(tx store.Tx) error {
		names, err := namesOf(tx, id.Tenant)
		if err != nil {
			return err
		}
		change, err := names.ForgetUnused(id.Tenant, id.Name)
		if err != nil || len(change.Retired) == 0 {
			return err
		}
		owned, err := lockProjections(tx, []string{id.Tenant}, []string{id.Name})
		if err != nil {
			return err
		}
		nodes, err := members(tx)
		if err != nil {
			return err
		}
		if err := rename.InUse(nodes, id, owned.owners); err != nil {
			return err
		}
		if _, err := EndOperationOf(tx, id, projection.ErrUnknownProjection); err != nil {
			return err
		}
		DeleteProjections(tx, owned.rows)
		changeNames(tx, id.Tenant, change)
		owned.endBatches(tx)
		return nil
	})
	return p.wrap(err, "forget %s", id)
}

// Rename gives a projection another name, with all its versions and partitions, in one transaction. Their owners cannot
// commit any more, and the nodes are notified. The old names are retired, and names that led to them lead to the new
// ones. It returns projection.ErrExists if a projection has the new name. If the projection has it already, Rename does
// nothing. Its locks are those of Forget.
func (p Names) Rename(ctx context.Context, r engine.Rename) error {
	err := p.change(ctx, r.Tenant, func(tx store.Tx) error {
		names, err := namesOf(tx, r.Tenant)
		if err != nil {
			return err
		}
		change, err := names.Rename(r)
		if err != nil {
			return err
		}
		return moveNames(tx, map[string]rename.Change{r.Tenant: change})
	})
	return p.wrap(err, "rename %s to %q", projection.ID{Tenant: r.Tenant, Name: r.From}, r.To)
}

// RenameUnused is Rename for many tenants, in one transaction. It leaves out projections that a living node registers
// under an old name, and those that cannot be renamed. It locks nothing while there is nothing to rename. What it reads
// then is decided again under the structural locks of the tenants.
func (p Names) RenameUnused(ctx context.Context, renames []engine.Rename) error {
	tenants := make([]string, len(renames))
	for i, r := range renames {
		tenants[i] = r.Tenant
	}
	var changes map[string]rename.Change
	err := p.db.View(ctx, func(v store.View) (err error) {
		changes, err = unusedRenames(v, tenants, renames)
		return err
	})
	if err == nil && len(changes) > 0 {
		err = p.db.Tx(ctx, func(tx store.Tx) error {
			tx.Exec("limit_lock_wait", LockWait.Milliseconds(), nil)
			tx.Lock(tenants...)
			changes, err := unusedRenames(tx, tenants, renames)
			if err != nil {
				return err
			}
			return moveNames(tx, changes)
		})
	}
	return p.wrap(err, "rename %d projections", len(renames))
}

// unusedRenames returns the changes of those renames that are possible, by tenant.
func unusedRenames(v store.View, tenants []string, renames []engine.Rename) (map[string]rename.Change, error) {
	nodes, err := members(v)
	if err != nil {
		return nil, err
	}
	names, err := namesOfTenants(v, tenants)
	if err != nil {
		return nil, err
	}
	return rename.Unused(renames, names, nodes), nil
}

// moveNames carries changes of names out, each in its tenant, and notifies the nodes. Leases of renamed projections get
// free, and their owners cannot commit any more.
func moveNames(tx store.Tx, changes map[string]rename.Change) error {
	var tenants, names []string
	changed := slices.Sorted(maps.Keys(changes))
	for _, tenant := range changed {
		for _, m := range changes[tenant].Moves {
			tenants, names = append(tenants, tenant), append(names, m.From)
		}
	}
	if len(names) == 0 {
		return nil
	}
	owned, err := lockProjections(tx, tenants, names)
	if err != nil {
		return err
	}
	for _, tenant := range changed {
		for _, m := range changes[tenant].Moves {
			tx.Exec("rename_projection", tenant, m.From, m.To)
			tx.Exec("rename_operations", tenant, m.From, m.To)
		}
	}
	tx.Exec("end_living_attempts", owned.living)
	tx.Exec("end_living_replays", owned.living)
	tx.Exec("fence_renamed", owned.rows, owned.dead)
	for _, tenant := range changed {
		changeNames(tx, tenant, changes[tenant])
	}
	owned.endBatches(tx)
	return nil
}

// namesOf returns the names of a tenant's projections. The caller holds the structural lock, under which they change.
func namesOf(tx store.Tx, tenant string) (rename.Names, error) {
	names, err := namesOfTenants(tx, []string{tenant})
	return names[tenant], err
}

// namesOfTenants returns the names of the projections of these tenants, except those that are being dropped or copied.
func namesOfTenants(v store.View, tenants []string) (map[string]rename.Names, error) {
	names := make(map[string]rename.Names)
	var r engine.Retired
	err := v.Each("names_of_tenants", []any{tenants}, []any{&r.Tenant, &r.Name, &r.Reason, &r.Successor}, func() error {
		rename.Add(names, r)
		return nil
	})
	return names, err
}

// members returns the nodes, with what they register.
func members(v store.View) (nodes []engine.NodeRow, err error) {
	var n engine.NodeRow
	var filtered, filters []string
	err = v.Each("members", nil, []any{&n.ID, &n.Name, &n.Alive, &n.Projections, &n.Tenants, &filtered, &filters},
		func() error {
			n.Filters = engine.FiltersOf(filtered, filters)
			nodes = append(nodes, n)
			return nil
		})
	return nodes, err
}

// ownedRows are locked rows of projections. living and dead are those whose owners are. owners are the living owners.
type ownedRows struct {
	rows, living, dead []int32
	owners             []string
}

// lockProjections locks the rows of projections and their leases, in order. names are those of the projections in
// tenants, in pairs.
func lockProjections(tx store.Tx, tenants, names []string) (owned ownedRows, err error) {
	owned.living, owned.dead = []int32{}, []int32{} // nil would be null
	var row int32
	var owner string
	var living, dead bool
	err = tx.Each("lock_projections", []any{tenants, names}, []any{&row, &owner, &living, &dead}, func() error {
		owned.rows = append(owned.rows, row)
		switch {
		case living:
			owned.living, owned.owners = append(owned.living, row), append(owned.owners, owner)
		case dead:
			owned.dead = append(owned.dead, row)
		}
		return nil
	})
	return owned, err
}

// endBatches ends the sessions in which batches of dead owners still run.
func (o ownedRows) endBatches(tx store.Tx) {
	if len(o.dead) > 0 {
		tx.EndBatches(o.dead...)
	}
}
