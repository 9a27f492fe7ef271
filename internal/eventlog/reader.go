package eventlog

import (
	"context"
	"iter"
	"math"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/upcast"
)

// Reader reads the events of a tenant for users.
type Reader struct {
	Tenant string
	Types  *upcast.Graph
	// Refuse returns an error if ctx is that of a function that queues statements of a batch.
	Refuse func(ctx context.Context) error
	// Ready returns why nothing can be read. A nil Ready means that nothing stands against it.
	Ready func(ctx context.Context) error
	// Wrap adds to an error what was being done.
	Wrap func(ctx context.Context, doing, what string, err error) error
	// Stream and All return the pages of a stream from a version on, and of all events.
	Stream func(ctx context.Context, opts event.ReadOptions, fromVersion int64) Pages
	All    func(ctx context.Context, opts event.ReadOptions) Pages
}

// ReadStream yields the events of a stream.
func (r Reader) ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[event.Envelope, error] {
	opts := event.ReadOptions{Stream: stream, After: math.MinInt64}
	return Current(r.Types, opts, func(opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
		return r.read(ctx, "read stream", stream, opts, r.Stream(ctx, opts, fromVersion))
	})
}

// ReadAll yields events in global order.
func (r Reader) ReadAll(ctx context.Context, opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
	return Current(r.Types, opts, func(opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
		return r.ReadStored(ctx, opts, 1, PageEvents)
	})
}

// ReadStored yields events as they are stored, in pages of which the first has at most limit events. It implements
// follow.ReadAll.
func (r Reader) ReadStored(ctx context.Context, opts event.ReadOptions, fromVersion int64,
	limit int) iter.Seq2[event.Envelope, error] {
	p := r.All(ctx, opts)
	if opts.Stream != "" {
		p = r.Stream(ctx, opts, fromVersion)
	}
	p.Limit = limit
	return r.read(ctx, "read events of tenant", r.Tenant, opts, p)
}

// read yields the events of pages, which opts selects.
func (r Reader) read(ctx context.Context, doing, what string, opts event.ReadOptions,
	p Pages) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		wrapped := func(e event.Envelope, err error) bool {
			if err != nil {
				err = r.Wrap(ctx, doing, what, err)
			}
			return yield(e, err)
		}
		if err := r.each(ctx, opts, p, wrapped); err != nil {
			wrapped(event.Envelope{}, err)
		}
	}
}

// each yields the events of pages, if opts and ctx allow it.
func (r Reader) each(ctx context.Context, opts event.ReadOptions, p Pages,
	yield func(event.Envelope, error) bool) error {
	if err := r.Refuse(ctx); err != nil {
		return err
	}
	if err := ValidSelection(opts.Stream, opts.Types); err != nil {
		return err
	}
	if r.Ready != nil {
		if err := r.Ready(ctx); err != nil {
			return err
		}
	}
	return p.Each(yield)
}
