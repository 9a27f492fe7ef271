package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/lifecycle"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/tenancy"
)

// DropTenant removes a tenant for ever: its events, its read models and everything else in its schema, its projections,
// checkpoints, dead letters and commands. opts.Confirm must repeat the name. The default tenant cannot be dropped.
// Other tenants are not affected. Afterwards a tenant of that name may be created again, and has nothing of the dropped
// one.
//
// The drop has two transactions. The first stops appends: they return tenancy.ErrDropping, and
// tenancy.ErrUnknown after the drop. Then DropTenant waits until no projection of the tenant runs any more.
// The second transaction removes everything. If DropTenant is interrupted in between, also by the end of the process,
// the tenant stays in the state tenancy.Dropping, and DropTenant must be called again. Both transactions wait
// for others that use the tenant's tables, as ArchiveTenant does, and the second also for reads.
//
// If objects outside of the schema depend on it, the error wraps tenancy.ErrNeeded and lists them: see
// tenancy.DropOptions. DropTenant returns tenancy.ErrUnknown if there is no such tenant. It needs the role that owns
// the tenant's schema.
func (s *Store) DropTenant(ctx context.Context, name string, opts tenancy.DropOptions) error {
	err := lifecycle.Drop(ctx, s.plane(), name, opts.Confirm,
		func() (int32, error) { return tenantChanges{s.database}.beginDrop(ctx, name, opts) },
		func(row int32) error { return tenantChanges{s.database}.endDrop(ctx, name, row, opts) })
	if err != nil {
		return err
	}
	s.followers.End(name)
	s.prepared.remove(name)
	if t, err := s.named(name); err == nil {
		s.events.reads.remove(t.sql("read_tail"))
	}
	s.log.Info("tenant dropped", zap.String("tenant", name))
	return nil
}

// beginDrop commits that the tenant is being dropped. From then on it has no new events.
func (c tenantChanges) beginDrop(ctx context.Context, name string, opts tenancy.DropOptions) (row int32, err error) {
	err = c.change(ctx, name, lockWait, func(ctx context.Context, tx pgx.Tx, t lockedTenant) error {
		row = t.row
		if changes, err := control.Becomes(t.state, tenancy.Dropping); !changes {
			return err
		}
		if err := notNeeded(ctx, tx, t.schema, opts); err != nil {
			return err
		}
		// The schema, or events, may have been dropped by hand.
		var exists bool
		if err := tx.QueryRow(ctx, queries.Text("table_exists"), pgx.QueryExecModeExec, t.schema,
			"events").Scan(&exists); err != nil {
			return err
		}
		if exists {
			if err := t.closeEvents(ctx, tx, pgerr.TenantDropping); err != nil {
				return err
			}
		}
		return t.setState(ctx, tx, tenancy.Dropping)
	})
	return row, err
}

// endDrop removes everything of the tenant with that id, of which nothing runs any more.
func (c tenantChanges) endDrop(ctx context.Context, name string, id int32, opts tenancy.DropOptions) error {
	return c.change(ctx, name, dropLockWait, func(ctx context.Context, tx pgx.Tx, t lockedTenant) error {
		if t.row != id {
			return nil // it was created again
		}
		if err := lockTables(ctx, tx, t.schema); err != nil {
			return err
		}
		if err := notNeeded(ctx, tx, t.schema, opts); err != nil {
			return err
		}
		if err := execScript(ctx, tx, t.sql("drop_schema")); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, c.control.sql("delete_tenant"), pgx.QueryExecModeExec, name, c.control.controlChannel)
		return err
	})
}

// lockTables locks the tables of a schema, as far as the role may, so that nothing new depends on them.
func lockTables(ctx context.Context, tx pgx.Tx, schema string) error {
	rows, _ := tx.Query(ctx, queries.Text("lockable_tables"), pgx.QueryExecModeExec, schema)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		return err
	}
	return execScript(ctx, tx, sqltext.Fill(queries.Text("lock_tables"), "{tables}", strings.Join(tables, ", ")))
}

// notNeeded returns tenancy.ErrNeeded if objects outside of the schema depend on it and are not to be dropped with it.
func notNeeded(ctx context.Context, tx pgx.Tx, schema string, opts tenancy.DropOptions) error {
	if opts.Dependents {
		return nil
	}
	rows, _ := tx.Query(ctx, queries.Text("tenant_dependents"), pgx.QueryExecModeExec, schema)
	dependents, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(dependents) > 0 {
		err = fmt.Errorf("%w: %s", tenancy.ErrNeeded, listed(dependents))
	}
	return err
}

// listed returns the first of many names.
func listed(names []string) string {
	const most = 20
	if rest := len(names) - most; rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), rest)
	}
	return strings.Join(names, ", ")
}
