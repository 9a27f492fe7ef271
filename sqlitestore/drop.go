package sqlitestore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/lifecycle"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// deletionTime is the time after which a transaction of a drop commits, so that appends do not wait for long.
	deletionTime = 10 * time.Millisecond
	// deletedTogether limits the rows that one statement of a drop deletes. It looks at the pages of large rows one by
	// one.
	deletedTogether = 100
)

// DropTenant removes a tenant permanently: its events, its projections, checkpoints, dead letters and commands. It does
// not change the user's tables: archive the tenant, delete its rows from read models, and then drop it. opts.Confirm
// must repeat the name. The default tenant cannot be dropped. Other tenants are not affected. Afterwards a tenant of
// that name may be created again, and has nothing of the dropped one. The file does not shrink: SQLite uses the space
// for later events.
//
// A drop begins with a transaction that stops appends: they return tenancy.ErrDropping, and
// tenancy.ErrUnknown after the drop. Then DropTenant waits until no projection of the tenant runs any more. Then
// it removes everything, in many short transactions. Appends to other tenants run in between. Reads of the tenant
// return tenancy.ErrDropping from then on. If DropTenant is interrupted, also by the end of the process, the
// tenant stays in the state tenancy.Dropping, and DropTenant must be called again.
//
// DropTenant returns tenancy.ErrUnknown if there is no such tenant.
func (s *Store) DropTenant(ctx context.Context, name string, opts tenancy.DropOptions) error {
	err := lifecycle.Drop(ctx, s.plane(), name, opts.Confirm,
		func() (int32, error) { return s.decideState(ctx, name, control.To(tenancy.Dropping)) },
		func(row int32) error { return s.endDrop(ctx, name, row, deletionTime) })
	if err != nil {
		return err
	}
	s.followers.End(name)
	s.log.Info("tenant dropped", zap.String("tenant", name))
	return nil
}

// endDrop removes everything of a tenant, after its projections have stopped. A transaction runs for about the time
// most. Several calls may run at once.
func (s *Store) endDrop(ctx context.Context, name string, row int32, most time.Duration) error {
	for done := false; !done; {
		err := s.transact(ctx, func(tx *sql.Tx) (err error) {
			done, err = s.deleteSome(ctx, tx, name, row, most)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deletions delete rows of a tenant, in this order. Commands are inserted as long as their projection exists, and are
// deleted in the transaction that deletes it.
var deletions = []string{"delete_events", "delete_streams", "delete_keys", "delete_aliases", "delete_dead_letters",
	"delete_parked_streams",
	"delete_commands", "delete_operations", "delete_leases", "delete_projections",
	"delete_retired_projections", "delete_erasures", "delete_moves", "delete_snapshots"}

// deleteSome deletes rows of a tenant until most has passed. If nothing is left, it deletes the tenant and returns
// true.
func (s *Store) deleteSome(ctx context.Context, tx *sql.Tx, name string, row int32,
	most time.Duration) (done bool, err error) {
	found, err := runOne(ctx, tx, "begin_deletion", []any{row}, new(int32))
	if err != nil || !found {
		return true, err // another call deleted it
	}
	var lacking []string // tables that were not made yet
	for _, table := range []string{"erasures", "moves", "snapshots"} {
		made := false
		if _, err := runOne(ctx, tx, "table_was_made", []any{table}, &made); err != nil {
			return false, err
		}
		if !made {
			lacking = append(lacking, "delete_"+table)
		}
	}
	began := time.Now()
	for _, deletion := range deletions {
		if slices.Contains(lacking, deletion) {
			continue
		}
		for {
			result, err := tx.ExecContext(ctx, queries.Text(deletion), row, deletedTogether)
			if err != nil {
				return false, err
			}
			deleted, err := result.RowsAffected()
			if err != nil {
				return false, err
			}
			if deleted == 0 {
				break
			}
			if time.Since(began) >= most {
				return false, nil
			}
		}
	}
	if err := execute(ctx, tx, "delete_tenant", row); err != nil {
		return false, err
	}
	return true, s.announce(ctx, tx, engine.Notice{Control: true, Tenant: name})
}
