package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/tenancy"
)

// createdTogether limits the tenants of one transaction, so that appends wait for some milliseconds at most.
const createdTogether = 500

// CreateTenant creates a tenant, unless it exists, and returns it. It returns ErrNotMigrated before Migrate, and
// tenancy.ErrDropping until a drop of a tenant of that name has ended.
func (s *Store) CreateTenant(ctx context.Context, name string) (*Tenant, error) {
	t, err := s.ForTenant(name)
	if err != nil {
		return nil, fmt.Errorf("create tenant %s: %w", excerpt.Quoted(name), err)
	}
	if err := s.createTenants(ctx, []string{name}); err != nil {
		return nil, fmt.Errorf("create tenant %s: %w", excerpt.Quoted(name), err)
	}
	return t, nil
}

// CreateTenants creates the tenants that do not exist, up to 500 in a transaction. After an error, the transactions
// that committed stay, and the others have no effect. It returns the errors of CreateTenant. After an error, a
// cancellation or the end of the process, CreateTenants can be called again with the same names.
func (s *Store) CreateTenants(ctx context.Context, names ...string) error {
	if err := s.createTenants(ctx, names); err != nil {
		return fmt.Errorf("create tenants: %w", err)
	}
	return nil
}

func (s *Store) createTenants(ctx context.Context, names []string) error {
	if at := slices.IndexFunc(names, func(name string) bool { return valid.Tenant(name) != nil }); at >= 0 {
		return valid.Tenant(names[at])
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	for batch := range slices.Chunk(names, createdTogether) {
		err := s.port().Tx(ctx, func(tx store.Tx) error {
			for _, name := range batch {
				if err := createOne(tx, name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// createOne creates a tenant, unless it exists, and announces it.
func createOne(tx store.Tx, name string) error {
	_, state, err := control.LockTenant(tx, name)
	switch {
	case err == nil && state == tenancy.Dropping:
		return fmt.Errorf("tenant %q: %w", name, tenancy.ErrDropping)
	case !errors.Is(err, tenancy.ErrUnknown):
		return err
	}
	tx.Exec("insert_tenant", name)
	tx.Notify(engine.Notice{Control: true, Tenant: name})
	return nil
}
