// Package guard lends a transaction of the store to a function of the user's. The function cannot end the transaction,
// use it after it has returned, or change its session for longer than the transaction lasts.
package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/usererror"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// ErrTxControl is returned by a statement that would end a transaction of the store, or whose effect would outlast it.
var ErrTxControl = errors.New("the transaction belongs to the store")

// Tx is a guarded transaction. It records which tenants were appended to, and the error of the last statement that
// failed, in case the user's function does not return it.
type Tx struct {
	pgx.Tx
	loan *loan
}

// loan is shared by a Tx and the savepoints in it.
type loan struct {
	mu      sync.Mutex
	tenants map[string]struct{}
	fault   error
	// nested reports whether there was a savepoint.
	nested bool
	// closed reports that the user's function has returned. Its transaction is over, and the connection may be in other
	// use.
	closed bool
}

// New guards tx until Close.
func New(tx pgx.Tx) *Tx {
	return &Tx{Tx: tx, loan: &loan{}}
}

// Close ends the loan: every later use fails with pgx.ErrTxClosed.
func (tx *Tx) Close() {
	tx.loan.mu.Lock()
	defer tx.loan.mu.Unlock()
	tx.loan.closed = true
}

// admit returns why a statement may not run, or nil.
func (tx *Tx) admit(sql string) error {
	tx.loan.mu.Lock()
	closed := tx.loan.closed
	tx.loan.mu.Unlock()
	switch {
	case closed:
		return pgx.ErrTxClosed
	case sql == "":
		return nil
	}
	return Admit(sql)
}

// AdmitQueued returns why a statement may not be sent with others in a transaction of the store, or nil.
func AdmitQueued(sql string) error {
	return admittedQueued.admit(sql, func(sql string) error {
		for _, words := range statementHeads(sql) {
			if words[0] == "copy" {
				return fmt.Errorf("COPY refused, a queued statement has no data: %w", ErrTxControl)
			}
		}
		return refuse(sql)
	})
}

// Admit returns why a statement may not run in a transaction of the store, or nil.
func Admit(sql string) error { return admitted.admit(sql, refuse) }

// Dirty records that events were appended for the tenant.
func (tx *Tx) Dirty(tenant string) {
	tx.loan.mu.Lock()
	defer tx.loan.mu.Unlock()
	if tx.loan.tenants == nil {
		tx.loan.tenants = make(map[string]struct{})
	}
	tx.loan.tenants[tenant] = struct{}{}
}

// Dirtied returns the tenants that were appended to.
func (tx *Tx) Dirtied() []string {
	tx.loan.mu.Lock()
	defer tx.loan.mu.Unlock()
	return slices.Collect(maps.Keys(tx.loan.tenants))
}

// Nested reports whether the function began a savepoint.
func (tx *Tx) Nested() bool {
	tx.loan.mu.Lock()
	defer tx.loan.mu.Unlock()
	return tx.loan.nested
}

// note records err if it comes from the server or the connection, and returns it. The last such error is kept, except
// errors that only follow from another. An error of the server before the last one was undone by a savepoint: otherwise
// the transaction would have been aborted, and the last error could not have occurred.
func (tx *Tx) note(err error) error {
	if err == nil || err == pgx.ErrNoRows { // frequent, and no fault
		return err
	}
	taken := usererror.Take(err) // it may wrap an error of the user's, for instance of an argument that encodes itself
	server := pgerr.FromServer(taken)
	if pgerr.Is(taken, pgerr.FailedTransaction) || !server && !pgerr.FromConnection(taken) {
		return err
	}
	tx.loan.mu.Lock()
	defer tx.loan.mu.Unlock()
	if tx.loan.fault == nil || server {
		tx.loan.fault = taken
	}
	return err
}

// Fault returns the error with which a statement, or the connection, failed last, or nil.
func (tx *Tx) Fault() error {
	tx.loan.mu.Lock()
	defer tx.loan.mu.Unlock()
	return tx.loan.fault
}

// Begin starts a savepoint, which the user may commit and roll back.
func (tx *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := tx.admit(""); err != nil {
		return nil, err
	}
	tx.loan.mu.Lock()
	tx.loan.nested = true
	tx.loan.mu.Unlock()
	nested, err := tx.Tx.Begin(ctx)
	if err != nil {
		return nil, tx.note(err)
	}
	return &savepoint{Tx{Tx: nested, loan: tx.loan}}, nil
}

// Commit is refused.
func (tx *Tx) Commit(context.Context) error {
	return fmt.Errorf("commit refused: %w", ErrTxControl)
}

// Rollback is refused.
func (tx *Tx) Rollback(context.Context) error {
	return fmt.Errorf("rollback refused: %w", ErrTxControl)
}

func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := tx.admit(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := tx.Tx.Exec(ctx, sql, args...)
	return tag, tx.note(err)
}

func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := tx.admit(sql); err != nil {
		return failedRows{err: err}, err
	}
	rows, err := tx.Tx.Query(ctx, sql, args...)
	return &guardedRows{Rows: rows, tx: tx}, tx.note(err)
}

func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := tx.admit(sql); err != nil {
		return failedRows{err: err}
	}
	return &guardedRow{row: tx.Tx.QueryRow(ctx, sql, args...), tx: tx}
}

func (tx *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := tx.admit(sql); err != nil {
		return nil, err
	}
	sd, err := tx.Tx.Prepare(ctx, name, sql)
	return sd, tx.note(err)
}

func (tx *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource) (int64, error) {
	if err := tx.admit(""); err != nil {
		return 0, err
	}
	n, err := tx.Tx.CopyFrom(ctx, table, columns, src)
	return n, tx.note(err)
}

func (tx *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := tx.admit(""); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	for _, q := range b.QueuedQueries {
		if err := tx.admit(q.SQL); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
	}
	return &guardedResults{BatchResults: tx.Tx.SendBatch(ctx, b), tx: tx}
}

// savepoint is nested in a Tx: its Commit and Rollback concern the savepoint alone.
type savepoint struct{ Tx }

// Commit releases the savepoint.
func (s *savepoint) Commit(ctx context.Context) error {
	if err := s.admit(""); err != nil {
		return err
	}
	return s.note(s.Tx.Tx.Commit(ctx))
}

// Rollback to the savepoint also forgets the fault: the user's function has dealt with it.
func (s *savepoint) Rollback(ctx context.Context) error {
	if err := s.admit(""); err != nil {
		return err
	}
	if err := s.Tx.Tx.Rollback(ctx); err != nil {
		return s.note(err)
	}
	s.loan.mu.Lock()
	defer s.loan.mu.Unlock()
	s.loan.fault = nil
	return nil
}

// The types below pass everything on and note the errors.

type guardedRows struct {
	pgx.Rows
	tx *Tx
}

func (r *guardedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	_ = r.tx.note(r.Rows.Err())
	return false
}

func (r *guardedRows) Close() {
	r.Rows.Close()
	_ = r.tx.note(r.Rows.Err())
}

type guardedRow struct {
	row pgx.Row
	tx  *Tx
}

func (r *guardedRow) Scan(dest ...any) error { return r.tx.note(r.row.Scan(dest...)) }

type guardedResults struct {
	pgx.BatchResults
	tx *Tx
}

func (r *guardedResults) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	return tag, r.tx.note(err)
}

func (r *guardedResults) Query() (pgx.Rows, error) {
	rows, err := r.BatchResults.Query()
	return &guardedRows{Rows: rows, tx: r.tx}, r.tx.note(err)
}

func (r *guardedResults) QueryRow() pgx.Row {
	return &guardedRow{row: r.BatchResults.QueryRow(), tx: r.tx}
}

func (r *guardedResults) Close() error { return r.tx.note(r.BatchResults.Close()) }

// failedRows is the result of a query that was refused.
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
