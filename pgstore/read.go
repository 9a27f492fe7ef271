package pgstore

import (
	"context"
	"iter"
	"math"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// ReadStream reads the events of one stream in order, from fromVersion on. The first version is 1. A stream that does
// not exist has no events.
//
// Events are read in pages, and neither a connection nor a transaction is held between them. An event that cannot be
// read is yielded without its body, with an error that wraps an *event.UnreadableError. An event whose upcaster fails
// is yielded as it is stored, with an error that wraps eventtype.ErrUpcast. Later events follow. Any other error is
// yielded last.
func (t *Tenant) ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[event.Envelope, error] {
	return t.userReader().ReadStream(ctx, stream, fromVersion)
}

// Stream describes a stream, in one round trip. A stream that does not exist has version 0: event.Exact of the version
// is the state in which it was. Stream returns tenancy.ErrUnknown if there is no such tenant.
func (t *Tenant) Stream(ctx context.Context, id string) (event.StreamInfo, error) {
	err := t.db.refuseRead(ctx)
	if err != nil {
		return event.StreamInfo{}, err
	}
	info, err := t.store.plane().Stream(ctx, t.name, id)
	if err != nil {
		return event.StreamInfo{}, t.wrap(ctx, "describe stream", id, err)
	}
	return info, nil
}

// ReadAll reads events in global order, to the end.
//
// It reads the events that are visible now. An append that is still open may put its events below positions that were
// already read. So ReadAll is for inspection, export and checks. To act on every event exactly once, use a projection.
//
// Events are read in pages, and neither a connection nor a transaction is held between them. An event that cannot be
// read is yielded without its body, with an error that wraps an *event.UnreadableError. An event whose upcaster fails
// is yielded as it is stored, with an error that wraps eventtype.ErrUpcast. Later events follow. Any other error is
// yielded last.
func (t *Tenant) ReadAll(ctx context.Context, opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
	return t.userReader().ReadAll(ctx, opts)
}

func (t *Tenant) userReader() eventlog.Reader {
	return eventlog.Reader{
		Tenant: t.name, Types: t.store.opts.Types.Engine(), Refuse: t.db.refuseRead,
		Wrap: t.wrap, Stream: t.streamPages, All: t.allPages,
	}
}

func (t *Tenant) streamPages(ctx context.Context, opts event.ReadOptions, from int64) eventlog.Pages {
	sql, types := "read_stream", selectedTypes(opts)
	if types != nil {
		sql = "read_stream_types"
	}
	next := func(last event.Envelope) int64 { return last.Version + 1 }
	return t.pages(ctx, t.sql(sql), from, next, func(from int64, limit int) [][]byte {
		return append([][]byte{[]byte(opts.Stream), wire.Int(from), wire.Int(int64(limit)), wire.Int(opts.After)},
			types...)
	})
}

func (t *Tenant) allPages(ctx context.Context, opts event.ReadOptions) eventlog.Pages {
	sql, types := "read_tail", selectedTypes(opts)
	if types != nil {
		sql = "read_range"
	}
	next := func(last event.Envelope) int64 { return last.Position }
	return t.pages(ctx, t.sql(sql), opts.After, next, func(from int64, limit int) [][]byte {
		return append([][]byte{wire.Int(from), wire.Int(math.MaxInt64), wire.Int(int64(limit))}, types...)
	})
}

// selectedTypes returns the last argument of the statements that select types, or nil.
func selectedTypes(o event.ReadOptions) [][]byte {
	if len(o.Types) == 0 {
		return nil
	}
	return [][]byte{wire.TextArray(o.Types)}
}

// pages returns the pages of a statement, whose arguments begin with the place and the length of a page.
func (t *Tenant) pages(ctx context.Context, sql string, from int64, next func(last event.Envelope) int64,
	args func(from int64, limit int) [][]byte) eventlog.Pages {
	pages := pageRead{tenant: t.namedTenant, reading: wire.Reading{MaxBytes: eventlog.PageBytes}}
	pages.run = func(ctx context.Context, sql string, args [][]byte, decode func(*pgconn.ResultReader) error) error {
		conn, err := t.store.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return decode(conn.Conn().PgConn().ExecParams(ctx, sql, args, nil, nil, wire.Binary))
	}
	return eventlog.Pages{From: from, Next: next, Read: func(from int64, limit int) (eventlog.Page, error) {
		read, err := pages.page(ctx, sql, args(from, limit))
		return eventlog.Page{Events: read.List, Truncated: read.Truncated}, err
	}}
}
