package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Rename implements engine.Store in one transaction, which waits for the transaction in progress.
func (s port) Rename(ctx context.Context, r engine.Rename) error {
	err := s.changing(ctx, r.Tenant, func(tx *sql.Tx, names rename.Names) error {
		change, err := names.Rename(r)
		if err != nil {
			return err
		}
		return s.changeNames(ctx, tx, map[string]rename.Change{r.Tenant: change})
	})
	return failed(err, "rename %s to %q", projection.ID{Tenant: r.Tenant, Name: r.From}, r.To)
}

// RenameUnused implements engine.Store. It takes the file's writer only if there is something to rename.
func (s port) RenameUnused(ctx context.Context, renames []engine.Rename) error {
	tenants := make([]string, len(renames))
	for i, r := range renames {
		tenants[i] = r.Tenant
	}
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return err
	}
	names, err := namesOf(ctx, s.readers, tenants)
	if err != nil || len(rename.Unused(renames, names, nodes)) == 0 {
		return failed(err, "rename %d projections", len(renames))
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		nodes, err := s.Nodes(ctx)
		if err != nil {
			return err
		}
		names, err := namesOf(ctx, tx, tenants)
		if err != nil {
			return err
		}
		return s.changeNames(ctx, tx, rename.Unused(renames, names, nodes))
	})
	return failed(err, "rename %d projections", len(renames))
}

// Forget implements engine.Store in one transaction.
func (s port) Forget(ctx context.Context, id projection.ID) error {
	err := s.changing(ctx, id.Tenant, func(tx *sql.Tx, names rename.Names) error {
		change, err := names.ForgetUnused(id.Tenant, id.Name)
		if err != nil || len(change.Retired) == 0 {
			return err
		}
		held, err := s.heldProjections(ctx, tx, rename.Pairs{Tenants: []string{id.Tenant}, Names: []string{id.Name}})
		if err != nil {
			return err
		}
		nodes, err := s.Nodes(ctx)
		if err != nil {
			return err
		}
		if err := rename.InUse(nodes, id, held.owners); err != nil {
			return err
		}
		if err := s.endOperationOf(ctx, tx, id, projection.ErrUnknownProjection); err != nil {
			return err
		}
		err = s.on(ctx, tx).run(func(tx store.Tx) error {
			control.DeleteProjections(tx, held.rows)
			return nil
		})
		if err != nil {
			return err
		}
		return s.changeNames(ctx, tx, map[string]rename.Change{id.Tenant: change})
	})
	return failed(err, "forget %s", id)
}

// Create implements engine.Store in one transaction.
func (s port) Create(ctx context.Context, p engine.NewProjection) error {
	err := s.changing(ctx, p.Tenant, func(tx *sql.Tx, names rename.Names) error {
		if names.Existing[p.Name] {
			return projection.ErrExists
		}
		if t, err := lookUpTenant(ctx, tx, p.Tenant); err != nil || t.state != projection.TenantActive {
			return cmp.Or(err, projection.ErrTenantArchived)
		}
		if err := execute(ctx, tx, "restore_name", p.Tenant, p.Name); err != nil {
			return err
		}
		if err := insertProjections(ctx, tx, []engine.NewProjection{p}); err != nil {
			return err
		}
		// It was not inserted if the tenant has no earlier version.
		if err := unknownProjection(ctx, tx, p.ID()); err != nil {
			return err
		}
		return s.announce(ctx, tx, engine.Notice{Control: true, Tenant: p.Tenant})
	})
	return failed(err, "create %s", projection.ID{Tenant: p.Tenant, Name: p.Name})
}

// changing calls change in a transaction, with the names of a tenant's projections.
func (s *Store) changing(ctx context.Context, tenant string, change func(tx *sql.Tx, names rename.Names) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.transact(ctx, func(tx *sql.Tx) error {
		t, err := lookUpTenant(ctx, tx, tenant)
		if err == nil && t.state == projection.TenantDropping {
			err = projection.ErrTenantDropping
		}
		if err != nil {
			return err
		}
		names, err := namesOf(ctx, tx, []string{tenant})
		if err != nil {
			return err
		}
		return change(tx, names[tenant])
	})
}

// namesOf returns the names of the projections of these tenants, except those that are being dropped.
func namesOf(ctx context.Context, q querier, tenants []string) (map[string]rename.Names, error) {
	names := make(map[string]rename.Names)
	var r engine.Retired
	err := each(ctx, q, "names_of_tenants", []any{list(tenants)}, []any{&r.Tenant, &r.Name, &r.Reason, &r.Successor}, func() error {
		rename.Add(names, r)
		return nil
	})
	return names, err
}

// changeNames carries changes of names out, each in its tenant, and notifies the nodes.
func (s *Store) changeNames(ctx context.Context, tx *sql.Tx, changes map[string]rename.Change) error {
	c, now := rename.ColumnsOf(changes), time.Now().UnixMicro()
	held, err := s.heldProjections(ctx, tx, c.Moved)
	if err != nil {
		return err
	}
	for i, name := range c.Moved.Names {
		if err := execute(ctx, tx, "rename_projection", c.Moved.Tenants[i], name, c.NewNames[i], list(held.alive)); err != nil {
			return err
		}
		if err := execute(ctx, tx, "rename_operations", c.Moved.Tenants[i], name, c.NewNames[i]); err != nil {
			return err
		}
	}
	if len(held.rows) > 0 {
		if err := execute(ctx, tx, "end_living_replays", list(held.alive)); err != nil {
			return err
		}
		if err := execute(ctx, tx, "fence_renamed", list(held.rows), list(held.dead), now); err != nil {
			return err
		}
	}
	for i, name := range c.Restored.Names {
		if err := execute(ctx, tx, "restore_name", c.Restored.Tenants[i], name); err != nil {
			return err
		}
	}
	for i, name := range c.Retired.Names {
		if err := execute(ctx, tx, "retire_name", c.Retired.Tenants[i], name, c.Reasons[i], c.Successors[i], now); err != nil {
			return err
		}
	}
	for _, tenant := range c.Tenants {
		if err := s.announce(ctx, tx, engine.Notice{Control: true, Tenant: tenant}); err != nil {
			return err
		}
	}
	return nil
}

// heldProjections are rows of projections. alive and dead are those whose owners are. owners are the living owners.
type heldProjections struct {
	rows, alive, dead []int32
	owners            []string
}

func (s *Store) heldProjections(ctx context.Context, tx *sql.Tx, of rename.Pairs) (held heldProjections, err error) {
	living, err := s.livingOwner(ctx, tx)
	if err != nil {
		return held, err
	}
	pairs := make([][2]string, len(of.Names))
	for i, name := range of.Names {
		pairs[i] = [2]string{of.Tenants[i], name}
	}
	var row int32
	var owner string
	err = each(ctx, tx, "rows_of_projections", []any{list(pairs)}, []any{&row, &owner}, func() error {
		held.rows = append(held.rows, row)
		switch owner {
		case "":
		case living:
			held.alive, held.owners = append(held.alive, row), append(held.owners, owner)
		default:
			held.dead = append(held.dead, row)
		}
		return nil
	})
	return held, err
}
