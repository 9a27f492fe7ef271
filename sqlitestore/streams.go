package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/streams"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/internal/valid"
)

// Streams is for package aggregate.
func (t *Tenant) Streams() streams.Log { return streams.New(streamDriver{t}) }

// Streams is Tenant.Streams for projection.DefaultTenant.
func (s *Store) Streams() streams.Log { return s.tenant.Streams() }

// streamDriver implements streams.Driver.
type streamDriver struct{ *Tenant }

func (d streamDriver) Types() *upcast.Graph { return d.store.opts.Types.Engine() }

// Savepoint has the name of the savepoint of an append. An append within it has one of its own, which is the newer one.
func (d streamDriver) Savepoint(ctx context.Context, tx *sql.Tx, fn func(tx *sql.Tx) error) error {
	var failed error
	err := savepoint(ctx, tx, func() error {
		failed = fn(tx)
		return failed
	})
	if err != nil {
		return err
	}
	return failed
}

func (d streamDriver) Control(ctx context.Context, tx *sql.Tx, fn func(store.Tx) error) error {
	return d.store.within(ctx, tx, func() error { return d.store.on(ctx, tx).run(fn) })
}

// IsConflict is never true: the file has one writer.
func (d streamDriver) IsConflict(error) bool { return false }

func (d streamDriver) MakeSnapshots(ctx context.Context) error {
	return d.store.plane().MakeSnapshots(ctx)
}

func (d streamDriver) SnapshotsMade() *atomic.Bool { return &d.store.hasSnapshots }

func (d streamDriver) Erasures() *atomic.Int64 { return d.store.followers.Erasures() }

// ReadPage reads a valid snapshot before the events. It stays valid for them: they follow its event.
func (d streamDriver) ReadPage(ctx context.Context, tx *sql.Tx, r streams.Read,
	take func(e *event.Envelope) bool) (streams.Page, error) {
	page, err := d.readPage(ctx, tx, r, take)
	if err != nil {
		return streams.Page{}, d.wrap("read stream", r.Stream, err)
	}
	return page, nil
}

// by returns the transaction, or the readers if there is none.
func (d streamDriver) by(tx *sql.Tx) querier {
	if tx == nil {
		return d.store.readers
	}
	return tx
}

func (d streamDriver) readPage(ctx context.Context, tx *sql.Tx, r streams.Read,
	take func(e *event.Envelope) bool) (page streams.Page, err error) {
	if err := errors.Join(eventlog.ValidSelection(r.Stream, nil), d.db.refuseRead(ctx)); err != nil {
		return page, err
	}
	if err := d.store.ready(ctx); err != nil {
		return page, err
	}
	tenant, _, err := d.headIn(ctx, d.by(tx))
	if err != nil {
		return page, err
	}
	if r.Fingerprint != "" {
		page.Saves = true
		s, err := d.readSnapshot(ctx, d.by(tx), r, tenant, &page)
		if err != nil {
			return page, err
		}
		if s.State != nil {
			page.Damaged, r.After = !r.Begin(&s), s.Version
		}
		if page.Damaged {
			return page, nil
		}
	}
	page.Truncated, err = d.readEventsAfter(ctx, tx, r, tenant, func(e *event.Envelope) bool {
		page.Stored++
		return take(e)
	})
	return page, err
}

// readSnapshot returns the snapshot of a stream, without a state if it is not valid. It adds its version and generation
// to a page.
func (d streamDriver) readSnapshot(ctx context.Context, q querier, r streams.Read, tenant int64,
	page *streams.Page) (streams.Snapshot, error) {
	s := streams.Snapshot{Stream: r.Stream}
	var state *string
	var micros int64
	args := []any{tenant, r.Stream, r.Fingerprint, r.SnapshotAfter()}
	_, err := runOne(ctx, q, "read_snapshot", args, &page.Generation, &s.Version, &s.Position, &micros, &state)
	page.Saved, s.Time = s.Version, valid.Time(time.UnixMicro(micros))
	if err == nil && state != nil {
		s.State = []byte(*state)
	}
	return s, err
}

// readEventsAfter reads the events of a page, in the caller's transaction if there is one.
func (d streamDriver) readEventsAfter(ctx context.Context, tx *sql.Tx, r streams.Read, tenant int64,
	take func(e *event.Envelope) bool) (truncated bool, err error) {
	scan := scanning{maxBytes: eventlog.PageBytes, take: take}
	args := []any{tenant, r.Stream, r.After + 1, int64(-1), r.Limit}
	if tx == nil {
		page, err := d.store.readEvents(ctx, scan, "read_stream", args...)
		if err != nil {
			return false, err
		}
		return page.Truncated, d.still(ctx, tenant) // a drop may have deleted some of the events meanwhile
	}
	rows, err := tx.QueryContext(ctx, queries.Text("read_stream"), args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	page, err := scan.events(ctx, txRows{rows})
	return page.Truncated, err
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

func (d streamDriver) FirstAppend(ctx context.Context, tx *sql.Tx,
	key string) (first streams.First, found bool, err error) {
	first, found, err = d.firstAppend(ctx, d.by(tx), key)
	if err != nil {
		return first, false, d.wrap("look for the key", key, err)
	}
	return first, found, nil
}

func (d streamDriver) firstAppend(ctx context.Context, q querier,
	key string) (first streams.First, found bool, err error) {
	if err := d.db.refuseRead(ctx); err != nil {
		return first, false, err
	}
	if err := d.store.ready(ctx); err != nil {
		return first, false, err
	}
	var tenant, from int64
	found, err = runOne(ctx, q, "first_append", []any{d.name, key}, &tenant, &first.Stream, &from, &first.Version)
	if err != nil || !found {
		return first, false, err
	}
	first.Repeated = true
	first.Positions, err = column[int64](ctx, q, "positions_of_versions", tenant, first.Stream, from, first.Version)
	return first, true, err
}
