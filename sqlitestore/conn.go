package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// openDB returns connections of the driver. loan guards the transactions of the connection that writes, and is nil for
// other connections.
func openDB(name string, loan *loan) (*sql.DB, error) {
	base, err := sqlite.NewConnector(name)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{base, loan}), nil
}

type connector struct {
	driver.Connector
	loan *loan
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := &conn{driverConn: base.(driverConn), loan: c.loan, prepared: make(map[string]driverStmt)}
	if c.loan != nil {
		conn.RegisterCommitHook(c.loan.mayCommit)
		conn.RegisterRollbackHook(c.loan.rolledBack)
	}
	return conn, nil
}

// driverConn is what a connection of modernc.org/sqlite implements.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	sqlite.HookRegisterer
}

type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// conn is a connection that keeps the store's own statements prepared, since parsing takes most of the time of a
// short statement.
type conn struct {
	driverConn
	loan     *loan
	prepared map[string]driverStmt
	// txCtx is the context of the open transaction, if there is one and it belongs to a writer.
	txCtx context.Context
	// spoiled reports that a function of the user may have changed the connection for longer than its transaction.
	spoiled bool
}

// ownTexts are the texts of the store's statements.
var ownTexts = func() map[string]bool {
	texts := make(map[string]bool)
	for _, text := range queries {
		texts[text] = true
	}
	return texts
}()

// own returns a statement of the store, prepared, or nil for other statements.
func (c *conn) own(ctx context.Context, query string) (driverStmt, error) {
	if stmt, ok := c.prepared[query]; ok || !ownTexts[query] {
		return stmt, nil
	}
	stmt, err := c.driverConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.prepared[query] = stmt.(driverStmt)
	return c.prepared[query], nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return run(ctx, c, query, args, driverStmt.ExecContext, c.driverConn.ExecContext)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return run(ctx, c, query, args, driverStmt.QueryContext, c.driverConn.QueryContext)
}

// run runs a statement of the store by prepared, and any other by direct.
func run[R any](ctx context.Context, c *conn, query string, args []driver.NamedValue,
	prepared func(driverStmt, context.Context, []driver.NamedValue) (R, error),
	direct func(context.Context, string, []driver.NamedValue) (R, error),
) (R, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	stmt, err := c.own(ctx, query)
	if err != nil {
		return *new(R), err
	}
	if stmt != nil {
		return prepared(stmt, ctx, args)
	}
	c.look(query)
	result, err := direct(ctx, query, args)
	return result, refused(err)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.look(query)
	stmt, err := c.driverConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &boundStmt{stmt.(driverStmt), c}, nil
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.driverConn.BeginTx(ctx, opts)
	if err != nil || c.loan == nil {
		return tx, err
	}
	c.txCtx = ctx
	return &loanedTx{tx, c}, nil
}

// bound returns the context of a statement, which also ends with that of its transaction. The driver interrupts a statement
// only when the statement's own context ends, and tx.Exec has none. The driver watches the context until the first row.
func (c *conn) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case c.txCtx == nil, c.txCtx.Done() == ctx.Done():
		return ctx, func() {}
	case ctx.Done() == nil:
		return c.txCtx, func() {}
	}
	tx := c.txCtx
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(tx, func() { cancel(context.Cause(tx)) })
	return both, func() {
		stop()
		cancel(nil)
	}
}

// boundStmt is a prepared statement of the user.
type boundStmt struct {
	driverStmt
	conn *conn
}

func (s *boundStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := s.conn.bound(ctx)
	defer cancel()
	result, err := s.driverStmt.ExecContext(ctx, args)
	return result, refused(err)
}

func (s *boundStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	ctx, cancel := s.conn.bound(ctx)
	defer cancel()
	rows, err := s.driverStmt.QueryContext(ctx, args)
	return rows, refused(err)
}

func (c *conn) IsValid() bool { return !c.spoiled && c.driverConn.IsValid() }

func (c *conn) Close() error {
	var err error
	for _, stmt := range c.prepared {
		err = errors.Join(err, stmt.Close())
	}
	if c.loan != nil {
		c.RegisterCommitHook(nil)
		c.RegisterRollbackHook(nil)
	}
	return errors.Join(err, c.driverConn.Close())
}

// spoils finds words of statements whose effect may outlast a transaction, wherever they stand in the text.
var spoils = regexp.MustCompile(`(?i)\b(pragma|attach|detach|temp|temporary)\b`)

// look sets spoiled if a statement of the user may spoil the connection. A spoiled connection is closed after
// the transaction.
func (c *conn) look(query string) {
	if c.loan != nil && c.loan.lent.Load() && spoils.MatchString(query) {
		c.spoiled = true
		c.loan.spoiled.Store(true)
	}
}

// refused returns ErrTxControl for a commit that the hook refused.
func refused(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) && failed.Code() == sqlite3.SQLITE_CONSTRAINT_COMMITHOOK {
		return fmt.Errorf("commit refused: %w", ErrTxControl)
	}
	return err
}

// loan guards a transaction of the store while a function of the user has it. A *sql.Tx cannot be wrapped. So the guard
// is below it: in the driver's connection, and in SQLite's hooks, which are called at every commit and rollback.
type loan struct {
	lent, ended, spoiled atomic.Bool
}

// lend begins a loan.
func (l *loan) lend() {
	l.ended.Store(false)
	l.spoiled.Store(false)
	l.lent.Store(true)
}

// mayCommit is SQLite's commit hook. A result other than 0 turns the commit into a rollback.
func (l *loan) mayCommit() int32 {
	if l.lent.Load() {
		return 1
	}
	return 0
}

// rolledBack is SQLite's rollback hook.
func (l *loan) rolledBack() {
	if l.lent.Load() {
		l.ended.Store(true)
	}
}

// loanedTx is a transaction of the connection that writes. It refuses to commit while it is lent.
type loanedTx struct {
	driver.Tx
	conn *conn
}

func (tx *loanedTx) Commit() error {
	if tx.conn.loan.lent.Load() {
		// database/sql considers the transaction over now, so it must be rolled back.
		return errors.Join(fmt.Errorf("commit refused: %w", ErrTxControl), tx.Rollback())
	}
	tx.conn.txCtx = nil
	return tx.Tx.Commit()
}

func (tx *loanedTx) Rollback() error {
	tx.conn.txCtx = nil
	return tx.Tx.Rollback()
}
