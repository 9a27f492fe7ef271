package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

// Open implements transfer.Target. Copied read models, rebuilt projections and the end of the copy are one
// transaction, so each read model is copied once.
func (t copyTarget) Open(ctx context.Context, c transfer.Copy, from transfer.Tenant) error {
	return t.ofCopy(ctx, c, from.Name, func(tx pgx.Tx, tenant *Tenant) error {
		if t.readModels != nil {
			// A function that panics or ends its goroutine must not end the process.
			call := usercode.Go(func() error { return t.runStep(ctx, tx, from.Name, t.readModels) })
			<-call.Done()
			if err := call.Err(); err != nil {
				return fmt.Errorf("copy the read models: %w", err)
			}
		}
		err := t.onPlainly(ctx, tx).run(func(tx store.Tx) error {
			if len(t.rebuilt) > 0 {
				tx.Exec("rebuild_projections", from.Name, t.rebuilt)
			}
			if from.Head > 0 {
				tx.Exec("continue_positions", from.Head, tenant.quoted)
			}
			tx.Exec("open_copy", c.ID)
			return nil
		})
		if err != nil {
			return err
		}
		return t.endTenant(ctx, tx, tenant, from)
	})
}

// endTenant gives a copied tenant the state that it has in the source.
func (t copyTarget) endTenant(ctx context.Context, tx pgx.Tx, tenant *Tenant, from transfer.Tenant) error {
	var err error
	if from.State == projection.TenantArchived {
		err = t.closeEvents(ctx, tx, tenant.schema, pgerr.TenantArchived, "")
	} else {
		err = execScript(ctx, tx, inSchemas(queries.Text("open_tenant"), t.opts.Schema, tenant.schema))
	}
	if err != nil {
		return err
	}
	return t.onPlainly(ctx, tx).run(func(tx store.Tx) error {
		tx.Exec("delete_copied_parts", from.Name)
		tx.Exec("set_tenant_copy", from.Name, nil)
		control.Restore(tx, from.Name, from.State, from.Paused)
		return nil
	})
}

// Cancel implements transfer.Target. After an interruption the copy may continue, and copies the removed rows again.
func (t copyTarget) Cancel(ctx context.Context, c transfer.Copy) error {
	if err := t.exec(ctx, "cancel_copy", c.ID); err != nil {
		return err
	}
	rows, _ := t.pool.Query(ctx, t.control.sql("copy_tenants"), pgx.QueryExecModeExec, c.ID)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		err := t.ofCopy(ctx, c, name, func(tx pgx.Tx, tenant *Tenant) error {
			if _, err := tx.Exec(ctx, t.control.sql("clear_copied"), pgx.QueryExecModeExec, name); err != nil {
				return err
			}
			if err := execScript(ctx, tx, tenant.sql("clear_events")); err != nil {
				return err
			}
			return t.endTenant(ctx, tx, tenant, transfer.Tenant{Name: name, State: projection.TenantActive})
		})
		if err != nil {
			return fmt.Errorf("tenant %q: %w", name, err)
		}
	}
	return nil
}

func (t copyTarget) Forget(ctx context.Context, c transfer.Copy) error {
	return t.exec(ctx, "delete_copy", c.ID)
}

// ofCopy runs fn in a transaction that has the structural lock of a tenant, and commits it. It does nothing if the tenant
// is not part of the copy any more.
func (t copyTarget) ofCopy(ctx context.Context, c transfer.Copy, name string, fn func(tx pgx.Tx, tenant *Tenant) error) error {
	tenant, err := t.ForTenant(name)
	if err != nil {
		return err
	}
	err = t.inTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if err := execScript(ctx, tx, queries.Text("begin_migration")+"; "+t.server.unbounded); err != nil {
			return err
		}
		if _, err := tenant.lock(ctx, tx); err != nil {
			return err
		}
		if id, _, err := t.copyOf(ctx, tx, name); err != nil || id != c.ID {
			return err
		}
		return fn(tx, tenant)
	})
	return t.lacking(ctx, tenant.schema, err)
}
