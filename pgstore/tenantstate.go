package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/tenancy"
)

func (s port) Tenants(ctx context.Context, names []string) ([]engine.Tenant, error) {
	tenants, err := s.readTenants(ctx, ownMigrations, names)
	return tenants, wrap(err, "list tenants")
}

// Runnable implements engine.Health. Every database whose tenants can be listed is runnable.
func (s port) Runnable(context.Context) error { return nil }

// State returns the state of the tenant. It returns tenancy.ErrUnknown if there is no such tenant.
func (t *Tenant) State(ctx context.Context) (tenancy.State, error) {
	found, err := t.store.readTenants(ctx, ownMigrations, []string{t.name})
	if err == nil && len(found) == 0 {
		err = tenancy.ErrUnknown
	}
	if err != nil {
		return "", fmt.Errorf("state of tenant %q: %w", t.name, err)
	}
	return found[0].State, nil
}

// lockedTenant is a tenant under the structural lock. The state is never tenancy.Paused.
type lockedTenant struct {
	*Tenant
	row   int32
	state tenancy.State
}

// lock takes the structural lock of the tenant, until the transaction ends, and returns the tenant as the previous
// holder left it.
func (t *Tenant) lock(ctx context.Context, tx pgx.Tx) (lockedTenant, error) {
	row, state, err := control.LockTenant(t.store.onPlainly(ctx, tx), t.name)
	return lockedTenant{t, row, state}, err
}
