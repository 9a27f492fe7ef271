package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/streams"
	"github.com/millrace-go/millrace/internal/within"
)

// Streams is for package aggregate.
func (t *Tenant) Streams() streams.Log { return streams.New(streamDriver{t}) }

// Streams is Tenant.Streams for projection.DefaultTenant.
func (s *Store) Streams() streams.Log { return s.tenant.Streams() }

// streamDriver implements streams.Driver.
type streamDriver struct{ *Tenant }

// Savepoint has the name of the savepoint of an append. An append within it has one of its own, which is the newer one.
func (d streamDriver) Savepoint(ctx context.Context, tx *sql.Tx, fn func(tx *sql.Tx) error) error {
	if err := execute(ctx, tx, "savepoint"); err != nil {
		return err
	}
	failed := fn(tx)
	ctx = context.WithoutCancel(ctx) // what was written is undone, also after ctx has ended
	if failed != nil {
		if err := execute(ctx, tx, "rollback_savepoint"); err != nil {
			return errors.Join(failed, err)
		}
	}
	if err := execute(ctx, tx, "release_savepoint"); err != nil || failed == nil {
		return errors.Join(failed, err)
	}
	return failed
}

func (d streamDriver) Control(ctx context.Context, tx *sql.Tx, fn func(store.Tx) error) error {
	return d.store.within(ctx, tx, func() error { return d.store.on(ctx, tx).run(fn) })
}

// IsConflict is never true: the file has one writer.
func (d streamDriver) IsConflict(error) bool { return false }

func (d streamDriver) PrepareSnapshots(ctx context.Context) error {
	if d.store.hasSnapshots.Load() {
		return nil
	}
	err := d.store.plane().MakeSnapshots(ctx)
	d.store.hasSnapshots.Store(err == nil)
	return err
}

// ReadPage reads a valid snapshot before the events. It stays valid for them: they follow its event.
func (d streamDriver) ReadPage(ctx context.Context, tx *sql.Tx, r streams.Read) (page streams.Page, err error) {
	err = eventlog.ValidSelection(r.Stream, nil)
	if err == nil {
		err = within.RefuseRead(ctx, d.store)
	}
	if err == nil {
		err = d.store.ready(ctx)
	}
	var q querier = d.store.readers
	if tx != nil {
		q = tx
	}
	var tenant int64
	if err == nil {
		tenant, _, err = d.headIn(ctx, q)
	}
	after := r.After
	if err == nil && r.Fingerprint != "" {
		err = d.readSnapshot(ctx, q, r, tenant, &page)
		if page.Snapshot != nil {
			after = page.Snapshot.Version
		}
	}
	var events eventlog.Page
	if err == nil {
		events, err = d.readEventsAfter(ctx, tx, r.Stream, tenant, after)
	}
	if err != nil {
		return page, d.failed("read stream", r.Stream, err)
	}
	page.Events, page.More = events.Events, events.Truncated || len(events.Events) == streams.PageEvents
	return page, nil
}

// readSnapshot adds the snapshot of a stream to a page, if it is valid, and the generation.
func (d streamDriver) readSnapshot(ctx context.Context, q querier, r streams.Read, tenant int64, page *streams.Page) error {
	s := streams.Snapshot{Stream: r.Stream}
	var state *string
	found, err := runOne(ctx, q, "read_snapshot", []any{tenant, r.Stream, r.Fingerprint, r.After}, &page.Generation, &s.Version, &s.Position, &state)
	if err == nil && found && state != nil {
		s.State = []byte(*state)
		page.Snapshot = &s
	}
	return err
}

// readEventsAfter reads a page of a stream, in the caller's transaction if there is one.
func (d streamDriver) readEventsAfter(ctx context.Context, tx *sql.Tx, stream string, tenant, after int64) (page eventlog.Page, err error) {
	args := []any{tenant, stream, after + 1, int64(-1), streams.PageEvents}
	if tx == nil {
		if page, err = d.store.readEvents(ctx, eventlog.PageBytes, "read_stream", args...); err == nil {
			err = d.still(ctx, tenant) // a drop may have deleted some of the events meanwhile
		}
		return page, err
	}
	rows, err := tx.QueryContext(ctx, queries.Text("read_stream"), args...)
	if err != nil {
		return page, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	return scanEvents(ctx, txRows{rows}, eventlog.PageBytes)
}

// txRows are the rows of a caller's transaction, as the driver has them.
type txRows struct{ *sql.Rows }

func (r txRows) Columns() []string {
	columns, _ := r.Rows.Columns()
	return columns
}

// Next implements driver.Rows.
func (r txRows) Next(to []driver.Value) error {
	if !r.Rows.Next() {
		if err := r.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	values, targets := make([]any, len(to)), make([]any, len(to))
	for i := range values {
		targets[i] = &values[i]
	}
	if err := r.Scan(targets...); err != nil {
		return err
	}
	for i, v := range values {
		to[i] = v
	}
	return nil
}

func (d streamDriver) FirstAppend(ctx context.Context, tx *sql.Tx, key string) (first streams.First, found bool, err error) {
	var q querier = d.store.readers
	if tx != nil {
		q = tx
	}
	var tenant, from int64
	if err = d.store.ready(ctx); err == nil {
		found, err = runOne(ctx, q, "first_append", []any{d.name, key}, &tenant, &first.Stream, &from, &first.Version)
	}
	if err == nil && found {
		first.Repeated = true
		first.Positions, err = column[int64](ctx, q, "positions_of_versions", tenant, first.Stream, from, first.Version)
	}
	if err != nil {
		return first, false, d.failed("look for the key", key, err)
	}
	return first, found, nil
}
