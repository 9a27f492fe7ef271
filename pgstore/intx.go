package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/guard"
)

// rollbackTimeout bounds the rollback after the caller's context ended.
const rollbackTimeout = 5 * time.Second

var (
	// ErrTxControl is returned by a statement that would end a transaction of the store, or whose effect would outlast it: in
	// the batch of a projection, in InTx and in a TenantStep.
	ErrTxControl = guard.ErrTxControl
	// ErrBatchEnded is the error of a handler that ended the transaction of its batch. The checkpoint does not move, but what
	// the handler committed by itself stays.
	ErrBatchEnded = errors.New("the handler ended the transaction of its batch")
)

// InTx runs fn in a transaction. It commits if fn returns nil, and rolls back otherwise. After the commit it wakes the
// projections of the tenants to which fn appended events by AppendTx. fn may use savepoints (tx.Begin) but must not end the
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
	guarded := guard.New(tx)
	err = fn(ctx, guarded)
	guarded.Close()
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	for _, tenant := range guarded.Dirtied() {
		t.store.notify.wake(tenant)
	}
	return nil
}
