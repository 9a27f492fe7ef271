package sqlitestore

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/tenancy"
)

// Tenants lists the tenants in any state, sorted. It returns ErrNotMigrated if Migrate was not called, or only by an
// older version, and ErrSchemaTooNew as Migrate does.
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
	return tenants, wrap(err, "list tenants")
}

// OldestSnapshot implements engine.Lists. A file has no list of its transactions.
func (s port) OldestSnapshot(context.Context) (engine.Snapshot, error) {
	return engine.Snapshot{}, nil
}

// State returns the state of the tenant. It returns tenancy.ErrUnknown if there is no such tenant.
func (t *Tenant) State(ctx context.Context) (tenancy.State, error) {
	found, err := t.store.readTenants(ctx, []string{t.name})
	if err == nil && len(found) == 0 {
		err = tenancy.ErrUnknown
	}
	if err != nil {
		return "", fmt.Errorf("state of tenant %q: %w", t.name, err)
	}
	return found[0].State, nil
}

// readTenants returns the tenants of these names, or all if names is nil, sorted by name.
func (db *database) readTenants(ctx context.Context, names []string) (tenants []engine.Tenant, err error) {
	if err := db.ready(ctx); err != nil {
		return nil, err
	}
	statement, args := "tenants", []any(nil)
	if names != nil {
		statement, args = "tenants_named", []any{list(names)}
	}
	var t engine.Tenant
	err = each(ctx, db.readers, statement, args, []any{&t.Row, &t.Name, &t.State}, func() error {
		tenants = append(tenants, t)
		return nil
	})
	return tenants, db.damaged(err)
}

// decideState sets the state of a tenant, and returns the tenant's row.
func (s *Store) decideState(ctx context.Context, name string, decide store.Decision) (row int32, err error) {
	if _, err := s.ForTenant(name); err != nil {
		return 0, err
	}
	return s.plane().DecideState(ctx, name, decide)
}
