package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/streams"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// Streams is for package aggregate.
func (t *Tenant) Streams() streams.Log { return streams.New(streamDriver{t}) }

// Streams is Tenant.Streams for projection.DefaultTenant.
func (s *Store) Streams() streams.Log { return s.tenant.Streams() }

// streamDriver implements streams.Driver.
type streamDriver struct{ *Tenant }

func (d streamDriver) Types() *upcast.Graph { return d.store.opts.Types.Engine() }

// Savepoint undoes also after ctx has ended: the caller may commit what the transaction did before.
func (d streamDriver) Savepoint(ctx context.Context, tx pgx.Tx, fn func(tx pgx.Tx) error) error {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if err := fn(savepoint); err != nil {
		if undo := endSavepoint(ctx, savepoint.Rollback); undo != nil {
			return errors.Join(err, undo)
		}
		return err
	}
	return endSavepoint(ctx, savepoint.Commit)
}

// endSavepoint ends a savepoint, also after ctx has ended.
func endSavepoint(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	return end(ctx)
}

func (d streamDriver) Control(ctx context.Context, tx pgx.Tx, fn func(store.Tx) error) error {
	if err := d.store.onPlainly(ctx, tx).run(fn); err != nil {
		return d.wrapTx("append to tenant", d.name, err)
	}
	return nil
}

func (d streamDriver) IsConflict(err error) bool {
	return pgerr.Is(err, pgerr.Deadlock, pgerr.SerializationFailure)
}

func (d streamDriver) MakeSnapshots(ctx context.Context) error {
	if err := d.store.plane().MakeSnapshots(ctx); err != nil {
		return fmt.Errorf("make the table of snapshots, which Migrate also makes: %w", err)
	}
	return nil
}

func (d streamDriver) SnapshotsMade() *atomic.Bool { return &d.store.hasSnapshots }

func (d streamDriver) Erasures() *atomic.Int64 { return d.store.followers.Erasures() }

func (d streamDriver) ReadPage(ctx context.Context, tx pgx.Tx, r streams.Read,
	take func(e *event.Envelope) bool) (streams.Page, error) {
	failed := d.wrapTx
	if tx == nil {
		failed = func(doing, what string, err error) error { return d.wrap(ctx, doing, what, err) }
	}
	page, err := d.readPage(ctx, tx, r, take)
	if err != nil {
		return page, failed("read stream", r.Stream, err)
	}
	return page, nil
}

func (d streamDriver) readPage(ctx context.Context, tx pgx.Tx, r streams.Read,
	take func(e *event.Envelope) bool) (page streams.Page, err error) {
	if err := errors.Join(eventlog.ValidSelection(r.Stream, nil), d.db.refuseRead(ctx)); err != nil {
		return page, err
	}
	each := func(e *event.Envelope) bool {
		page.Stored++
		return take(e)
	}
	if r.Fingerprint != "" {
		page.Saves = true
		var notSnapshot error
		page.Truncated, err = d.readEvents(ctx, tx, "read_from_snapshot", r, func(e *event.Envelope) bool {
			if e.Position >= 0 {
				return each(e)
			}
			notSnapshot = begin(&page, r, e)
			return notSnapshot == nil && !page.Damaged
		})
		err = cmp.Or(err, notSnapshot)
		if err == nil || page.Stored > 0 || tx != nil || !pgerr.OfValue(err) {
			return page, err
		}
		page, r.Fingerprint = streams.Page{}, "" // a value cannot be read: without a snapshot it is found which one
	}
	page.Truncated, err = d.readEvents(ctx, tx, "read_stream", r, each)
	return page, err
}

// readEvents runs the statement of a page. A page that may have a snapshot is not searched for a value that cannot be
// read: the search would take the first row for an event.
func (d streamDriver) readEvents(ctx context.Context, tx pgx.Tx, statement string, r streams.Read,
	take func(e *event.Envelope) bool) (truncated bool, err error) {
	if tx != nil {
		args := []any{
			pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats(wire.Binary), r.Stream, r.After + 1, r.Limit,
			int64(math.MinInt64),
		}
		if r.Fingerprint != "" {
			args = append(args, d.name, r.Fingerprint, r.SnapshotAfter())
		}
		return readRowsOf(ctx, tx, d.sql(statement), args, take)
	}
	sql := d.sql(statement)
	args := [][]byte{[]byte(r.Stream), wire.Int(r.After + 1), wire.Int(int64(r.Limit)), wire.Int(math.MinInt64)}
	begun := false
	pages := pageRead{tenant: d.namedTenant, run: d.preparedRun(statement, sql, &begun)}
	pages.reading = wire.Reading{MaxBytes: eventlog.PageBytes, Take: func(e *event.Envelope) bool {
		begun = true
		return take(e)
	}}
	var read wire.Events
	if r.Fingerprint != "" {
		read, err = pages.once(ctx, sql, append(args,
			[]byte(d.name), []byte(r.Fingerprint), wire.Int(r.SnapshotAfter())))
	} else {
		read, err = pages.page(ctx, sql, args)
	}
	return read.Truncated, err
}

// preparedRun returns a pageRead.run that runs a statement, whose text is own, as a prepared one, if the session of the
// pool may have it. It does not read again after begun was set: the rows before have been used.
func (d streamDriver) preparedRun(statement, own string,
	begun *bool) func(context.Context, string, [][]byte, func(*pgconn.ResultReader) error) error {
	return func(ctx context.Context, sql string, args [][]byte, decode func(*pgconn.ResultReader) error) error {
		return d.store.onConn(ctx, func(conn *pgx.Conn) error {
			var prepared tenantStatement
			if sql == own && d.store.keepsPrepared(conn) {
				prepared = d.store.prepared.statement(d.Tenant, statement)
			}
			if prepared.name != "" {
				err := decodePrepared(ctx, conn, prepared, args, decode)
				if !forgetPrepared(ctx, conn, err, prepared.name) || *begun {
					return err
				}
			}
			return decode(conn.PgConn().ExecParams(ctx, sql, args, nil, nil, wire.Binary))
		})
	}
}

// decodePrepared runs a prepared statement, which it prepares if the session has not done so, and passes its result to
// decode.
func decodePrepared(ctx context.Context, conn *pgx.Conn, s tenantStatement, args [][]byte,
	decode func(*pgconn.ResultReader) error) error {
	if err := prepareAll(ctx, conn, s.name, s.sql); err != nil {
		return err
	}
	return decode(conn.PgConn().ExecPrepared(ctx, s.name, args, nil, wire.Binary))
}

// readRowsOf is pageRead.once in a transaction of the caller, which cannot be cut off.
func readRowsOf(ctx context.Context, tx pgx.Tx, sql string, args []any,
	take func(e *event.Envelope) bool) (truncated bool, err error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	var decoder wire.Decoder
	var e event.Envelope
	for size := 0; rows.Next(); {
		if size >= eventlog.PageBytes {
			truncated = true
			break
		}
		e, err = decoder.Envelope(rows.RawValues())
		if err != nil {
			return false, err
		}
		size += e.Size()
		if !take(&e) {
			break
		}
	}
	rows.Close()
	return truncated, rows.Err()
}

// begin begins a page by the first row of read_from_snapshot.sql.
func begin(page *streams.Page, r streams.Read, e *event.Envelope) error {
	page.Saved = e.Version
	if err := json.Unmarshal(e.RawHeaders, &page.Generation); err != nil || e.CausationID == "" {
		return err
	}
	s := streams.Snapshot{
		Stream: e.Stream, Version: e.Version, Position: -e.Position - 1, Time: e.Time, State: []byte(e.CausationID),
	}
	page.Damaged = !r.Begin(&s)
	return nil
}

func (d streamDriver) FirstAppend(ctx context.Context, tx pgx.Tx,
	key string) (first streams.First, found bool, err error) {
	const doing = "look for the key"
	if err := d.db.refuseRead(ctx); err != nil {
		return first, false, d.wrapTx(doing, key, err)
	}
	read := func(q querier) (err error) {
		first.Stream, first.Appended, found, err = d.firstAppend(ctx, q, key)
		return err
	}
	if tx != nil {
		if err := read(tx); err != nil {
			return first, false, d.wrapTx(doing, key, err)
		}
		return first, found, nil
	}
	if err := d.store.onConn(ctx, func(conn *pgx.Conn) error { return read(conn) }); err != nil {
		return first, false, d.wrap(ctx, doing, key, err)
	}
	return first, found, nil
}
