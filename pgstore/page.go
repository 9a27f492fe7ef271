package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// pageRead reads a page of events by a statement with the columns of read_tail.sql. Its third argument is the largest
// number of events.
type pageRead struct {
	tenant namedTenant
	// run sends a statement, and passes its rows to decode.
	run func(ctx context.Context, sql string, args [][]byte, decode func(*pgconn.ResultReader) error) error
	// reading is that of wire.ReadEvents.
	reading wire.Reading
}

// pageLimit is the place of the limit among the arguments of a statement.
const pageLimit = 2

// page reads a page. It ends before an event that cannot be read, unless that is the first one: then it is the only
// one, without its body. So an event that the server cannot print keeps no other from being read.
func (r pageRead) page(ctx context.Context, sql string, args [][]byte) (wire.Events, error) {
	read, err := r.once(ctx, sql, args)
	if err == nil || !pgerr.OfValue(err) {
		return read, err
	}
	take := r.reading.Take
	r.reading.Take = nil
	read, err = r.narrowed(ctx, sql, args, err)
	for i := 0; take != nil && i < len(read.List) && take(&read.List[i]); i++ {
	}
	return read, err
}

// narrowed returns the page of a statement that failed at its first event, by the error err.
func (r pageRead) narrowed(ctx context.Context, sql string, args [][]byte, err error) (wire.Events, error) {
	args = slices.Clone(args)
	args[pageLimit] = wire.Int(1)
	first, firstErr := r.once(ctx, withoutValues(sql), args)
	if firstErr != nil || len(first.List) == 0 {
		return wire.Events{}, err // no single event is the cause
	}
	e := &first.List[0]
	alone, aloneErr := r.once(ctx, r.tenant.sql("read_tail"),
		[][]byte{wire.Int(e.Position - 1), wire.Int(e.Position), wire.Int(1)})
	switch {
	case aloneErr == nil && len(alone.List) == 0:
		return wire.Events{}, err // the event was deleted meanwhile
	case aloneErr == nil:
		alone.Truncated = true // the server had too little memory for more, or the event was repaired
		return alone, nil
	case !pgerr.OfValue(aloneErr) || pgerr.OfResources(aloneErr):
		return wire.Events{}, aloneErr
	}
	if pgerr.LimitExceeded(aloneErr) {
		aloneErr = backoff.Permanent(aloneErr) // each try would make the server build 1 GB again
	}
	e.Unreadable = &event.UnreadableError{
		Position: e.Position, Stream: e.Stream, Version: e.Version, Type: e.Type, Err: aloneErr,
	}
	first.Truncated = true
	return first, nil
}

// withoutValues returns a statement that reads neither bodies nor headers.
func withoutValues(sql string) string {
	return strings.Replace(sql, " body, headers, ", " null::jsonb, null::jsonb, ", 1)
}

// once runs a statement. If it fails in the middle, the events before are a page: the server sends them in order.
func (r pageRead) once(ctx context.Context, sql string, args [][]byte) (read wire.Events, err error) {
	reading, cut := context.WithCancel(ctx)
	defer cut()
	enough := false
	err = r.run(reading, sql, args, func(rows *pgconn.ResultReader) (err error) {
		reading := r.reading
		reading.Cut = func() {
			enough = true
			cut()
		}
		read, err = wire.ReadEvents(rows, reading)
		return err
	})
	switch {
	case err == nil:
	case read.Count > 0 && (enough || errors.Is(err, context.DeadlineExceeded) || pgerr.OfValue(err)):
		read.Truncated = true
	default:
		return wire.Events{}, err
	}
	return read, nil
}

// maxPosition is beyond every position.
const maxPosition = int64(1)<<62 - 1

// readPage implements engine.Events.Read for the tenant.
func (r *eventReads) readPage(ctx context.Context, t namedTenant, of engine.ReadRange) (engine.Page, error) {
	sql, args := t.sql("read_tail"), [][]byte{wire.Int(of.After), wire.Int(of.UpTo), wire.Int(int64(of.Limit))}
	slots := of.Share.Slots()
	switch {
	case slots != partition.All:
		sql, args = t.sql("read_share"), append(args,
			wire.Int(int64(slots.From)), wire.Int(int64(slots.To)), wire.TextArray(of.Types))
	case len(of.Types) > 0:
		sql, args = t.sql("read_range"), append(args, wire.TextArray(of.Types))
	}
	expected := 0
	if of.UpTo != maxPosition && len(args) == 3 {
		expected = int(min(int64(of.Limit), of.UpTo-of.After)) // few positions have no event
	}
	var in engine.Incarnation
	pages := pageRead{tenant: t, reading: wire.Reading{MaxBytes: of.MaxBytes, Expected: expected}}
	pages.run = func(ctx context.Context, sql string, args [][]byte, decode func(*pgconn.ResultReader) error) error {
		seen, err := r.readOf(ctx, t, sql, args, wire.Binary, decode)
		if in != 0 && seen != 0 && seen != in {
			return event.ErrIncarnationChanged
		}
		in = seen
		return err
	}
	read, err := pages.page(ctx, sql, args)
	if err != nil {
		return engine.Page{}, err
	}
	if len(args) == 3 {
		r.reads.add(sql)
	}
	page := of.Page(read.List, read.Truncated, in)
	page.Bytes = read.Allocated
	return page, nil
}

func (r *eventReads) Read(ctx context.Context, tenant string, of engine.ReadRange) (engine.Page, error) {
	t, err := r.named(tenant)
	if err != nil {
		return engine.Page{}, err
	}
	page, err := r.readPage(ctx, t, of)
	if err != nil {
		return engine.Page{}, fmt.Errorf("read events of tenant %q after %d: %w",
			tenant, of.After, storeFault(t.absent(ctx, err)))
	}
	return page, nil
}
