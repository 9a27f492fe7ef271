package pgstore

import (
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
	"github.com/millrace-go/millrace/internal/within"
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
		return d.failedTx("append to tenant", d.name, err)
	}
	return nil
}

func (d streamDriver) IsConflict(err error) bool {
	return pgerr.Is(err, pgerr.Deadlock, pgerr.SerializationFailure)
}

func (d streamDriver) MakeSnapshots(ctx context.Context) error {
	if err := d.store.plane().MakeSnapshots(ctx); err != nil {
		return fmt.Errorf("make the table of snapshots, which Migrate also makes: %w", d.store.lacking(ctx, d.store.opts.Schema, err))
	}
	return nil
}

func (d streamDriver) SnapshotsMade() *atomic.Bool { return &d.store.lookups.snapshots }

func (d streamDriver) ReadPage(ctx context.Context, tx pgx.Tx, r streams.Read) (streams.Page, error) {
	failed := d.failedTx
	if tx == nil {
		failed = func(doing, what string, err error) error { return d.failed(ctx, doing, what, err) }
	}
	page, err := d.readPage(ctx, tx, r)
	if err != nil {
		return page, failed("read stream", r.Stream, err)
	}
	return page, nil
}

func (d streamDriver) readPage(ctx context.Context, tx pgx.Tx, r streams.Read) (page streams.Page, err error) {
	if err := errors.Join(eventlog.ValidSelection(r.Stream, nil), within.RefuseRead(ctx, d.store)); err != nil {
		return page, err
	}
	statement := "read_stream"
	if r.Fingerprint != "" {
		statement = "read_from_snapshot"
	}
	read, err := d.readEvents(ctx, tx, statement, r)
	if err != nil && r.Fingerprint != "" && tx == nil && pgerr.OfValue(err) {
		r.Fingerprint = "" // a value cannot be read: without a snapshot it is found which one
		read, err = d.readEvents(ctx, tx, "read_stream", r)
	}
	if err != nil {
		return page, err
	}
	page.Saves = r.Fingerprint != ""
	if events := read.List; page.Saves && len(events) > 0 && events[0].Position < 0 {
		read.List = events[1:]
		err = snapshotOf(&page, events[0])
	}
	page.Events, page.Truncated = read.List, read.Truncated
	return page, err
}

// readEvents runs the statement of a page. A page that may have a snapshot is not searched for a value that cannot be read: the search would
// take the first row for an event.
func (d streamDriver) readEvents(ctx context.Context, tx pgx.Tx, statement string, r streams.Read) (wire.Events, error) {
	if tx != nil {
		args := []any{pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats(wire.Binary), r.Stream, r.After + 1, r.Limit, int64(math.MinInt64)}
		if r.Fingerprint != "" {
			args = append(args, d.name, r.Fingerprint)
		}
		return readRowsOf(ctx, tx, d.sql(statement), args)
	}
	args := [][]byte{[]byte(r.Stream), wire.Int(r.After + 1), wire.Int(int64(r.Limit)), wire.Int(math.MinInt64)}
	reader := pageRead{tenant: d.Tenant, maxBytes: eventlog.PageBytes, run: d.preparedRun(statement)}
	if r.Fingerprint != "" {
		return reader.once(ctx, d.sql(statement), append(args, []byte(d.name), []byte(r.Fingerprint)))
	}
	return reader.page(ctx, d.sql(statement), args)
}

// preparedRun returns a pageRead.run that reads by a prepared statement, if the session of the pool may have one.
func (d streamDriver) preparedRun(statement string) func(context.Context, string, [][]byte, func(*pgconn.ResultReader) error) error {
	return func(ctx context.Context, sql string, args [][]byte, decode func(*pgconn.ResultReader) error) error {
		return d.store.onConn(ctx, func(conn *pgx.Conn) error {
			name := ""
			if sql == d.sql(statement) && d.store.keepsPrepared(conn) {
				name = d.store.prepared.name(d.name, "_"+statement)
			}
			if name != "" {
				err := prepareAll(ctx, conn, name, sql)
				if err == nil {
					err = decode(conn.PgConn().ExecPrepared(ctx, name, args, nil, wire.Binary))
				}
				if !forgetPrepared(ctx, conn, err, name) {
					return err
				}
			}
			return decode(conn.PgConn().ExecParams(ctx, sql, args, nil, nil, wire.Binary))
		})
	}
}

// readRowsOf is pageRead.once in a transaction of the caller, which cannot be cut off.
func readRowsOf(ctx context.Context, tx pgx.Tx, sql string, args []any) (read wire.Events, err error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return read, err
	}
	defer rows.Close()
	var decoder wire.Decoder
	for size := 0; rows.Next(); {
		if size >= eventlog.PageBytes {
			read.Truncated = true
			break
		}
		e, err := decoder.Envelope(rows.RawValues())
		if err != nil {
			return read, err
		}
		read.List = append(read.List, e)
		size += e.Size()
	}
	rows.Close()
	return read, rows.Err()
}

// snapshotOf adds the first row of read_from_snapshot.sql to a page.
func snapshotOf(page *streams.Page, e event.Envelope) error {
	page.Saved = e.Version
	if err := json.Unmarshal(e.RawHeaders, &page.Generation); err != nil || len(e.Body) == 0 {
		return err
	}
	var state *string
	if err := json.Unmarshal(e.Body, &state); err != nil || state == nil {
		return err
	}
	page.Snapshot = &streams.Snapshot{Stream: e.Stream, Version: e.Version, Position: -e.Position - 1, Time: e.Time, State: []byte(*state)}
	return nil
}

func (d streamDriver) FirstAppend(ctx context.Context, tx pgx.Tx, key string) (first streams.First, found bool, err error) {
	const doing = "look for the key"
	if err := within.RefuseRead(ctx, d.store); err != nil {
		return first, false, d.failedTx(doing, key, err)
	}
	read := func(q querier) (err error) {
		first.Stream, first.Appended, found, err = d.firstAppend(ctx, q, key)
		return err
	}
	if tx != nil {
		if err := read(tx); err != nil {
			return first, false, d.failedTx(doing, key, err)
		}
		return first, found, nil
	}
	if err := d.store.onConn(ctx, func(conn *pgx.Conn) error { return read(conn) }); err != nil {
		return first, false, d.failed(ctx, doing, key, err)
	}
	return first, found, nil
}
