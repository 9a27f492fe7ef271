package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
)

// Tenant gives access to the events of one tenant. It is safe for concurrent use.
type Tenant struct {
	store *Store
	namedTenant
}

// namedTenant is a tenant by its name.
type namedTenant struct {
	db   *database
	name string
}

// named returns a tenant by its name, as Store.ForTenant does.
func (db *database) named(name string) (namedTenant, error) {
	return namedTenant{db, name}, valid.Tenant(name)
}

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

// Append is Tenant.Append for projection.DefaultTenant.
func (s *Store) Append(ctx context.Context, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	return s.tenant.Append(ctx, stream, expected, events...)
}

// AppendTx is Tenant.AppendTx for projection.DefaultTenant.
func (s *Store) AppendTx(ctx context.Context, tx *sql.Tx, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	return s.tenant.AppendTx(ctx, tx, stream, expected, events...)
}

// Wake is Tenant.Wake for projection.DefaultTenant.
func (s *Store) Wake() { s.tenant.Wake() }

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

var (
	// ErrTxControl is returned by a commit within InTx, and by InTx if the function ended its transaction, or changed
	// fields of the file's header that belong to the store.
	ErrTxControl = errors.New("the transaction belongs to the store")
	// ErrWithinTx is projection.ErrWithinTx. In a file, the refused calls would wait for themselves.
	ErrWithinTx = projection.ErrWithinTx
)

// InTx runs fn in a transaction that writes. It commits if fn returns nil, and rolls back otherwise. After the commit
// it wakes the projections of the tenants to which fn appended by AppendTx. fn may use savepoints, but must not end the
// transaction. If a statement fails, only that statement is undone, and the transaction can still commit. After some
// errors, for instance if the disk is full or the context of a statement that writes ends, SQLite rolls back the
// transaction. Then InTx returns that error. When ctx ends, the running statement is interrupted, even if it has no
// context, as in tx.Exec.
//
// The file has one writer at a time: all appends and transactions wait until fn returns, also those of other processes.
// Within fn, append by AppendTx. With the context of fn, all other calls that write fail at once with ErrWithinTx. With
// a context that is not derived from it, they wait until that context ends.
//
// SQLite's PRAGMA, ATTACH and temporary tables affect the connection. After a transaction that uses them, the store
// closes the connection and opens another one. A transaction that creates triggers on the store's tables, or temporary
// objects with their names, is not committed: InTx returns ErrForeignObject. If it leaves query_only on, InTx returns
// ErrTxControl.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := s.notWithin(ctx); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	var to dirtied
	marked, end := s.mark(ctx)
	defer end()
	err := s.writer.lend(ctx, func(tx *sql.Tx) error {
		s.appended.Store(tx, &to)
		defer s.appended.Delete(tx)
		return fn(marked, tx)
	})
	if err != nil {
		return s.damaged(err)
	}
	to.wake(&s.wakes)
	return nil
}

// InTx is Store.InTx. All tenants share the tables of the file.
func (t *Tenant) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return t.store.InTx(ctx, fn)
}

// dirtied are the tenants that were appended to in a transaction.
type dirtied struct {
	mu    sync.Mutex
	names []string
}

func (d *dirtied) add(tenant string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.names, tenant) {
		d.names = append(d.names, tenant)
	}
}

// wake wakes the projections of these tenants. A goroutine that a function of the user left behind may still add one.
func (d *dirtied) wake(wakes *eventlog.Wakes) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, tenant := range d.names {
		wakes.Wake(tenant, engine.UnknownPosition, nil)
	}
}
