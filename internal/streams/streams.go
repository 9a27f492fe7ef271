// Package streams is what package aggregate needs of a store: the streams of one tenant, which are read and appended to by the store, or
// within a transaction of the caller. What a commit does stands once, in Log. A Driver is what a store does itself.
package streams

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
)

// PageEvents is the number of events of a page. A stream that is not longer, and has no more bytes than eventlog.PageBytes, is read in one
// round trip.
const PageEvents = 10_000

// Log reads and appends to the streams of one tenant.
type Log interface {
	// Tenant returns the tenant's name.
	Tenant() string
	// Read reads a page of a stream.
	Read(ctx context.Context, r Read) (Page, error)
	// First returns the first append with an idempotency key.
	First(ctx context.Context, key string) (first First, found bool, err error)
	// Commit appends all or nothing, and returns the result of each append. If the key was used before, it returns one result, which is
	// Repeated: that of the first append with the key. It returns event.ErrVersionConflict as the stores do.
	Commit(ctx context.Context, c Commit) ([]event.Appended, error)
	// IsConflict reports whether a commit may succeed if it is decided again: other transactions have undone it.
	IsConflict(err error) bool
	// Within returns the Log in a transaction of the caller, of the type that the store's handlers get. It panics if it is of another type.
	Within(tx any) Log
}

// Read selects a page of a stream.
type Read struct {
	Stream string
	// After is the version after which the page begins.
	After int64
	// Fingerprint selects a snapshot. If there is one that fits, the page begins after it. Empty: none.
	Fingerprint string
}

// Page is a page of a stream.
type Page struct {
	// Snapshot is the state before Events, nil if the page begins after Read.After.
	Snapshot *Snapshot
	// Generation is that of the stream's snapshots: an erasure ends it. It is read if there is a fingerprint.
	Generation int64
	Events     []event.Envelope
	// More reports that there may be more events.
	More bool
}

// Snapshot is the state of an aggregate after an event.
type Snapshot struct {
	Stream string
	// Version, Position and Time are those of the event. Time has microseconds.
	Version, Position int64
	Time              time.Time
	// Fingerprint is that of the code that made State.
	Fingerprint string
	State       []byte
	// Generation is that of the page with which the state was loaded. If it has ended, the snapshot is not saved.
	Generation int64
}

// First is the first append with an idempotency key.
type First struct {
	Stream string
	event.Appended
}

// Commit is what one transaction appends.
type Commit struct {
	// Appends are to different streams. The last one may have an idempotency key.
	Appends []event.Appending
	// Hooks are called after the appends.
	Hooks []engine.Hook
	// Snapshots returns the snapshots to save. It may read what was appended. It may be nil.
	Snapshots func(ctx context.Context, l Log) ([]Snapshot, error)
}

// Driver is a tenant of a store with transactions of type Tx. A nil transaction means one of the store's own connections.
type Driver[Tx any] interface {
	event.Appender
	Name() string
	AppendTx(ctx context.Context, tx Tx, stream string, expected event.Expected, events ...event.Event) (event.Appended, error)
	InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Savepoint runs fn in a savepoint, which it undoes if fn returns an error.
	Savepoint(ctx context.Context, tx Tx, fn func(tx Tx) error) error
	// Control runs fn with the statements of package control in a transaction.
	Control(ctx context.Context, tx Tx, fn func(store.Tx) error) error
	ReadPage(ctx context.Context, tx Tx, r Read) (Page, error)
	FirstAppend(ctx context.Context, tx Tx, key string) (first First, found bool, err error)
	IsConflict(err error) bool
	// PrepareSnapshots makes the table of snapshots, unless it exists.
	PrepareSnapshots(ctx context.Context) error
}
