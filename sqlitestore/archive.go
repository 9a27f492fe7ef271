package sqlitestore

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/lifecycle"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/tenancy"
)

// ArchiveTenant makes a tenant's events read-only and stops its projections. It returns when no projection of the
// tenant runs any more, and releases the leases of a dead node. Reads of events and of read models still work. Appends
// return tenancy.ErrArchived. An archived tenant may be archived again.
//
// ArchiveTenant waits for the transaction in progress, as an append does. If ctx ends during this wait, the tenant is
// not archived. If ctx ends later, the tenant is archived nevertheless. Inserts by SQL into the tables of the store are
// not refused.
func (s *Store) ArchiveTenant(ctx context.Context, name string) error {
	return lifecycle.Archive(ctx, s.port(), name, control.To(tenancy.Archived))
}

// DecideState implements store.Moves.
func (s port) DecideState(ctx context.Context, name string, decide store.Decision) error {
	_, err := s.store.decideState(ctx, name, decide)
	return err
}

// UnarchiveTenant reverses ArchiveTenant: appends work, and the projections continue from their checkpoints, except
// those that are paused. It does not change a tenant that is not archived. It returns tenancy.ErrMoved if a move
// (admin.MoveTenant) has, or may have, committed the tenant to another store: see admin.AbandonMove.
func (s *Store) UnarchiveTenant(ctx context.Context, name string) error {
	if err := s.port().DecideState(ctx, name, control.Unarchive(name)); err != nil {
		return fmt.Errorf("unarchive tenant %q: %w", name, err)
	}
	return nil
}
