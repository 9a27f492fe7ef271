package sqlitestore

import (
	"context"
	"iter"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/tenancy"
)

// ReadStream reads the events of one stream in order, from fromVersion on. The first version is 1. A stream that does
// not exist has no events.
//
// Events are read in pages, and neither a connection nor a transaction is held between them. An event whose upcaster
// fails is yielded as it is stored, with an error that wraps eventtype.ErrUpcast; later events follow. Any other error
// is yielded last.
func (t *Tenant) ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[event.Envelope, error] {
	return t.userReader().ReadStream(ctx, stream, fromVersion)
}

// Stream describes a stream. A stream that does not exist has version 0: event.Exact of the version is the state in
// which it was. Stream returns tenancy.ErrUnknown if there is no such tenant.
func (t *Tenant) Stream(ctx context.Context, id string) (event.StreamInfo, error) {
	err := t.db.refuseRead(ctx)
	if err != nil {
		return event.StreamInfo{}, err
	}
	info, err := t.store.plane().Stream(ctx, t.name, id)
	if err != nil {
		return event.StreamInfo{}, t.wrap("describe stream", id, err)
	}
	return info, nil
}

// ReadAll reads events in global order, to the end.
//
// Events are read in pages, and neither a connection nor a transaction is held between them. An event whose upcaster
// fails is yielded as it is stored, with an error that wraps eventtype.ErrUpcast; later events follow. Any other error
// is yielded last.
func (t *Tenant) ReadAll(ctx context.Context, opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
	return t.userReader().ReadAll(ctx, opts)
}

func (t *Tenant) userReader() eventlog.Reader {
	wrap := func(_ context.Context, doing, what string, err error) error { return t.wrap(doing, what, err) }
	return eventlog.Reader{
		Tenant: t.name, Types: t.store.opts.Types.Engine(), Refuse: t.db.refuseRead, Ready: t.store.ready,
		Wrap: wrap, Stream: t.streamPages, All: t.allPages,
	}
}

func (t *Tenant) streamPages(ctx context.Context, opts event.ReadOptions, from int64) eventlog.Pages {
	statement, types := "read_stream", selectedTypes(opts)
	if types != nil {
		statement = "read_stream_types"
	}
	next := func(last event.Envelope) int64 { return last.Version + 1 }
	return t.pages(ctx, statement, from, next, func(tenant, from int64, limit int) []any {
		return append([]any{tenant, opts.Stream, from, opts.After, limit}, types...)
	})
}

func (t *Tenant) allPages(ctx context.Context, opts event.ReadOptions) eventlog.Pages {
	statement, types := "read_all", selectedTypes(opts)
	if types != nil {
		statement = "read_all_types"
	}
	next := func(last event.Envelope) int64 { return last.Position }
	return t.pages(ctx, statement, opts.After, next, func(tenant, from int64, limit int) []any {
		first := tenant << positionBits
		return append([]any{first + min(max(from, 0), lastPosition), first + lastPosition, limit}, types...)
	})
}

// selectedTypes returns the last argument of the statements that select types, or nil.
func selectedTypes(o event.ReadOptions) []any {
	if len(o.Types) == 0 {
		return nil
	}
	return []any{list(o.Types)}
}

// pages returns the pages of a statement. args returns its arguments by the tenant's number, and the place and length
// of the page.
func (t *Tenant) pages(ctx context.Context, statement string, from int64, next func(last event.Envelope) int64,
	args func(tenant, from int64, limit int) []any) eventlog.Pages {
	return eventlog.Pages{From: from, Next: next, Read: func(from int64, limit int) (eventlog.Page, error) {
		tenant, _, err := t.head(ctx)
		if err != nil {
			return eventlog.Page{}, err
		}
		page, err := t.store.readEvents(ctx, scanning{maxBytes: eventlog.PageBytes}, statement,
			args(tenant, from, limit)...)
		if err != nil {
			return page, err
		}
		// A drop may have deleted some of the events meanwhile.
		return page, t.still(ctx, tenant)
	}}
}

// still returns an error if the events of the tenant with that number cannot be read any more.
func (t namedTenant) still(ctx context.Context, tenant int64) error {
	now, _, err := t.head(ctx)
	if err == nil && now != tenant {
		err = t.unknown()
	}
	return err
}

// head returns the tenant's number and its last position. It returns tenancy.ErrDropping as soon as a drop has
// begun to delete events.
func (t namedTenant) head(ctx context.Context) (tenant, head int64, err error) {
	return t.headIn(ctx, t.db.readers)
}

// headIn is head by that connection or transaction.
func (t namedTenant) headIn(ctx context.Context, q querier) (tenant, head int64, err error) {
	var deleting bool
	found, err := runOne(ctx, q, "tenant_head", []any{t.name}, &tenant, &head, &deleting)
	switch {
	case err == nil && !found:
		err = t.unknown()
	case err == nil && deleting:
		err = t.closed(tenancy.Dropping)
	}
	return tenant, head, err
}
