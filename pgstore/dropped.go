package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// absent adds to err why the schema of the tenant, or a table in it, was not found: the tenant is unknown, was dropped
// outside of millrace, or was not migrated. Other errors are returned as they are.
func (t *Tenant) absent(ctx context.Context, err error) error {
	if !isMissing(err) {
		return err
	}
	schema, version, asked := t.store.tenantVersion(ctx, t.store.pool, t.name)
	switch {
	case errors.Is(asked, projection.ErrUnknownTenant), errors.Is(asked, projection.ErrTenantDropped):
		return fmt.Errorf("%w: %w", asked, err)
	case isMissing(asked):
		return t.store.missing(asked)
	case asked != nil:
		return err
	case version < len(ownMigrations.tenant):
		return fmt.Errorf("tenant %q: %w: %w", t.name, acceptable(version, len(ownMigrations.tenant)), err)
	}
	return fmt.Errorf("a table in the schema %q of tenant %q is gone: %w: %w", schema, t.name, projection.ErrTenantDropped, err)
}

// Absent returns why Heads left a tenant out, or nil if the tenant is back.
func (s port) Absent(ctx context.Context, tenant string) error {
	t, err := s.ForTenant(tenant)
	if err != nil {
		return err
	}
	if err := s.headsOf(ctx, []string{tenant}, &engine.Heads{Positions: make(map[string]int64)}); err != nil {
		return ownFault(t.absent(ctx, err))
	}
	return nil
}
