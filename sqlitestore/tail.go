package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// tailEvents and tailBytes bound one read of a tail.
	tailEvents = 2000
	tailBytes  = 4 << 20
	// tailFirst bounds it while the size of the events is not known.
	tailFirst = 250
)

// tail implements engine.Tail. The head of the tenant is the settled mark: the file has one writer, which draws a
// position and commits it before it draws the next one. After a wake-up there is nothing to wait for.
type tail struct {
	tenant *Tenant
	// invalid is the error of an invalid tenant name, nil if the name is valid.
	invalid error
	started bool
	// row is the tenant's number, and mark the head up to which its events were read.
	row, mark int64
	// average is the approximate size of an event in bytes. It bounds how many events are read.
	average int
	slot    engine.ReadSlot
}

func (s port) Tail(tenant string) engine.Tail {
	t, err := s.ForTenant(tenant)
	return &tail{tenant: t, invalid: err, slot: engine.NoReadSlot}
}

func (t *tail) ReadWithin(slot engine.ReadSlot) { t.slot = slot }

// Take implements engine.Tail. Appends to a file hand over no events: a read of a few events in this process sends
// nothing to a server.
func (t *tail) Take(*engine.Page) (engine.TailUpdate, bool) { return engine.TailUpdate{}, false }

// errEventsGone is returned if events that were read are gone, or belong to an earlier tenant of the name.
var errEventsGone = errors.New("events at and below the settled mark are gone")

// Poll implements engine.Tail. It starts again if events are gone, and after an error.
func (t *tail) Poll(ctx context.Context) (engine.TailUpdate, error) {
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

func (t *tail) poll(ctx context.Context) (update engine.TailUpdate, err error) {
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
func (t *tail) start(ctx context.Context) error {
	err := t.tenant.store.ready(ctx)
	if err != nil {
		return err
	}
	var head, floor int64
	found, err := runOne(ctx, t.tenant.store.readers, "tail_start", []any{t.tenant.name}, &t.row, &head, &floor)
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
func (t *tail) read(ctx context.Context) (update engine.TailUpdate, err error) {
	limit := tailFirst
	if t.average > 0 {
		limit = min(tailEvents, max(1, tailBytes/t.average))
	}
	var rows tailRows
	var read eventlog.Page
	err = t.tenant.store.readRows(ctx, "tail", []any{t.tenant.name, t.row<<positionBits | t.mark, limit},
		func(all driver.Rows) error {
			rows.Rows = all
			read, err = scanning{maxBytes: tailBytes}.events(ctx, &rows)
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
	if n := len(page.Events); n > 0 {
		t.average = max(1, page.Bytes/n)
	}
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

// readPage implements engine.Events.Read for the tenant with that number.
func (t *Tenant) readPage(ctx context.Context, tenant int64, r engine.ReadRange) (engine.Page, error) {
	first := tenant << positionBits
	args := []any{first + min(max(r.After, 0), lastPosition), first + min(max(r.UpTo, 0), lastPosition), int64(r.Limit)}
	var types any
	if len(r.Types) > 0 {
		types = list(r.Types)
	}
	statement, slots := "read_all", r.Share.Slots()
	switch {
	case slots != partition.All:
		statement, args = "read_share", append(args, int64(slots.From), int64(slots.To), types)
	case types != nil:
		statement, args = "read_all_types", append(args, types)
	}
	read, err := t.store.readEvents(ctx, scanning{maxBytes: r.MaxBytes}, statement, args...)
	if err != nil {
		return engine.Page{}, err
	}
	return pageOf(read, r), nil
}

// pageOf returns what was read of a range as a page.
func pageOf(read eventlog.Page, r engine.ReadRange) engine.Page {
	page := engine.Page{Events: read.Events, To: r.UpTo, Incarnation: incarnation}
	if read.Truncated || len(read.Events) >= r.Limit {
		page.To = read.Events[len(read.Events)-1].Position
	}
	if len(r.Share.Passed) > 0 {
		page.Events = slices.DeleteFunc(page.Events,
			func(e event.Envelope) bool { return !r.Share.Has(e.Stream, e.Position) })
	}
	for i := range page.Events {
		page.Bytes += page.Events[i].Size()
	}
	return page
}

func (s port) Read(ctx context.Context, tenant string, r engine.ReadRange) (engine.Page, error) {
	t, err := s.ForTenant(tenant)
	if err != nil {
		return engine.Page{}, err
	}
	page, err := t.readSettled(ctx, r)
	if err != nil {
		return engine.Page{}, wrap(err, "read events of tenant %q after %d", tenant, r.After)
	}
	return page, nil
}

// readSettled is readPage for a range that was settled. If the tenant's last event is below the end of the range now, a
// backup was restored into the open file. Then a page would report positions as read that later events get. The head is
// read after the page, so that a restore between the two is noticed.
func (t *Tenant) readSettled(ctx context.Context, r engine.ReadRange) (engine.Page, error) {
	row, _, err := t.head(ctx)
	if err != nil {
		return engine.Page{}, err
	}
	page, err := t.readPage(ctx, row, r)
	if err != nil {
		return engine.Page{}, err
	}
	now, head, err := t.head(ctx)
	if err == nil && (now != row || head < r.UpTo) {
		err = fmt.Errorf("the last event is at %d, below %d: %w: %w", head, r.UpTo, projection.ErrEventGone,
			event.ErrIncarnationChanged)
	}
	return page, err
}
