package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrTxControl is returned by a transaction of the store, a batch's or that of InTx, for statements that would end it or
	// change its session beyond it.
	ErrTxControl = errors.New("the transaction belongs to the store")
	// ErrBatchEnded is the error of a handler that ended the transaction of its batch. The checkpoint does not move, but what
	// the handler committed by itself stays.
	ErrBatchEnded = errors.New("the handler ended the transaction of its batch")
)

// scopedTx is a transaction that the store lends to a function of the user's. It remembers which tenants were appended
// to, and which error its statements met, should the user's function not pass it on; and it refuses to be ended and to let
// settings outlive it.
type scopedTx struct {
	pgx.Tx
	scope *txScope
}

// txScope is shared by a scopedTx and those nested in it.
type txScope struct {
	mu      sync.Mutex
	tenants map[string]struct{}
	fault   error
	// closed tells that the user's function returned. Its transaction is over, and the connection somebody else's.
	closed bool
}

func newScopedTx(tx pgx.Tx) *scopedTx {
	return &scopedTx{Tx: tx, scope: &txScope{tenants: make(map[string]struct{})}}
}

// close ends the loan.
func (tx *scopedTx) close() {
	tx.scope.mu.Lock()
	defer tx.scope.mu.Unlock()
	tx.scope.closed = true
}

// admit tells why a statement may not run; nil means that it may.
func (tx *scopedTx) admit(sql string) error {
	tx.scope.mu.Lock()
	closed := tx.scope.closed
	tx.scope.mu.Unlock()
	if closed {
		return pgx.ErrTxClosed
	}
	return refusedInTx(sql)
}

// dirty notes that events were appended for the tenant.
func (tx *scopedTx) dirty(tenant string) {
	tx.scope.mu.Lock()
	defer tx.scope.mu.Unlock()
	tx.scope.tenants[tenant] = struct{}{}
}

// dirtied returns the tenants that were appended to.
func (tx *scopedTx) dirtied() []string {
	tx.scope.mu.Lock()
	defer tx.scope.mu.Unlock()
	var tenants []string
	for t := range tx.scope.tenants {
		tenants = append(tenants, t)
	}
	return tenants
}

// note keeps err if it comes from the server or the connection, and returns it. The last such error is kept, except errors
// that only follow from another. Errors before the server's last one were undone by a savepoint, or it could not have
// occurred.
func (tx *scopedTx) note(err error) error {
	if err == nil || isState(err, "25P02") { // in_failed_sql_transaction
		return err
	}
	server := isServerFault(err)
	if !server && !isConnectionError(err) {
		return err
	}
	tx.scope.mu.Lock()
	defer tx.scope.mu.Unlock()
	if tx.scope.fault == nil || server {
		tx.scope.fault = err
	}
	return err
}

// fault returns the error with which a statement, or the connection, failed last, or nil.
func (tx *scopedTx) fault() error {
	tx.scope.mu.Lock()
	defer tx.scope.mu.Unlock()
	return tx.scope.fault
}

// Begin starts a savepoint, which the user may commit and roll back.
func (tx *scopedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := tx.admit(""); err != nil {
		return nil, err
	}
	nested, err := tx.Tx.Begin(ctx)
	if err != nil {
		return nil, tx.note(err)
	}
	return &savepointTx{scopedTx: scopedTx{Tx: nested, scope: tx.scope}}, nil
}

// Commit is refused.
func (tx *scopedTx) Commit(context.Context) error {
	return fmt.Errorf("commit refused: %w", ErrTxControl)
}

// Rollback is refused.
func (tx *scopedTx) Rollback(context.Context) error {
	return fmt.Errorf("rollback refused: %w", ErrTxControl)
}

func (tx *scopedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := tx.admit(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := tx.Tx.Exec(ctx, sql, args...)
	return tag, tx.note(err)
}

func (tx *scopedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := tx.admit(sql); err != nil {
		return failedRows{err: err}, err
	}
	rows, err := tx.Tx.Query(ctx, sql, args...)
	return &scopedRows{Rows: rows, tx: tx}, tx.note(err)
}

func (tx *scopedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := tx.admit(sql); err != nil {
		return failedRows{err: err}
	}
	return &scopedRow{row: tx.Tx.QueryRow(ctx, sql, args...), tx: tx}
}

func (tx *scopedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := tx.admit(sql); err != nil {
		return nil, err
	}
	sd, err := tx.Tx.Prepare(ctx, name, sql)
	return sd, tx.note(err)
}

func (tx *scopedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := tx.admit(""); err != nil {
		return 0, err
	}
	n, err := tx.Tx.CopyFrom(ctx, table, columns, src)
	return n, tx.note(err)
}

func (tx *scopedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := tx.admit(""); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	for _, q := range b.QueuedQueries {
		if err := tx.admit(q.SQL); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
	}
	return &scopedResults{BatchResults: tx.Tx.SendBatch(ctx, b), tx: tx}
}

// savepointTx is nested in a scopedTx: its Commit and Rollback concern the savepoint alone.
type savepointTx struct{ scopedTx }

// Commit releases the savepoint.
func (tx *savepointTx) Commit(ctx context.Context) error {
	if err := tx.admit(""); err != nil {
		return err
	}
	return tx.note(tx.Tx.Commit(ctx))
}

// Rollback to the savepoint also forgets the fault: the user's function has dealt with it.
func (tx *savepointTx) Rollback(ctx context.Context) error {
	if err := tx.admit(""); err != nil {
		return err
	}
	if err := tx.Tx.Rollback(ctx); err != nil {
		return tx.note(err)
	}
	tx.scope.mu.Lock()
	defer tx.scope.mu.Unlock()
	tx.scope.fault = nil
	return nil
}

// The wrappers below pass everything on and note the errors that go by.

type scopedRows struct {
	pgx.Rows
	tx *scopedTx
}

func (r *scopedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	_ = r.tx.note(r.Rows.Err())
	return false
}

func (r *scopedRows) Close() {
	r.Rows.Close()
	_ = r.tx.note(r.Rows.Err())
}

type scopedRow struct {
	row pgx.Row
	tx  *scopedTx
}

func (r *scopedRow) Scan(dest ...any) error { return r.tx.note(r.row.Scan(dest...)) }

type scopedResults struct {
	pgx.BatchResults
	tx *scopedTx
}

func (r *scopedResults) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	return tag, r.tx.note(err)
}

func (r *scopedResults) Query() (pgx.Rows, error) {
	rows, err := r.BatchResults.Query()
	return &scopedRows{Rows: rows, tx: r.tx}, r.tx.note(err)
}

func (r *scopedResults) QueryRow() pgx.Row {
	return &scopedRow{row: r.BatchResults.QueryRow(), tx: r.tx}
}

func (r *scopedResults) Close() error { return r.tx.note(r.BatchResults.Close()) }

// failedRows is the answer to a query that was refused before it was sent.
type failedRows struct {
	pgx.Rows
	err error
}

func (r failedRows) Close()                                       {}
func (r failedRows) Err() error                                   { return r.err }
func (r failedRows) Next() bool                                   { return false }
func (r failedRows) Scan(...any) error                            { return r.err }
func (r failedRows) Values() ([]any, error)                       { return nil, r.err }
func (r failedRows) RawValues() [][]byte                          { return nil }
func (r failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (r failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r failedRows) Conn() *pgx.Conn                              { return nil }
