package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/valid"
)

// readEvents reads events by a statement, whose columns are those of read_all.sql.
func (db *database) readEvents(ctx context.Context, scan scanning, statement string,
	args ...any) (page eventlog.Page, err error) {
	err = db.readRows(ctx, statement, args, func(rows driver.Rows) error {
		page, err = scan.events(ctx, rows)
		return err
	})
	return page, err
}

// readRows calls fn with the rows of a statement. It takes them from the driver, since database/sql copies each value
// twice more.
func (db *database) readRows(ctx context.Context, statement string, args []any,
	fn func(driver.Rows) error) (err error) {
	session, err := db.readers.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i].Value, err = driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return err
		}
		values[i].Ordinal = i + 1
	}
	return session.Raw(func(driverConn any) (err error) {
		rows, err := driverConn.(*conn).QueryContext(ctx, queries.Text(statement), values)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		return fn(rows)
	})
}

// scanning says how events are scanned.
type scanning struct {
	// maxBytes is the size after which a scan stops, 0 for no limit.
	maxBytes int
	// take gets each event, until it returns false. It must not keep the pointer. If it is nil, the events are listed.
	take func(e *event.Envelope) (more bool)
}

// checkEvery is the number of rows after which a scan looks at its context.
const checkEvery = 256

// events scans events. Their positions rise. It stops after the event that brings their size to maxBytes or more.
func (s scanning) events(ctx context.Context, rows driver.Rows) (page eventlog.Page, err error) {
	var row eventRow
	var e event.Envelope
	var buffer []byte
	last := int64(-1)
	types := make(map[string]string)
	for n, size := 0, 0; ; {
		switch err := rows.Next(row[:]); {
		case err == io.EOF:
			return page, nil
		case err != nil:
			return page, err
		}
		page.Truncated = s.maxBytes > 0 && size >= s.maxBytes
		if page.Truncated {
			return page, nil
		}
		e, buffer, err = row.envelope(buffer)
		if err != nil {
			return page, err
		}
		if e.Position <= last {
			return page, fmt.Errorf("%w: the event at position %d follows that at %d", ErrCorrupt, e.Position, last)
		}
		last = e.Position
		if known, ok := types[e.Type]; ok {
			e.Type = known // so that a page keeps one copy of each type
		} else {
			types[e.Type] = e.Type
		}
		size += e.Size()
		if s.take == nil {
			page.Events = append(page.Events, e)
		} else if !s.take(&e) {
			return page, nil
		}
		n++
		if n%checkEvery == 0 && ctx.Err() != nil {
			return page, context.Cause(ctx)
		}
	}
}

// eventRow is a row with the columns of read_all.sql.
type eventRow [10]driver.Value

// envelope returns the event of a row, and the buffer for the next checksum. The driver makes new values for each row.
// The error is ErrCorrupt if the event differs from what was appended.
func (row *eventRow) envelope(buffer []byte) (e event.Envelope, _ []byte, err error) {
	var id, micros, sum int64
	var ok [len(row)]bool
	id, ok[0] = row[0].(int64)
	e.Stream, ok[1] = row[1].(string)
	e.Version, ok[2] = row[2].(int64)
	e.Type, ok[3] = row[3].(string)
	e.Body, ok[4] = bytesOf(row[4])
	e.RawHeaders, ok[5] = bytesOf(row[5])
	e.CausationID, ok[6] = textOf(row[6])
	e.CorrelationID, ok[7] = textOf(row[7])
	micros, ok[8] = row[8].(int64)
	sum, ok[9] = row[9].(int64)
	e.Position = id & lastPosition
	for i, ok := range ok {
		if !ok {
			return e, buffer, fmt.Errorf("%w: column %d of the event at position %d is of type %T",
				ErrCorrupt, i, e.Position, row[i])
		}
	}
	buffer, actual := checksum(buffer, id, e.Version, micros, e.Stream, e.Type, e.Body, e.RawHeaders, e.CausationID,
		e.CorrelationID)
	if actual != sum {
		return e, buffer, changedEvent(id)
	}
	e.Time = valid.Time(time.UnixMicro(micros))
	return e, buffer, nil
}

func changedEvent(id int64) error {
	return fmt.Errorf("%w: the event at position %d does not match its checksum", ErrCorrupt, id&lastPosition)
}

// bytesOf and textOf return a value, empty for null.
func bytesOf(v driver.Value) (raw []byte, ok bool) {
	if v == nil {
		return nil, true
	}
	raw, ok = v.([]byte)
	return raw, ok
}

func textOf(v driver.Value) (text string, ok bool) {
	if v == nil {
		return "", true
	}
	text, ok = v.(string)
	return text, ok
}
