package pgstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/lifecycle"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
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

// DecideState implements store.Moves.
func (s port) DecideState(ctx context.Context, name string, decide store.Decision) error {
	return s.changeTenant(ctx, name, lockWait, func(ctx context.Context, tx pgx.Tx, t lockedTenant) error {
		var to tenancy.State
		err := s.onPlainly(ctx, tx).run(func(tx store.Tx) (err error) {
			to, err = decide(tx, t.state)
			return err
		})
		if err != nil {
			return err
		}
		if changes, err := control.Becomes(t.state, to); !changes {
			return err
		}
		if to == tenancy.Archived {
			err = s.closeEvents(ctx, tx, t.schema, pgerr.TenantArchived)
		} else {
			err = execScript(ctx, tx, inSchemas(queries.Text("open_tenant"), s.opts.Schema, t.schema))
		}
		if err != nil {
			return err
		}
		return s.setTenantState(ctx, tx, name, to)
	})
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

// closeEvents makes further appends fail with that SQLSTATE.
func (s *Store) closeEvents(ctx context.Context, tx pgx.Tx, schema, sqlState string) error {
	return execScript(ctx, tx, sqltext.Fill(queries.Text("close_tenant"), "{tenant}", sqltext.Name(schema),
		"{control}", s.control.quoted, "{state}", sqltext.String(sqlState)))
}

// setTenantState sets the state of a tenant under its structural lock.
func (s *Store) setTenantState(ctx context.Context, tx pgx.Tx, name string, state tenancy.State) error {
	return s.onPlainly(ctx, tx).run(func(tx store.Tx) error {
		control.SetState(tx, name, state)
		return nil
	})
}

const (
	// lockWait bounds one wait for the lock on a tenant's events. Appends that come meanwhile queue behind it.
	lockWait = time.Second
	// dropLockWait bounds one wait for a lock on one of a tenant's tables. It is much shorter than deadlock_timeout, 1
	// s by default: if an append, which locks tables in another order, waits for the drop, then the drop gives up
	// first.
	dropLockWait = 50 * time.Millisecond
)

// changeTenant calls change in a transaction under the tenant's structural lock, and commits it. If other transactions
// hold locks on the tenant's tables for longer than wait, it releases its locks and tries again until ctx ends. Other
// transactions run in between. It waits longer for a vacuum, so that the server cancels an autovacuum. Transactions
// that end soon may still insert rows that refer to deleted ones. changeTenant then tries again too, at most 100 times.
func (s *Store) changeTenant(ctx context.Context, name string, wait time.Duration,
	change func(ctx context.Context, tx pgx.Tx, t lockedTenant) error) error {
	tenant, err := s.ForTenant(name)
	if err != nil {
		return err
	}
	var waited error
	var vacuumed *string // the schema in which a vacuum may hold the lock
	delays := backoff.New(10*time.Millisecond, 500*time.Millisecond)
	for try := 1; ; try++ {
		begin := pgx.TxOptions{BeginQuery: queries.Text("begin_durable") + "; " + s.server.unbounded}
		err := s.inTx(ctx, begin, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, queries.Text("limit_lock_wait"), pgx.QueryExecModeExec, wait.Milliseconds(),
				vacuumed); err != nil {
				return err
			}
			t, err := tenant.lock(ctx, tx)
			if err != nil {
				return err
			}
			return change(ctx, tx, t)
		})
		waits := pgerr.Is(err, pgerr.LockNotAvailable, pgerr.Deadlock) ||
			pgerr.Is(err, pgerr.ForeignKeyViolation) && try < 100
		switch {
		case err == nil:
			return nil
		case waits:
			waited = err
		case ctx.Err() == nil:
			return s.lacking(ctx, tenant.schema, tenant.absent(ctx, err))
		}
		if wait != control.LockWait { // a re-split does not wait for locks on the tenant's tables
			vacuumed = &tenant.schema
		}
		if ended := delays.Wait(ctx); ended != nil {
			if waited != nil {
				err = fmt.Errorf("%w, after %w", ended, waited)
			}
			return s.naming(ctx, tenant.schema, wait == dropLockWait, err)
		}
	}
}

// naming adds to an error at the end of ctx the transactions that hold locks on the tables of a schema; if readers is
// set, also those that only read.
func (s *Store) naming(ctx context.Context, schema string, readers bool, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	rows, _ := s.pool.Query(ctx, queries.Text("tenant_lock_holders"), pgx.QueryExecModeExec, schema, readers)
	holders, asked := pgx.CollectRows(rows, pgx.RowTo[string])
	if asked != nil || len(holders) == 0 {
		return err
	}
	return fmt.Errorf("waiting for open transactions (%s): %w", strings.Join(holders, ", "), err)
}
