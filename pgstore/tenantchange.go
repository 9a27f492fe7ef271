package pgstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/tenancy"
)

// lockedTenant is a tenant under the structural lock. The state is never tenancy.Paused.
type lockedTenant struct {
	namedTenant
	row   int32
	state tenancy.State
}

// lock takes the structural lock of the tenant, until the transaction ends, and returns the tenant as the previous
// holder left it.
func (t namedTenant) lock(ctx context.Context, tx pgx.Tx) (lockedTenant, error) {
	row, state, err := control.LockTenant(t.db.onPlainly(ctx, tx), t.name)
	return lockedTenant{t, row, state}, err
}

// tenantChanges runs changes of a tenant under its structural lock: archive, drop, re-split.
type tenantChanges struct{ *database }

// DecideState implements store.Moves.
func (c tenantChanges) DecideState(ctx context.Context, name string, decide store.Decision) error {
	return c.change(ctx, name, lockWait, func(ctx context.Context, tx pgx.Tx, t lockedTenant) error {
		var to tenancy.State
		err := c.onPlainly(ctx, tx).run(func(tx store.Tx) (err error) {
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
			err = t.closeEvents(ctx, tx, pgerr.TenantArchived)
		} else {
			err = t.openEvents(ctx, tx)
		}
		if err != nil {
			return err
		}
		return t.setState(ctx, tx, to)
	})
}

// Change implements store.Control as change does.
func (c tenantChanges) Change(ctx context.Context, tenant string, fn func(store.Tx, tenancy.State) error) error {
	var t *transaction
	err := c.change(ctx, tenant, control.LockWait,
		func(ctx context.Context, tx pgx.Tx, tenant lockedTenant) error {
			t = c.on(ctx, tx)
			return t.run(func(tx store.Tx) error { return fn(tx, tenant.state) })
		})
	if err != nil {
		return err
	}
	t.endTaken()
	return nil
}

// closeEvents makes further appends fail with that SQLSTATE.
func (t namedTenant) closeEvents(ctx context.Context, tx pgx.Tx, sqlState string) error {
	return execScript(ctx, tx, sqltext.Fill(queries.Text("close_tenant"), "{tenant}", t.quoted,
		"{control}", t.db.control.quoted, "{state}", sqltext.String(sqlState)))
}

// openEvents lets the tenant take appends again.
func (t namedTenant) openEvents(ctx context.Context, tx pgx.Tx) error {
	return execScript(ctx, tx, t.sql("open_tenant"))
}

// setState sets the state of the tenant under its structural lock.
func (t lockedTenant) setState(ctx context.Context, tx pgx.Tx, state tenancy.State) error {
	return t.db.onPlainly(ctx, tx).run(func(tx store.Tx) error {
		control.SetState(tx, t.name, state)
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

// change calls fn in a transaction under the tenant's structural lock, and commits it. If other transactions
// hold locks on the tenant's tables for longer than wait, it releases its locks and tries again until ctx ends. Other
// transactions run in between. It waits longer for a vacuum, so that the server cancels an autovacuum. Transactions
// that end soon may still insert rows that refer to deleted ones. change then tries again too, at most 100 times.
func (c tenantChanges) change(ctx context.Context, name string, wait time.Duration,
	fn func(ctx context.Context, tx pgx.Tx, t lockedTenant) error) error {
	tenant, err := c.named(name)
	if err != nil {
		return err
	}
	var waited error
	var vacuumed *string // the schema in which a vacuum may hold the lock
	delays := backoff.New(10*time.Millisecond, 500*time.Millisecond)
	for try := 1; ; try++ {
		err := c.inTx(ctx, c.beginDurable(), func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, queries.Text("limit_lock_wait"), pgx.QueryExecModeExec, wait.Milliseconds(),
				vacuumed); err != nil {
				return err
			}
			t, err := tenant.lock(ctx, tx)
			if err != nil {
				return err
			}
			return fn(ctx, tx, t)
		})
		waits := pgerr.Is(err, pgerr.LockNotAvailable, pgerr.Deadlock) ||
			pgerr.Is(err, pgerr.ForeignKeyViolation) && try < 100
		switch {
		case err == nil:
			return nil
		case waits:
			waited = err
		case ctx.Err() == nil:
			return c.lacking(ctx, tenant.schema, tenant.absent(ctx, err))
		}
		if wait != control.LockWait { // a re-split does not wait for locks on the tenant's tables
			vacuumed = &tenant.schema
		}
		if ended := delays.Wait(ctx); ended != nil {
			if waited != nil {
				err = fmt.Errorf("%w, after %w", ended, waited)
			}
			return c.wrapHolders(ctx, tenant.schema, wait == dropLockWait, err)
		}
	}
}

// wrapHolders adds to an error at the end of ctx the transactions that hold locks on the tables of a schema; if readers
// is set, also those that only read.
func (c tenantChanges) wrapHolders(ctx context.Context, schema string, readers bool, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	rows, _ := c.pool.Query(ctx, queries.Text("tenant_lock_holders"), pgx.QueryExecModeExec, schema, readers)
	holders, asked := pgx.CollectRows(rows, pgx.RowTo[string])
	if asked != nil || len(holders) == 0 {
		return err
	}
	return fmt.Errorf("waiting for open transactions (%s): %w", strings.Join(holders, ", "), err)
}
