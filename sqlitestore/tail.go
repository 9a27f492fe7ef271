package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/tenancy"
)

// tailPoller implements engine.TailPoller. The head of the tenant is the settled mark: the file has one writer, which
// draws a position and commits it before it draws the next one. After a wake-up there is nothing to wait for.
type tailPoller struct {
	tenant namedTenant
	// invalid is the error of an invalid tenant name, nil if the name is valid.
	invalid error
	started bool
	// row is the tenant's number, and mark the head up to which its events were read.
	row, mark int64
	// size bounds how many events are read.
	size eventlog.EventSize
	slot engine.ReadSlot
}

func (r eventReads) TailPoller(tenant string) engine.TailPoller {
	t, err := r.named(tenant)
	return &tailPoller{tenant: t, invalid: err, slot: engine.NoReadSlot}
}

func (t *tailPoller) ReadWithin(slot engine.ReadSlot) { t.slot = slot }

// Take implements engine.TailPoller. Appends to a file hand over no events: a read of a few events in this process
// sends nothing to a server.
func (t *tailPoller) Take(*engine.Page) (engine.TailUpdate, bool) { return engine.TailUpdate{}, false }

// errEventsGone is returned if events that were read are gone, or belong to an earlier tenant of the name.
var errEventsGone = errors.New("events at and below the settled mark are gone")

// Poll implements engine.TailPoller. It starts again if events are gone, and after an error.
func (t *tailPoller) Poll(ctx context.Context) (engine.TailUpdate, error) {
	if t.invalid != nil {
		return engine.TailUpdate{}, t.invalid
	}
	update, err := t.poll(ctx)
	if errors.Is(err, errEventsGone) {
		t.started = false
		update, err = t.poll(ctx)
		update.Gone = true
	}
	if err != nil {
		t.started = false
		return engine.TailUpdate{}, wrap(err, "read the tail of tenant %q", t.tenant.name)
	}
	return update, nil
}

func (t *tailPoller) poll(ctx context.Context) (update engine.TailUpdate, err error) {
	ctx, release, err := t.slot(ctx)
	if err != nil {
		return update, err
	}
	defer release()
	if !t.started {
		if err := t.start(ctx); err != nil {
			return update, err
		}
		return engine.TailUpdate{Mark: t.mark, From: t.mark, Incarnation: incarnation}, nil
	}
	return t.read(ctx)
}

// start finds where the tail begins.
func (t *tailPoller) start(ctx context.Context) error {
	err := t.tenant.db.ready(ctx)
	if err != nil {
		return err
	}
	var head, floor int64
	found, err := runOne(ctx, t.tenant.db.readers, "tail_start", []any{t.tenant.name}, &t.row, &head, &floor)
	switch {
	case err != nil:
		return err
	case !found:
		return t.tenant.unknown()
	case head < floor:
		return engine.Restored(head, floor)
	}
	t.mark, t.started = head, true
	return nil
}

// read reads the tenant's head and the events after the mark, in one snapshot.
func (t *tailPoller) read(ctx context.Context) (update engine.TailUpdate, err error) {
	limit := t.size.Limit()
	var rows tailRows
	var read eventlog.Page
	err = t.tenant.db.readRows(ctx, "tail", []any{t.tenant.name, t.row<<positionBits | t.mark, limit},
		func(all driver.Rows) error {
			rows.Rows = all
			read, err = scanning{maxBytes: eventlog.TailBytes}.events(ctx, &rows)
			return err
		})
	switch {
	case err != nil:
		return update, err
	case !rows.found:
		return update, t.tenant.unknown()
	case rows.head == nil:
		return update, t.tenant.closed(tenancy.Dropping)
	}
	head, ok := rows.head.(int64)
	switch {
	case !ok:
		return update, fmt.Errorf("%w: the head of tenant %q is of type %T", ErrCorrupt, t.tenant.name, rows.head)
	case head>>positionBits != t.row || head&lastPosition < t.mark:
		return update, errEventsGone
	}
	head &= lastPosition
	page := pageOf(read, engine.ReadRange{UpTo: head, Limit: limit})
	t.size.Observe(len(page.Events), page.Bytes)
	update = engine.TailUpdate{
		Events: page.Events, Bytes: page.Bytes, Mark: page.To, From: t.mark, More: page.To < head,
		Incarnation: incarnation,
	}
	t.mark = page.To
	return update, nil
}

// tailRows are the rows of tail.sql. They yield the columns of read_all.sql, and keep the head.
type tailRows struct {
	driver.Rows
	row [len(eventRow{}) + 1]driver.Value
	// found reports whether there was a row, and head is its head.
	found bool
	head  driver.Value
}

func (r *tailRows) Next(values []driver.Value) error {
	if err := r.Rows.Next(r.row[:]); err != nil {
		return err
	}
	n := copy(values, r.row[:])
	r.found, r.head = true, r.row[n]
	if values[0] == nil {
		return io.EOF
	}
	return nil
}
