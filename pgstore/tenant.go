package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore/internal/guard"
	"github.com/millrace-go/millrace/projection"
)

// Tenant gives access to the events of one tenant. It is safe for concurrent use.
type Tenant struct {
	store *Store
	namedTenant
}

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

// EventsSchema returns the name of the tenant's schema, not quoted.
func (t *Tenant) EventsSchema() string { return t.schema }

// Append is Tenant.Append for projection.DefaultTenant.
func (s *Store) Append(ctx context.Context, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	return s.tenant.Append(ctx, stream, expected, events...)
}

// AppendTx is Tenant.AppendTx for projection.DefaultTenant.
func (s *Store) AppendTx(ctx context.Context, tx pgx.Tx, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	return s.tenant.AppendTx(ctx, tx, stream, expected, events...)
}

// Wake is Tenant.Wake for projection.DefaultTenant.
func (s *Store) Wake() { s.tenant.Wake() }

// InTx is Tenant.InTx for projection.DefaultTenant.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return s.tenant.InTx(ctx, fn)
}

// ReadStream is Tenant.ReadStream for projection.DefaultTenant.
func (s *Store) ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[event.Envelope, error] {
	return s.tenant.ReadStream(ctx, stream, fromVersion)
}

// Stream is Tenant.Stream for projection.DefaultTenant.
func (s *Store) Stream(ctx context.Context, id string) (event.StreamInfo, error) {
	return s.tenant.Stream(ctx, id)
}

// ReadAll is Tenant.ReadAll for projection.DefaultTenant.
func (s *Store) ReadAll(ctx context.Context, opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
	return s.tenant.ReadAll(ctx, opts)
}

// EventsSchema is Tenant.EventsSchema for projection.DefaultTenant.
func (s *Store) EventsSchema() string { return s.tenant.schema }

// rollbackTimeout bounds the rollback after the caller's context ended.
const rollbackTimeout = 5 * time.Second

var (
	// ErrTxControl is returned by a statement in a handler, InTx or a TenantStep that would end the transaction of the
	// store, or whose effect would outlast it.
	ErrTxControl = guard.ErrTxControl
	// ErrWithinTx is projection.ErrWithinTx.
	ErrWithinTx = projection.ErrWithinTx
	// ErrBatchEnded is the error of a handler that ended the transaction of its batch. The checkpoint does not move,
	// but the handler's own commits stay.
	ErrBatchEnded = errors.New("the handler ended the transaction of its batch")
)

// InTx runs fn in a transaction. It commits if fn returns nil, and rolls back otherwise. After the commit it wakes the
// projections of the tenants to which fn appended by AppendTx. fn may use savepoints (tx.Begin), but must not end the
// transaction. The transaction is READ COMMITTED. Its search path is the one of the tenant's handlers: see
// Options.SharedSchemas. With the context of fn, all other calls that write fail at once with ErrWithinTx.
func (t *Tenant) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if err := t.store.notWithin(ctx); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	begin := queries.Text("begin_in_tx") + "; " + t.store.opts.tenantPathSQL(t.name)
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
	marked, end := t.db.mark(ctx)
	defer end()
	err = fn(marked, guarded)
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
