package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/guard"
)

// TenantStep creates or changes tables, indexes, functions and other objects of a tenant. tx has the search path of the
// tenant's handlers, so names without a schema refer to the tenant's. The step must not end tx or change settings that
// outlast it. It may run again after its transaction was rolled back, so it should act through tx alone. CreateTenants
// calls it concurrently for different tenants.
type TenantStep func(ctx context.Context, tx pgx.Tx, tenant string) error

// TenantSQL returns a step that executes SQL statements, separated by semicolons.
func TenantSQL(sql string) TenantStep {
	return func(ctx context.Context, tx pgx.Tx, _ string) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

func validSetup(steps []TenantStep) error {
	for i, step := range steps {
		if step == nil {
			return fmt.Errorf("Options.TenantSetup[%d] must not be nil", i)
		}
	}
	return nil
}

// setUpTenant applies the steps of Options.TenantSetup that the tenant lacks, and records them. The caller's
// transaction holds the migration lock.
func (m migrator) setUpTenant(ctx context.Context, tx pgx.Tx, name string) error {
	steps := m.opts.TenantSetup
	if len(steps) == 0 {
		return nil
	}
	var applied int
	if err := tx.QueryRow(ctx, m.control.sql("tenant_setup"), pgx.QueryExecModeExec, name).Scan(&applied); err != nil {
		return err
	}
	if applied >= len(steps) {
		return nil
	}
	for i := applied; i < len(steps); i++ {
		if err := m.runStep(ctx, tx, name, steps[i]); err != nil {
			return fmt.Errorf("step %d of Options.TenantSetup: %w", i+1, err)
		}
	}
	_, err := tx.Exec(ctx, m.control.sql("set_tenant_setup"), pgx.QueryExecModeExec, name, len(steps))
	return err
}

func (m migrator) runStep(ctx context.Context, tx pgx.Tx, name string, step TenantStep) error {
	// An earlier step may have changed the path.
	if path := m.opts.tenantPathSQL(name); path != "" {
		if err := execScript(ctx, tx, path); err != nil {
			return err
		}
	}
	guarded := guard.New(tx)
	defer guarded.Close()
	marked, ended := m.mark(ctx)
	defer ended()
	if err := step(marked, guarded, name); err != nil {
		return err
	}
	switch conn := tx.Conn().PgConn(); {
	case conn.IsBusy():
		return errors.New("rows or results of a query were left open")
	case conn.TxStatus() == 'E':
		return errors.New("no error was returned, but a statement of the transaction failed")
	case conn.TxStatus() != 'T':
		return fmt.Errorf("the transaction was ended: %w", ErrTxControl)
	}
	return nil
}
