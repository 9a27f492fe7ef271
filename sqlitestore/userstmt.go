package sqlitestore

import (
	"context"
	"database/sql/driver"
)

const (
	// keptStatements is how many statements of users a connection keeps prepared. An application has fewer different
	// statements, unless it writes values into their texts.
	keptStatements = 64
	// keptText is the size of the longest statement that is kept, in bytes. Most longer statements are generated for
	// one use.
	keptText = 8 << 10
)

// keptStmts are the prepared statements of users that are not in use, by their text. Handlers run the same few
// statements in each batch, and parsing takes most of the time of a short statement.
type keptStmts struct {
	idle map[string]idleStmt
	uses int64
}

// idleStmt is a statement, and when it was used last.
type idleStmt struct {
	driverStmt
	used int64
}

// take removes and returns the statement of a text. It returns nil if there is none.
func (k *keptStmts) take(query string) driverStmt {
	stmt, ok := k.idle[query]
	if !ok {
		return nil
	}
	delete(k.idle, query)
	return stmt.driverStmt
}

// keep adds a statement that is no longer in use. It closes the statement instead if one of the same text is kept
// already. If there are too many, it closes the oldest one.
func (k *keptStmts) keep(query string, stmt driverStmt) error {
	if _, kept := k.idle[query]; kept || len(query) > keptText {
		return stmt.Close()
	}
	var err error
	if len(k.idle) == keptStatements {
		err = k.closeOldest()
	}
	k.uses++
	k.idle[query] = idleStmt{stmt, k.uses}
	return err
}

func (k *keptStmts) closeOldest() error {
	var oldest string
	used := k.uses + 1
	for query, stmt := range k.idle {
		if stmt.used < used {
			oldest, used = query, stmt.used
		}
	}
	stmt := k.idle[oldest]
	delete(k.idle, oldest)
	return stmt.Close()
}

// userStmt is a prepared statement of a user. When the user has closed it and all its rows, the statement is closed in
// the driver or kept for later use.
type userStmt struct {
	driverStmt
	conn  *conn
	query string
	// uses counts the statement itself and its open rows.
	uses int
	// kept reports whether the statement may be kept for later use.
	kept bool
}

// borrow returns a prepared statement for a query of a user. While the connection is lent, it reuses a kept statement
// of the same query, if there is one.
func (c *conn) borrow(ctx context.Context, query string) (*userStmt, error) {
	if _, err := c.loan.admit(ctx); err != nil {
		return nil, err
	}
	s := &userStmt{conn: c, query: query, uses: 1, kept: c.loan.lent()}
	if s.kept {
		s.driverStmt = c.kept.take(query)
		if s.driverStmt != nil {
			return s, nil
		}
	}
	if c.loan.look(query) {
		s.kept = false // it is looked at whenever it runs
	}
	stmt, err := c.driverConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, c.loan.note(err)
	}
	s.driverStmt = stmt.(driverStmt)
	return s, nil
}

func (s *userStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	ctx, err := s.conn.loan.admit(ctx)
	if err != nil {
		return nil, err
	}
	result, err := s.driverStmt.ExecContext(ctx, args)
	return result, s.note(err)
}

func (s *userStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	ctx, err := s.conn.loan.admit(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.driverStmt.QueryContext(ctx, args)
	return s.conn.loan.guardRows(rows, s.note(err), s)
}

// note records the error of a run, and returns it. A statement that has failed is not kept.
func (s *userStmt) note(err error) error {
	if err != nil {
		s.kept = false
	}
	return s.conn.loan.note(err)
}

// Close ends one use of the statement. The last one closes the statement in the driver, or keeps it.
func (s *userStmt) Close() error {
	s.uses--
	switch {
	case s.uses > 0:
		return nil
	case s.kept:
		return s.conn.kept.keep(s.query, s.driverStmt)
	}
	return s.driverStmt.Close()
}

// ended closes a statement after its only use. It returns err, or the error of Close if err is nil.
func (s *userStmt) ended(err error) error {
	if closed := s.Close(); err == nil {
		err = closed
	}
	return err
}
