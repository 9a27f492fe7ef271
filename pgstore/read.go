package pgstore

import (
	"context"
	"iter"
	"math"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

const (
	// pageEvents is the number of events that one statement of an iterator reads: enough to make round trips cheap, few enough to
	// waste little when the caller stops early.
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

// ReadStream reads the events of one stream in order, from fromVersion on. The first version is 1. A stream that does not exist
// has no events.
//
// Events are read in pages, and neither a connection nor a transaction is held between them. An error is yielded last.
func (t *Tenant) ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		if err := valid.Text("stream", stream); err != nil {
			yield(event.Envelope{}, t.failed(ctx, "read stream", stream, err))
			return
		}
		p := pager{tenant: t, sql: t.sql("read_stream"), from: fromVersion, next: afterVersion,
			args: func(from int64, limit int) [][]byte {
				return [][]byte{[]byte(stream), wire.Int(from), wire.Int(int64(limit)), wire.Int(math.MinInt64)}
			}}
		if err := p.each(ctx, yield); err != nil {
			yield(event.Envelope{}, t.failed(ctx, "read stream", stream, err))
		}
	}
}

// ReadAll reads events in global order, to the end.
//
// It reads the events that are visible now. An append that is still open may put its events below positions that were already
// read. So ReadAll is for inspection, export and checks. To act on every event exactly once, use a projection.
//
// Events are read in pages, and neither a connection nor a transaction is held between them. An error is yielded last.
func (t *Tenant) ReadAll(ctx context.Context, opts ReadOptions) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		p, err := t.allPager(opts)
		if err == nil {
			err = p.each(ctx, yield)
		}
		if err != nil {
			yield(event.Envelope{}, t.failed(ctx, "read events of tenant", t.name, err))
		}
	}
}

func (t *Tenant) allPager(opts ReadOptions) (pager, error) {
	if err := valid.Text("stream", opts.Stream); err != nil {
		return pager{}, err
	}
	for _, eventType := range opts.Types {
		if err := valid.Text("event type", eventType); err != nil {
			return pager{}, err
		}
	}
	var types [][]byte
	if len(opts.Types) > 0 {
		types = [][]byte{wire.TextArray(opts.Types)}
	}
	if opts.Stream != "" {
		sql := t.sql("read_stream")
		if types != nil {
			sql = t.sql("read_stream_types")
		}
		return pager{tenant: t, sql: sql, from: 1, next: afterVersion, args: func(from int64, limit int) [][]byte {
			return append([][]byte{[]byte(opts.Stream), wire.Int(from), wire.Int(int64(limit)), wire.Int(opts.After)}, types...)
		}}, nil
	}
	sql := t.sql("read_tail")
	if types != nil {
		sql = t.sql("read_range")
	}
	return pager{tenant: t, sql: sql, from: opts.After, next: position, args: func(from int64, limit int) [][]byte {
		return append([][]byte{wire.Int(from), wire.Int(math.MaxInt64), wire.Int(int64(limit))}, types...)
	}}, nil
}

func position(e event.Envelope) int64     { return e.Position }
func afterVersion(e event.Envelope) int64 { return e.Version + 1 }

// pager reads page by page. next returns where the page after an event begins.
type pager struct {
	tenant *Tenant
	sql    string
	from   int64
	next   func(last event.Envelope) int64
	args   func(from int64, limit int) [][]byte
}

// each yields events until yield returns false.
func (p *pager) each(ctx context.Context, yield func(event.Envelope, error) bool) error {
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

func (p *pager) page(ctx context.Context, limit int) (wire.Events, error) {
	conn, err := p.tenant.store.pool.Acquire(ctx)
	if err != nil {
		return wire.Events{}, err
	}
	defer conn.Release()
	return wire.ReadEvents(conn.Conn().PgConn().ExecParams(ctx, p.sql, p.args(p.from, limit), nil, nil, wire.Binary), pageBytes)
}
