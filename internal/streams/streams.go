// Package streams is what package aggregate needs of a store: the streams of one tenant, which are read and appended to
// by the store, or within a transaction of the caller. What a commit does stands once, in Log. A Driver is what a store
// does itself.
package streams

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/upcast"
)

// PageEvents is the number of events of a page. A stream that is not longer, and has no more bytes than
// eventlog.PageBytes, is read in one round trip.
const PageEvents = 10_000

// NextLimit returns the limit of the page after one with n events.
func NextLimit(n int, truncated bool, limit int) int {
	return eventlog.NextLimit(n, truncated, limit, PageEvents)
}

// Log reads and appends to the streams of one tenant.
type Log interface {
	// Tenant returns the tenant's name.
	Tenant() string
	// Source identifies the events that the Log reads. ok is false within a transaction of the caller, which may see
	// events of its own.
	Source() (s Source, ok bool)
	// Read reads a page of a stream. It passes the snapshot and the events while it reads.
	Read(ctx context.Context, r Read) (Page, error)
	// First returns the first append with an idempotency key.
	First(ctx context.Context, key string) (first First, found bool, err error)
	// Commit appends all or nothing, and returns the result of each append. If the key was used before, it returns one
	// result, which is Repeated: that of the first append with the key. It returns event.ErrVersionConflict as the
	// stores do.
	Commit(ctx context.Context, c Commit) ([]event.Appended, error)
	// IsConflict reports whether a commit that failed may succeed if it is decided again: it met other transactions.
	IsConflict(err error) bool
	// Accepts returns an error for a hook that takes transactions of another type.
	Accepts(h handler.Hook) error
	// Within returns the Log in a transaction of the caller, of the type that the store's handlers get. It panics if it
	// is of another type.
	Within(tx any) Log
}

// Source identifies the events of a tenant in an opened store. After an erasure by the same process it is another one.
type Source struct {
	store    *atomic.Int64
	erasures int64
	tenant   string
}

// Last is an event in a stream.
type Last struct {
	Version, Position int64
	Time              time.Time
}

// Read selects a page of a stream.
type Read struct {
	Stream string
	// After is the version after which the page begins.
	After int64
	// Last is the event with the version After, if it is known which one it should be. Otherwise it is nil. If it is
	// another one, the read ends.
	Last *Last
	// Fingerprint selects a snapshot by the code that made it. If there is one, the page begins after it. Empty selects
	// none. Log adds the fingerprint of the store's upcasters.
	Fingerprint string
	// Limit is the largest number of events.
	Limit int
	// Begin is called with the snapshot that is the state before the events, if there is one. It returns false for a
	// damaged snapshot, which ends the read.
	Begin func(s *Snapshot) (ok bool)
	// Each is called with each event, which is current, while others are still on their way. It must not keep the
	// pointer. An error ends the read, which returns it.
	Each func(e *event.Envelope) error
}

// SnapshotAfter returns the version after which a snapshot must be. A later one spares the events between.
func (r Read) SnapshotAfter() int64 {
	if r.Last != nil {
		return r.Last.Version
	}
	return r.After
}

// Page is what was read of a page of a stream.
type Page struct {
	// Damaged reports that the read ended at a damaged snapshot, and Changed that it ended since Read.Last is not in
	// the stream.
	Damaged, Changed bool
	// Saves reports that snapshots can be saved: there was a fingerprint, and there is a table. Saved is the version of
	// the stream's snapshot, whether or not it fits, and Generation is the generation of its snapshots, which an
	// erasure ends.
	Saves             bool
	Saved, Generation int64
	// Stored is the number of stored events.
	Stored int
	// Truncated reports that the page has fewer events than the limit because of their size.
	Truncated bool
}

// Snapshot is a row of package control.
type Snapshot = control.Snapshot

// First is the first append with an idempotency key.
type First struct {
	Stream string
	event.Appended
}

// Commit is what one transaction appends and saves.
type Commit struct {
	// Appends are to different streams. The last one may have an idempotency key.
	Appends []event.Appending
	// Hooks are called after the appends.
	Hooks []handler.Hook
	// Snapshots returns the snapshots to save. It may read what was appended. It may be nil.
	Snapshots func(ctx context.Context, l Log) ([]Snapshot, error)
}

// Driver is a tenant of a store with transactions of type Tx. A nil transaction means one of the store's own
// connections.
type Driver[Tx any] interface {
	event.Appender
	Name() string
	// Types leads to current events. It is nil if the store has no registry.
	Types() *upcast.Graph
	AppendTx(ctx context.Context, tx Tx, stream string, expected event.Expected, events ...event.Event) (event.Appended,
		error)
	InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Savepoint runs fn in a savepoint, which it undoes if fn returns an error.
	Savepoint(ctx context.Context, tx Tx, fn func(tx Tx) error) error
	// Control runs fn with the statements of package control in a transaction.
	Control(ctx context.Context, tx Tx, fn func(store.Tx) error) error
	// ReadPage reads as Log.Read does. The events that it passes are as stored. take returns false after an error of
	// its own, which ends the read; ReadPage does not return it.
	ReadPage(ctx context.Context, tx Tx, r Read, take func(e *event.Envelope) (more bool)) (Page, error)
	FirstAppend(ctx context.Context, tx Tx, key string) (first First, found bool, err error)
	IsConflict(err error) bool
	// MakeSnapshots makes the table of snapshots, unless it exists. SnapshotsMade is set if it was found.
	MakeSnapshots(ctx context.Context) error
	SnapshotsMade() *atomic.Bool
	// Erasures counts the erasures by the opened store.
	Erasures() *atomic.Int64
}
