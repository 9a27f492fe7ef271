package pgstore

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/lifecycle"
	"github.com/millrace-go/millrace/tenancy"
)

// ArchiveTenant makes a tenant's events read-only and stops its projections. It returns when no projection of the
// tenant runs any more, and releases the leases of dead nodes. Reads of events and of read models still work. Nodes do
// not poll the tenant. Appends return tenancy.ErrArchived. Inserts of other programs into the tenant's events
// fail with SQLSTATE MR007, and abort their transactions. An archived tenant may be archived again.
//
// ArchiveTenant waits for transactions that have appended to the tenant. Meanwhile other appends continue, but may be
// delayed by up to a second. If ctx ends during this wait, the tenant is not archived, and the error names the
// transactions. If ctx ends later, the tenant is archived nevertheless. While a vacuum works on the tenant's tables,
// delays may be half a second longer than the server's deadlock_timeout, after which the server cancels an autovacuum.
// ArchiveTenant needs the role that owns the tenant's schema.
func (s *Store) ArchiveTenant(ctx context.Context, name string) error {
	return lifecycle.Archive(ctx, s.port(), name, control.To(tenancy.Archived))
}

// UnarchiveTenant reverses ArchiveTenant: appends work, and the projections continue from their checkpoints, except
// those that are paused. It waits as ArchiveTenant does, and needs the same role. It does not change a tenant that is
// not archived. It returns tenancy.ErrMoved if a move (admin.MoveTenant) has, or may have, committed the tenant to
// another store: see admin.AbandonMove.
func (s *Store) UnarchiveTenant(ctx context.Context, name string) error {
	if err := s.port().DecideState(ctx, name, control.Unarchive(name)); err != nil {
		return fmt.Errorf("unarchive tenant %q: %w", name, err)
	}
	return nil
}
