package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Rename implements engine.Store. It waits for commits in progress as Repartition does, and then ends the sessions in which
// batches of dead owners still run.
func (s port) Rename(ctx context.Context, r engine.Rename) error {
	var locked lockedProjections
	err := s.changeTenant(ctx, r.Tenant, splitLockWait, func(ctx context.Context, tx pgx.Tx, t tenantRow) error {
		if err := t.changing(); err != nil {
			return err
		}
		names, err := s.namesOf(ctx, tx, []string{r.Tenant})
		if err != nil {
			return err
		}
		change, err := names[r.Tenant].Rename(r)
		if err != nil {
			return err
		}
		locked, err = s.changeNames(ctx, tx, map[string]rename.Change{r.Tenant: change})
		return err
	})
	if err == nil {
		s.endZombiesOf(ctx, locked)
	}
	return failed(err, "rename %s to %q", projection.ID{Tenant: r.Tenant, Name: r.From}, r.To)
}

// RenameUnused implements engine.Store. It gives up if it has to wait for a lock for longer than splitLockWait.
func (s port) RenameUnused(ctx context.Context, renames []engine.Rename) error {
	var locked lockedProjections
	err := s.durable(ctx, fmt.Sprintf("rename %d projections", len(renames)), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.Text("limit_lock_wait"), pgx.QueryExecModeExec, splitLockWait.Milliseconds(), nil); err != nil {
			return err
		}
		tenants := make([]string, len(renames))
		for i, r := range renames {
			tenants[i] = r.Tenant
		}
		if err := s.lockTenants(ctx, tx, tenants...); err != nil {
			return err
		}
		nodes, err := s.nodes(ctx, tx)
		if err != nil {
			return err
		}
		names, err := s.namesOf(ctx, tx, tenants)
		if err != nil {
			return err
		}
		locked, err = s.changeNames(ctx, tx, rename.Unused(renames, names, nodes))
		return err
	})
	if err == nil {
		s.endZombiesOf(ctx, locked)
	}
	return err
}

// Forget implements engine.Store. It waits as Rename does.
func (s port) Forget(ctx context.Context, id projection.ID) error {
	var locked lockedProjections
	err := s.changeTenant(ctx, id.Tenant, splitLockWait, func(ctx context.Context, tx pgx.Tx, t tenantRow) error {
		if err := t.changing(); err != nil {
			return err
		}
		names, err := s.namesOf(ctx, tx, []string{id.Tenant})
		if err != nil {
			return err
		}
		change, err := names[id.Tenant].ForgetUnused(id.Tenant, id.Name)
		if err != nil || len(change.Retired) == 0 {
			return err
		}
		if locked, err = s.lockProjections(ctx, tx, []string{id.Tenant}, []string{id.Name}); err != nil {
			return err
		}
		nodes, err := s.nodes(ctx, tx)
		if err != nil {
			return err
		}
		if err := rename.InUse(nodes, id, locked.owners); err != nil {
			return err
		}
		if err := s.endOperationOf(ctx, tx, id, projection.ErrUnknownProjection); err != nil {
			return err
		}
		err = s.on(ctx, tx).run(func(tx store.Tx) error {
			control.DeleteProjections(tx, locked.rows)
			return nil
		})
		if err == nil {
			_, err = s.changeNames(ctx, tx, map[string]rename.Change{id.Tenant: change})
		}
		return err
	})
	if err == nil {
		s.endZombiesOf(ctx, locked)
	}
	return failed(err, "forget %s", id)
}

// Create implements engine.Store. The name is retired no more in the transaction that inserts the rows.
func (s port) Create(ctx context.Context, p engine.NewProjection) error {
	id := projection.ID{Tenant: p.Tenant, Name: p.Name}
	begins, err := s.beginsOf(ctx, []engine.NewProjection{p})
	if err != nil {
		return failed(err, "find where %s begins", id)
	}
	err = s.changeTenant(ctx, p.Tenant, splitLockWait, func(ctx context.Context, tx pgx.Tx, t tenantRow) error {
		if err := t.changing(); err != nil {
			return err
		}
		if t.state != projection.TenantActive {
			return projection.ErrTenantArchived
		}
		names, err := s.namesOf(ctx, tx, []string{p.Tenant})
		if err != nil {
			return err
		}
		if names[p.Tenant].Existing[p.Name] {
			return projection.ErrExists
		}
		if _, err := tx.Exec(ctx, s.control.sql("restore_names"), []string{p.Tenant}, []string{p.Name}); err != nil {
			return err
		}
		if err := s.insertProjections(ctx, tx, []engine.NewProjection{p}, begins); err != nil {
			return err
		}
		// It was not inserted if the tenant was created again, or has no earlier version.
		err = s.unknown(ctx, tx, id)
		if err == nil {
			_, err = tx.Exec(ctx, s.control.sql("notify_tenants"), s.control.controlChannel, []string{p.Tenant})
		}
		return err
	})
	return failed(err, "create %s", id)
}

// endOperationOf ends the open operation of a projection that no longer exists, if there is one.
func (s *Store) endOperationOf(ctx context.Context, tx executor, id projection.ID, reason error) error {
	return s.on(ctx, tx).run(func(tx store.Tx) error {
		_, err := control.EndOperationOf(tx, id, reason)
		return err
	})
}

// namesOf returns the names of the projections of these tenants, except those that are being dropped or copied.
func (s *Store) namesOf(ctx context.Context, tx executor, tenants []string) (map[string]rename.Names, error) {
	names := make(map[string]rename.Names)
	rows, _ := tx.Query(ctx, s.control.sql("names_of_tenants"), tenants)
	var r engine.Retired
	_, err := pgx.ForEachRow(rows, []any{&r.Tenant, &r.Name, &r.Reason, &r.Successor}, func() error {
		rename.Add(names, r)
		return nil
	})
	return names, err
}

// changeNames carries changes of names out, each in its tenant, and notifies the nodes. It returns the renamed projections.
func (s *Store) changeNames(ctx context.Context, tx executor, changes map[string]rename.Change) (locked lockedProjections, err error) {
	c := rename.ColumnsOf(changes)
	if len(c.Moved.Tenants) > 0 {
		if locked, err = s.lockProjections(ctx, tx, c.Moved.Tenants, c.Moved.Names); err != nil {
			return locked, err
		}
		if _, err := tx.Exec(ctx, s.control.sql("rename_projections"), c.Moved.Tenants, c.Moved.Names, c.NewNames, locked.alive, locked.dead); err != nil {
			return locked, err
		}
		if _, err := tx.Exec(ctx, s.control.sql("rename_operations"), c.Moved.Tenants, c.Moved.Names, c.NewNames); err != nil {
			return locked, err
		}
	}
	var batch pgx.Batch
	batch.Queue(s.control.sql("restore_names"), c.Restored.Tenants, c.Restored.Names)
	batch.Queue(s.control.sql("retire_names"), c.Retired.Tenants, c.Retired.Names, c.Reasons, c.Successors)
	batch.Queue(s.control.sql("notify_tenants"), s.control.controlChannel, c.Tenants)
	return locked, tx.SendBatch(ctx, &batch).Close()
}

// lockedProjections are rows of projections that a transaction has locked. alive and dead are those whose owners are. owners
// are the living owners.
type lockedProjections struct {
	rows, alive, dead []int32
	owners            []string
	began             time.Time
}

func (s *Store) lockProjections(ctx context.Context, tx executor, tenants, names []string) (locked lockedProjections, err error) {
	locked.alive, locked.dead = []int32{}, []int32{} // nil would be null
	rows, _ := tx.Query(ctx, s.control.sql("lock_projections"), tenants, names)
	var row int32
	var owner string
	var alive, dead bool
	_, err = pgx.ForEachRow(rows, []any{&row, &owner, &alive, &dead, &locked.began}, func() error {
		locked.rows = append(locked.rows, row)
		switch {
		case alive:
			locked.alive, locked.owners = append(locked.alive, row), append(locked.owners, owner)
		case dead:
			locked.dead = append(locked.dead, row)
		}
		return nil
	})
	return locked, err
}

// endZombiesOf ends the sessions in which batches of dead owners of these projections still run.
func (s *Store) endZombiesOf(ctx context.Context, locked lockedProjections) {
	if len(locked.dead) == 0 {
		return
	}
	rows := make([]int64, len(locked.dead))
	for i, row := range locked.dead {
		rows[i] = int64(row)
	}
	s.endZombieBatches(ctx, rows, locked.began)
}
