package sqlitestore

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/internal/tenancy"
	"github.com/millrace-go/millrace/projection"
)

// ArchiveTenant makes a tenant's events read-only and stops its projections. It returns when no projection of the
// tenant runs any more, and releases the leases of a dead node. Reads of events and of read models still work. Appends
// return projection.ErrTenantArchived. An archived tenant may be archived again.
//
// ArchiveTenant waits for the transaction in progress, as an append does. If ctx ends during this wait, the tenant is
// not archived. If ctx ends later, the tenant is archived nevertheless. Inserts by SQL into the tables of the store are
// not refused.
func (s *Store) ArchiveTenant(ctx context.Context, name string) error {
	_, err := s.port().Archive(ctx, name)
	return err
}

// Archive implements store.Moves.
func (s port) Archive(ctx context.Context, name string) (changed bool, err error) {
	return tenancy.Archive(ctx, s.plane(), name, func() (changes bool, err error) {
		_, changes, err = s.changeTenantState(ctx, name, projection.TenantArchived)
		return changes, err
	})
}

// UnarchiveTenant reverses ArchiveTenant: appends work, and the projections continue from their checkpoints, except
// those that are paused. It does not change a tenant that is not archived.
// Do not call it for a tenant that has moved to another store (admin.MoveTenant): both stores would give the same positions to
// different events.
func (s *Store) UnarchiveTenant(ctx context.Context, name string) error {
	if _, err := s.setTenantState(ctx, name, projection.TenantActive); err != nil {
		return fmt.Errorf("unarchive tenant %q: %w", name, err)
	}
	return nil
}
