package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// rollbackTimeout bounds the rollback after the caller's context ended.
const rollbackTimeout = 5 * time.Second

// InTx runs fn in a transaction, and commits it if fn returns nil, else rolls it back. After a commit it wakes the
// projections of the tenants that fn appended to by AppendTx. fn may use savepoints (tx.Begin) but must not end the
// transaction itself. The transaction is READ COMMITTED. Its search path is that of the tenant's handlers: see
// Options.SharedSchemas.
func (t *Tenant) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	begin := beginInTx + "; " + t.store.setTenantPath(t.name)
	tx, err := t.store.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	// After a commit this does nothing; it also runs when fn panics.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(ctx)
	}()
	scoped := newScopedTx(tx)
	err = fn(ctx, scoped)
	scoped.close()
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	for _, tenant := range scoped.dirtied() {
		t.store.notify.wake(tenant)
	}
	return nil
}
