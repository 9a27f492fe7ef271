package event

import (
	"context"
	"iter"
)

// Reader reads the events of one tenant. The stores and their tenants implement it: see there for what each of them
// adds.
type Reader interface {
	// ReadStream reads the events of one stream in order, from fromVersion on. The first version is 1. A stream that
	// does not exist has no events.
	ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[Envelope, error]
	// ReadAll reads events in the order of their positions, to the end. An append that is still open may put its events
	// below positions that were already read: see Follow and Settled. To act on every event exactly once, use a
	// projection.
	ReadAll(ctx context.Context, opts ReadOptions) iter.Seq2[Envelope, error]
	// Follow yields the settled events after opts.After in the order of their positions, and waits for more, until ctx
	// ends. It leaves no event out: it waits for appends that are still open. It ends with an error if events that it
	// has returned may be gone. Followers share what is read: do not change the bytes of a body.
	Follow(ctx context.Context, opts ReadOptions) iter.Seq2[Envelope, error]
	// Settled returns the settled mark: no event at or below it can still appear. It waits for appends in progress.
	Settled(ctx context.Context) (int64, error)
	// Stream describes a stream. A stream that does not exist has version 0.
	Stream(ctx context.Context, id string) (StreamInfo, error)
}

// Appender appends events to the streams of one tenant. The stores and their tenants implement it.
type Appender interface {
	// Append appends events to a stream, all or none, if expected holds.
	Append(ctx context.Context, stream string, expected Expected, events ...Event) (Appended, error)
}

// ReadOptions select the events of ReadAll and Follow. The zero value selects all.
type ReadOptions struct {
	// After is the position after which reading begins.
	After int64
	// Types selects events by type. If the store has a registry of package eventtype, these are current types, and
	// select the older events that lead to them as well. Default: all.
	Types []string
	// Stream selects the events of one stream. Default: all.
	Stream string
	// Stored returns events as they are stored: no upcaster of package eventtype is called, and Types are stored types.
	// It is for copies and exports. Default: false.
	Stored bool
}
