package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Tenants(ctx context.Context, names []string) ([]engine.Tenant, error) {
	tenants, err := s.readTenants(ctx, ownMigrations, names)
	return tenants, failed(err, "list tenants")
}

// Runnable implements engine.Store. Every database whose tenants can be listed is runnable.
func (s port) Runnable(context.Context) error { return nil }

// State returns the state of the tenant. It returns projection.ErrUnknownTenant if there is no such tenant.
func (t *Tenant) State(ctx context.Context) (projection.TenantState, error) {
	found, err := t.store.readTenants(ctx, ownMigrations, []string{t.name})
	if err == nil && len(found) == 0 {
		err = projection.ErrUnknownTenant
	}
	if err != nil {
		return "", fmt.Errorf("state of tenant %q: %w", t.name, err)
	}
	return found[0].State, nil
}

// tenantRow is a tenant under the structural lock. The state is never TenantPaused.
type tenantRow struct {
	id     int32
	schema string
	state  projection.TenantState
}

// changing returns an error if the tenant is being dropped or copied, so that its state must not change.
func (t tenantRow) changing() error {
	switch t.state {
	case projection.TenantDropping:
		return projection.ErrTenantDropping
	case projection.TenantCopying:
		return projection.ErrTenantCopying
	}
	return nil
}

// lockTenant takes the structural lock of a tenant, until the transaction ends, and returns the tenant as the previous
// holder left it.
func (s *Store) lockTenant(ctx context.Context, tx executor, name string) (t tenantRow, err error) {
	if err := s.lockTenants(ctx, tx, name); err != nil {
		return t, err
	}
	err = tx.QueryRow(ctx, s.control.sql("tenant_state"), pgx.QueryExecModeExec, name).Scan(&t.id, &t.schema, &t.state)
	if errors.Is(err, pgx.ErrNoRows) {
		err = projection.ErrUnknownTenant
	}
	return t, err
}

func (s port) SetTenantDesired(ctx context.Context, tenant string, desired engine.DesiredState) error {
	return s.durable(ctx, fmt.Sprintf("set the desired state of tenant %q", tenant), func(tx pgx.Tx) error {
		row, err := s.lockTenant(ctx, tx, tenant)
		if err == nil {
			err = row.changing()
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.control.sql("set_tenant_paused"), pgx.QueryExecModeExec, tenant, !desired.Runs(), s.control.controlChannel)
		return err
	})
}

// SuspensionEnded implements engine.Store. As in PauseEnded, an expired heartbeat alone takes a lease away.
func (s port) SuspensionEnded(ctx context.Context, tenant string) (free bool, err error) {
	var suspended bool
	var held int
	var taken []int64
	var began int64 // microseconds, since a time as text depends on DateStyle
	err = s.pool.QueryRow(ctx, s.control.sql("suspension_ended"), pgx.QueryExecModeExec, tenant).Scan(&suspended, &held, &taken, &began)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, projection.ErrUnknownTenant
	case err != nil:
		return false, storeFault(err)
	case !suspended:
		return false, projection.ErrResumed
	}
	if len(taken) > 0 {
		s.endZombieBatches(ctx, taken, time.UnixMicro(began))
	}
	if held > 0 {
		return false, nil
	}
	return true, s.durable(ctx, fmt.Sprintf("let the leases of tenant %q sleep", tenant), func(tx pgx.Tx) error {
		if err := s.lockTenants(ctx, tx, tenant); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.control.sql("let_leases_sleep"), pgx.QueryExecModeExec, tenant)
		return err
	})
}
