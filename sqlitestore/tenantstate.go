package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Tenants lists the tenants in any state, sorted. It returns ErrNotMigrated if Migrate was not called, or only by an older
// version, and ErrSchemaTooNew as Migrate does.
func (s *Store) Tenants(ctx context.Context) ([]string, error) {
	tenants, err := s.readTenants(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	names := make([]string, len(tenants))
	for i, t := range tenants {
		names[i] = t.Name
	}
	return names, nil
}

func (s port) Tenants(ctx context.Context, names []string) ([]engine.Tenant, error) {
	tenants, err := s.readTenants(ctx, names)
	return tenants, failed(err, "list tenants")
}

// Runnable implements engine.Store. It returns ErrMoved for a file that was moved.
func (s port) Runnable(ctx context.Context) error {
	return failed(s.notMoved(ctx), "examine whether the file was moved")
}

// State returns the state of the tenant. It returns projection.ErrUnknownTenant if there is no such tenant.
func (t *Tenant) State(ctx context.Context) (projection.TenantState, error) {
	found, err := t.store.readTenants(ctx, []string{t.name})
	if err == nil && len(found) == 0 {
		err = projection.ErrUnknownTenant
	}
	if err != nil {
		return "", fmt.Errorf("state of tenant %q: %w", t.name, err)
	}
	return found[0].State, nil
}

// readTenants returns the tenants of these names, or all if names is nil, sorted by name.
func (s *Store) readTenants(ctx context.Context, names []string) (tenants []engine.Tenant, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	statement, args := "tenants", []any(nil)
	if names != nil {
		statement, args = "tenants_named", []any{list(names)}
	}
	var t engine.Tenant
	err = each(ctx, s.readers, statement, args, []any{&t.Row, &t.Name, &t.State}, func() error {
		tenants = append(tenants, t)
		return nil
	})
	return tenants, s.damaged(err)
}

// tenantRow is a tenant as a transaction sees it. The state is never TenantPaused.
type tenantRow struct {
	id        int32
	state     projection.TenantState
	suspended bool
}

// lookUpTenant returns the tenant of a name, or projection.ErrUnknownTenant.
func lookUpTenant(ctx context.Context, q querier, name string) (t tenantRow, err error) {
	found, err := runOne(ctx, q, "tenant_state", []any{name}, &t.id, &t.state, &t.suspended)
	if err == nil && !found {
		err = projection.ErrUnknownTenant
	}
	return t, err
}

// changeTenant calls change in a transaction. Then it suspends the tenant's projections, or ends their suspension, by the
// new state of the tenant, and notifies the nodes.
func (s *Store) changeTenant(ctx context.Context, name string, change func(tx *sql.Tx, t tenantRow) error) error {
	if _, err := s.ForTenant(name); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.transact(ctx, func(tx *sql.Tx) error {
		t, err := lookUpTenant(ctx, tx, name)
		if err != nil {
			return err
		}
		if err := change(tx, t); err != nil {
			return err
		}
		if err := execute(ctx, tx, "suspend_projections", t.id); err != nil {
			return err
		}
		return s.announce(ctx, tx, engine.Notice{Control: true, Tenant: name})
	})
}

func (s port) SetTenantDesired(ctx context.Context, tenant string, desired engine.DesiredState) error {
	err := s.changeTenant(ctx, tenant, func(tx *sql.Tx, t tenantRow) error {
		if t.state == projection.TenantDropping {
			return projection.ErrTenantDropping
		}
		return execute(ctx, tx, "set_tenant_paused", t.id, !desired.Runs())
	})
	return failed(err, "set the desired state of tenant %q", tenant)
}

// SuspensionEnded implements engine.Store. A claim that commits after the suspension sees it, so a lease that is free stays
// free.
func (s port) SuspensionEnded(ctx context.Context, tenant string) (free bool, err error) {
	doing := fmt.Sprintf("free the leases of tenant %q", tenant)
	t, err := lookUpTenant(ctx, s.readers, tenant)
	switch {
	case errors.Is(err, projection.ErrUnknownTenant):
		return false, err
	case err != nil:
		return false, failed(err, "%s", doing)
	case !t.suspended:
		return false, projection.ErrResumed
	}
	owners, err := column[string](ctx, s.readers, "tenant_owners", t.id)
	if err != nil || len(owners) == 0 {
		return err == nil, failed(err, "%s", doing)
	}
	var living string
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if living, err = s.livingOwner(ctx, tx); err != nil {
			return err
		}
		return execute(ctx, tx, "free_dead_leases", t.id, living, time.Now().UnixMicro())
	})
	return err == nil && !slices.Contains(owners, living), failed(err, "%s", doing)
}
