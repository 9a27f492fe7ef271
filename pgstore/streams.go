package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/streams"
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

func (d streamDriver) Savepoint(ctx context.Context, tx pgx.Tx, fn func(tx pgx.Tx) error) error {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if err := fn(savepoint); err != nil {
		if undo := savepoint.Rollback(ctx); undo != nil {
			return errors.Join(err, undo)
		}
		return err
	}
	return savepoint.Commit(ctx)
}

func (d streamDriver) Control(ctx context.Context, tx pgx.Tx, fn func(store.Tx) error) error {
	return d.store.onPlainly(ctx, tx).run(fn)
}

func (d streamDriver) IsConflict(err error) bool {
	return pgerr.Is(err, pgerr.Deadlock, pgerr.SerializationFailure)
}

func (d streamDriver) PrepareSnapshots(ctx context.Context) error {
	if d.store.lookups.snapshots.Load() {
		return nil
	}
	if err := d.store.plane().MakeSnapshots(ctx); err != nil {
		return fmt.Errorf("make the table of snapshots, which Migrate also makes: %w", d.store.lacking(ctx, d.store.opts.Schema, err))
	}
	d.store.lookups.snapshots.Store(true)
	return nil
}

func (d streamDriver) ReadPage(ctx context.Context, tx pgx.Tx, r streams.Read) (page streams.Page, err error) {
	failed := d.failedTx
	if tx == nil {
		failed = func(doing, what string, err error) error { return d.failed(ctx, doing, what, err) }
	}
	if err = eventlog.ValidSelection(r.Stream, nil); err == nil {
		err = within.RefuseRead(ctx, d.store)
	}
	if err == nil {
		page, err = d.readPage(ctx, tx, r)
	}
	if err != nil {
		return page, failed("read stream", r.Stream, err)
	}
	return page, nil
}

func (d streamDriver) readPage(ctx context.Context, tx pgx.Tx, r streams.Read) (page streams.Page, err error) {
	statement := "read_stream"
	if r.Fingerprint != "" {
		statement = "read_from_snapshot"
	}
	var read wire.Events
	if tx != nil {
		args := []any{pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats(wire.Binary), r.Stream, r.After + 1, streams.PageEvents, int64(math.MinInt64)}
		if r.Fingerprint != "" {
			args = append(args, d.name, r.Fingerprint)
		}
		read, err = readRowsOf(ctx, tx, d.sql(statement), args)
	} else {
		args := [][]byte{[]byte(r.Stream), wire.Int(r.After + 1), wire.Int(streams.PageEvents), wire.Int(math.MinInt64)}
		if r.Fingerprint != "" {
			args = append(args, []byte(d.name), []byte(r.Fingerprint))
		}
		reader := pageRead{tenant: d.Tenant, maxBytes: eventlog.PageBytes, run: d.preparedRun(statement)}
		read, err = reader.page(ctx, d.sql(statement), args)
	}
	if err != nil {
		return page, err
	}
	if events := read.List; len(events) > 0 && events[0].Type == "" {
		read.List = events[1:]
		err = snapshotOf(&page, events[0])
	}
	page.Events, page.More = read.List, read.Truncated || len(read.List) == streams.PageEvents
	return page, err
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
	if err := json.Unmarshal(e.RawHeaders, &page.Generation); err != nil {
		return err
	}
	var state *string
	if len(e.Body) > 0 {
		if err := json.Unmarshal(e.Body, &state); err != nil {
			return err
		}
	}
	if state != nil {
		page.Snapshot = &streams.Snapshot{Stream: e.Stream, Version: e.Version, Position: e.Position, Time: e.Time, State: []byte(*state)}
	}
	return nil
}

func (d streamDriver) FirstAppend(ctx context.Context, tx pgx.Tx, key string) (first streams.First, found bool, err error) {
	read := func(q querier) error {
		rows, err := q.Query(ctx, d.sql("first_append"), pgx.QueryExecModeExec, key)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&first.Stream, &first.Version, &first.Positions}, func() error {
			found, first.Repeated = true, true
			return nil
		})
		return err
	}
	if tx != nil {
		err = read(tx)
	} else {
		err = d.store.onConn(ctx, func(conn *pgx.Conn) error { return read(conn) })
	}
	if err != nil {
		return first, false, d.failed(ctx, "look for the key", key, err)
	}
	return first, found, nil
}
