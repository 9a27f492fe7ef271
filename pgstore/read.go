package pgstore

import (
	"context"
	"errors"
	"iter"
	"math"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

const (
	// pageEvents is the number of events that one statement of an iterator reads: enough to make round trips cheap, few
	// enough to waste little when the caller stops early.
	pageEvents = 500
	// pageBytes bounds the memory of a page of large events.
	pageBytes = 4 << 20
)

// ReadOptions select the events of ReadAll. The zero value selects all.
type ReadOptions struct {
	// After is the position after which reading begins.
	After int64
	// Types selects events by type. Default: all.
	Types []string
	// Stream selects the events of one stream. Default: all.
	Stream string
}

// ReadStream reads the events of one stream in order, from fromVersion on. The first version is 1. A stream that does
// not exist has no events.
//
// Events are read in pages, and neither a connection nor a transaction is held between them. An error is yielded last.
func (t *Tenant) ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[event.Envelope, error] {
	opts := ReadOptions{Stream: stream, After: math.MinInt64}
	return t.read(ctx, "read stream", stream, opts, t.streamPager(opts, fromVersion))
}

// ReadAll reads events in global order, to the end.
//
// It reads the events that are visible now. An append that is still open may put its events below positions that were
// already read. So ReadAll is for inspection, export and checks. To act on every event exactly once, use a projection.
//
// Events are read in pages, and neither a connection nor a transaction is held between them. An error is yielded last.
func (t *Tenant) ReadAll(ctx context.Context, opts ReadOptions) iter.Seq2[event.Envelope, error] {
	p := t.allPager(opts)
	if opts.Stream != "" {
		p = t.streamPager(opts, 1)
	}
	return t.read(ctx, "read events of tenant", t.name, opts, p)
}

// read yields the events of a pager, which opts selects.
func (t *Tenant) read(ctx context.Context, doing, what string, opts ReadOptions, p pager) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		err := valid.Text("stream", opts.Stream)
		for _, eventType := range opts.Types {
			err = errors.Join(err, valid.Text("event type", eventType))
		}
		if err == nil {
			err = p.each(ctx, yield)
		}
		if err != nil {
			yield(event.Envelope{}, t.failed(ctx, doing, what, err))
		}
	}
}

func (t *Tenant) streamPager(opts ReadOptions, from int64) pager {
	sql, types := "read_stream", opts.types()
	if types != nil {
		sql = "read_stream_types"
	}
	next := func(last event.Envelope) int64 { return last.Version + 1 }
	return pager{tenant: t, sql: t.sql(sql), from: from, next: next, args: func(from int64, limit int) [][]byte {
		return append([][]byte{[]byte(opts.Stream), wire.Int(from), wire.Int(int64(limit)), wire.Int(opts.After)}, types...)
	}}
}

func (t *Tenant) allPager(opts ReadOptions) pager {
	sql, types := "read_tail", opts.types()
	if types != nil {
		sql = "read_range"
	}
	next := func(last event.Envelope) int64 { return last.Position }
	return pager{tenant: t, sql: t.sql(sql), from: opts.After, next: next, args: func(from int64, limit int) [][]byte {
		return append([][]byte{wire.Int(from), wire.Int(math.MaxInt64), wire.Int(int64(limit))}, types...)
	}}
}

// types returns the last argument of the statements that select types, or nil.
func (o ReadOptions) types() [][]byte {
	if len(o.Types) == 0 {
		return nil
	}
	return [][]byte{wire.TextArray(o.Types)}
}

// pager reads page by page. next returns where the page after an event begins.
type pager struct {
	tenant *Tenant
	sql    string
	from   int64
	next   func(last event.Envelope) int64
	args   func(from int64, limit int) [][]byte
}

// each yields events until yield returns false.
func (p pager) each(ctx context.Context, yield func(event.Envelope, error) bool) error {
	for limit := pageEvents; ; {
		page, err := p.page(ctx, limit)
		if err != nil {
			return err
		}
		for _, e := range page.List {
			if !yield(e, nil) {
				return nil
			}
		}
		if len(page.List) < limit && !page.Truncated {
			return nil
		}
		p.from = p.next(page.List[len(page.List)-1])
		// If pageBytes cut a page off, the rest of it was sent for nothing. So the next page is smaller.
		if limit = min(2*limit, pageEvents); page.Truncated {
			limit = len(page.List)
		}
	}
}

func (p pager) page(ctx context.Context, limit int) (wire.Events, error) {
	conn, err := p.tenant.store.pool.Acquire(ctx)
	if err != nil {
		return wire.Events{}, err
	}
	defer conn.Release()
	return wire.ReadEvents(conn.Conn().PgConn().ExecParams(ctx, p.sql, p.args(p.from, limit), nil, nil, wire.Binary), pageBytes)
}
