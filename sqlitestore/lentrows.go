package sqlitestore

import (
	"database/sql"
	"database/sql/driver"
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
	// closed is why the rows were closed, nil while they are open.
	closed error
}

func (l *loan) guardRows(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil || l == nil || l.phase.Load() != phaseLent {
		return rows, err
	}
	guarded := &lentRows{driverRows: rows.(driverRows), loan: l}
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
	return r.driverRows.Close()
}
