package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"modernc.org/sqlite"
)

// openDB returns connections of the driver. Those that write have a loan. While another file has the path of at, which
// may be nil, no connection is opened.
func openDB(name string, at *location, writes bool) (*sql.DB, error) {
	base, err := sqlite.NewConnector(name)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{base, at, writes}), nil
}

type connector struct {
	driver.Connector
	at     *location
	writes bool
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.at.check(); err != nil {
		return nil, err
	}
	if c.at != nil {
		indexesMu.Lock()
		defer indexesMu.Unlock()
	}
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := &conn{
		driverConn: base.(driverConn), prepared: make(map[string]driverStmt),
		kept: keptStmts{idle: make(map[string]idleStmt)}, at: c.at,
	}
	if c.at != nil {
		if err := conn.openLog(ctx); err != nil {
			return nil, errors.Join(err, base.Close())
		}
	}
	if c.writes {
		conn.loan = newLoan(base)
		conn.RegisterCommitHook(conn.loan.mayCommit)
		conn.RegisterRollbackHook(conn.loan.rolledBack)
	}
	return conn, nil
}

// openLog makes SQLite open the log, and finds out which files it has opened. indexesMu is held.
func (c *conn) openLog(ctx context.Context) error {
	rows, err := c.driverConn.QueryContext(ctx, queries.Text("schema_version"), nil)
	if err != nil {
		return err
	}
	if err := rows.Close(); err != nil {
		return err
	}
	index, err := enterIndex(c.at)
	if err != nil {
		return err
	}
	c.index, c.log = index, index.log(c.at)
	return nil
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
// short statement. database/sql makes one call of it at a time, also for rows and prepared statements.
type conn struct {
	driverConn
	prepared map[string]driverStmt
	kept     keptStmts
	// loan guards the transactions of a connection that writes. It is nil for other connections.
	loan *loan
	// log are the files of the write-ahead log that a connection that writes has opened. The first connection to a new
	// file opens them in its first transaction.
	log   logFiles
	at    *location
	index *logIndex
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
	if c.loan.lent() && !ownTexts[query] {
		stmt, err := c.borrow(ctx, query)
		if err != nil {
			return nil, err
		}
		result, err := stmt.ExecContext(ctx, args)
		return result, stmt.ended(err)
	}
	return run(ctx, c, query, args, driverStmt.ExecContext, c.driverConn.ExecContext)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.loan.lent() && !ownTexts[query] {
		stmt, err := c.borrow(ctx, query)
		if err != nil {
			return nil, err
		}
		rows, err := stmt.QueryContext(ctx, args)
		return rows, stmt.ended(err)
	}
	rows, err := run(ctx, c, query, args, driverStmt.QueryContext, c.driverConn.QueryContext)
	return c.loan.guardRows(rows, err, nil)
}

// run runs a statement of the store by prepared, and any other by direct.
func run[R any](ctx context.Context, c *conn, query string, args []driver.NamedValue,
	prepared func(driverStmt, context.Context, []driver.NamedValue) (R, error),
	direct func(context.Context, string, []driver.NamedValue) (R, error),
) (result R, err error) {
	ctx, err = c.loan.admit(ctx)
	if err != nil {
		return result, err
	}
	stmt, err := c.own(ctx, query)
	switch {
	case err != nil:
	case stmt != nil:
		result, err = prepared(stmt, ctx, args)
		if err == nil {
			c.loan.ran(query)
		}
	default:
		result, err = direct(ctx, query, args)
	}
	return result, c.loan.note(err)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.borrow(ctx, query)
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.driverConn.BeginTx(ctx, opts)
	if err != nil || c.loan == nil {
		return tx, err
	}
	return c.loan.begin(tx), nil
}

// rollback rolls back the open transaction.
func (c *conn) rollback() error {
	_, err := c.driverConn.ExecContext(context.Background(), queries.Text("abandon"), nil)
	return err
}

func (c *conn) IsValid() bool {
	return (c.loan == nil || c.loan.reusable()) && c.driverConn.IsValid()
}

func (c *conn) Close() error {
	var err error
	for _, stmt := range c.prepared {
		err = errors.Join(err, stmt.Close())
	}
	for _, stmt := range c.kept.idle {
		err = errors.Join(err, stmt.Close())
	}
	if c.loan != nil {
		c.loan.close()
		c.RegisterCommitHook(nil)
		c.RegisterRollbackHook(nil)
	}
	if c.index == nil {
		return errors.Join(err, c.driverConn.Close())
	}
	indexesMu.Lock()
	defer indexesMu.Unlock()
	// SQLite would move the log into the file when it closes the last connection, by an index that does not fit the log
	// any more.
	if c.index.replaced(c.at.path) {
		return err
	}
	defer leaveIndex(c.index)
	return errors.Join(err, c.driverConn.Close())
}
