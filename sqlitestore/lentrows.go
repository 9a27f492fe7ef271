package sqlitestore

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
)

// driverRows is what rows of modernc.org/sqlite implement.
type driverRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// lentRows are rows of the user. They are closed with the loan: a function may leave them open, and open rows keep an
// interrupt in force.
type lentRows struct {
	driverRows
	loan *loan
	// stmt is the statement whose use ends with the rows, nil for those of the store.
	stmt *userStmt
	// closed is why the rows were closed, nil while they are open.
	closed error
}

// guardRows returns the rows of a query, guarded while the connection is lent. stmt is the user's statement, or nil.
func (l *loan) guardRows(rows driver.Rows, err error, stmt *userStmt) (driver.Rows, error) {
	if err != nil || !l.lent() {
		return rows, err
	}
	guarded := &lentRows{driverRows: rows.(driverRows), loan: l, stmt: stmt}
	if stmt != nil {
		stmt.uses++
	}
	l.rows[guarded] = struct{}{}
	return guarded, nil
}

func (r *lentRows) Next(values []driver.Value) error {
	if r.closed != nil {
		return r.closed
	}
	if err := r.driverRows.Next(values); err != io.EOF {
		return r.loan.note(err)
	}
	return io.EOF
}

func (r *lentRows) Close() error {
	if r.closed != nil {
		return nil
	}
	r.closed = sql.ErrTxDone
	delete(r.loan.rows, r)
	err := r.driverRows.Close()
	if r.stmt == nil {
		return err
	}
	if err != nil {
		r.stmt.kept = false
	}
	return errors.Join(err, r.stmt.Close())
}
