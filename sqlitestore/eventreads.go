package sqlitestore

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// eventReads implements the reading methods of engine.Events, and Begins of store.Control.
type eventReads struct{ *database }

func (r eventReads) Read(ctx context.Context, tenant string, of engine.ReadRange) (engine.Page, error) {
	t, err := r.named(tenant)
	if err != nil {
		return engine.Page{}, err
	}
	page, err := t.readSettled(ctx, of)
	if err != nil {
		return engine.Page{}, wrap(err, "read events of tenant %q after %d", tenant, of.After)
	}
	return page, nil
}

// pageOf returns what was read of a range as a page.
func pageOf(read eventlog.Page, r engine.ReadRange) engine.Page {
	page := r.Page(read.Events, read.Truncated, incarnation)
	for i := range page.Events {
		page.Bytes += page.Events[i].Size()
	}
	return page
}

// readSettled is readPage for a range that was settled. If the tenant's last event is below the end of the range now, a
// backup was restored into the open file. Then a page would report positions as read that later events get. The head is
// read after the page, so that a restore between the two is noticed.
func (t namedTenant) readSettled(ctx context.Context, r engine.ReadRange) (engine.Page, error) {
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

// readPage implements engine.Events.Read for the tenant with that number.
func (t namedTenant) readPage(ctx context.Context, tenant int64, r engine.ReadRange) (engine.Page, error) {
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
	read, err := t.db.readEvents(ctx, scanning{maxBytes: r.MaxBytes}, statement, args...)
	if err != nil {
		return engine.Page{}, err
	}
	return pageOf(read, r), nil
}
