// Package engine has what the actors of a runtime and its store share: leases, batches, and the interfaces through
// which the actors reach a database.
package engine

import (
	"context"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/upcast"
)

// Database is what a database is. Its methods send no statement.
type Database interface {
	// Name is the store's type in errors, such as *pgstore.Store.
	Name() string
	// TxType is the type of the transactions that the store gives to handlers.
	TxType() reflect.Type
	// EventTypes has the event types of the store, nil if it has no registry.
	EventTypes() *upcast.Graph
	// Connections is how many statements and batches can run at once.
	Connections() int
	// DefaultBatches is how many batches run at once by default, 0 if that depends on Connections alone.
	DefaultBatches() int
	// ConnectionWaits returns how work has waited for connections, also work that is not a runtime's.
	ConnectionWaits() ConnectionWaits
	// Pooled reports whether a pooler in transaction mode stands between the store and the server.
	Pooled() bool
	// NotWithin returns projection.ErrWithinTx if ctx is the context of a transaction of the store.
	NotWithin(ctx context.Context) error
	// ValidTenant returns an error if no tenant can have that name.
	ValidTenant(name string) error
}

// Runner calls the handlers of projections.
type Runner interface {
	// Apply returns the ApplyFunc of a projection whose handler takes TxType.
	Apply(h handler.Handler, o ApplyOptions) ApplyFunc
	// Opening returns a function that makes the Opening of a projection's next batch. It returns nil if the store does
	// not begin batches in advance.
	Opening(o ApplyOptions) func(lease Lease) Opening
	// Shares reports whether the batches of a handler hold no connection while they run.
	Shares(h handler.Handler) bool
	// Deliver returns the ApplyFunc of a projection that delivers outside of a transaction.
	Deliver(h handler.Handler, o DeliverOptions) ApplyFunc
	// Abandoned counts the handlers that did not return after their context was cancelled.
	Abandoned() int64
}

// Events reads events and settles them.
type Events interface {
	// Read returns a page of a tenant's events.
	Read(ctx context.Context, tenant string, r ReadRange) (Page, error)
	// TailPoller returns a poller of the end of a tenant's events.
	TailPoller(tenant string) TailPoller
	// Heads returns the highest visible position of each tenant. It leaves out tenants that do not exist.
	Heads(ctx context.Context, tenants []string) (Heads, error)
	// Settle returns how far the events of these tenants are settled up to heads, which were just read. It waits a
	// moment for appends in progress. It leaves out tenants without a head.
	Settle(ctx context.Context, heads Heads, tenants []string) (map[string]Settled, error)
	// Ages returns when the first event after each position was inserted. It leaves out positions without a later
	// event, and tenants that cannot be read.
	Ages(ctx context.Context, after []TenantPosition) (map[TenantPosition]EventAge, error)
	// Absent returns why a tenant's events cannot be found: there is no such tenant, or its schema was dropped.
	Absent(ctx context.Context, tenant string) error
	// OnWake registers a function that is called after each append made through this store in this process. remove ends
	// that.
	OnWake(w Waker) (remove func())
	// Followers returns the followers of this store in this process. They follow events without a projection.
	Followers() Followers
}

// Ownership has the leases of projections, and the nodes that own them.
type Ownership interface {
	// Connect opens the node's session connection, registers the node and starts to listen.
	Connect(ctx context.Context, node Node) (Session, error)
	// Free lists the leases that the node could claim: those without an owner, unless unowned is false, and those of
	// dead owners. An owner whose heartbeat ran out counts as dead only if trustHeartbeats is true.
	Free(ctx context.Context, node Node, trustHeartbeats, unowned bool) ([]LeaseRef, error)
	// Counts returns how many leases of each projection are wanted, in one count for all tenants. The leases of these
	// tenants, of these projections, and of partitions are counted for each tenant separately.
	Counts(ctx context.Context, tenants, names []string) ([]Want, error)
	// Claim claims those of the leases that are still free, in one statement. Then it ends the sessions that are left
	// of the batches of dead owners.
	Claim(ctx context.Context, node Node, rows []int32, trustHeartbeats bool) ([]Lease, error)
	// Owned reads all leases that the node holds.
	Owned(ctx context.Context, node Node) ([]Lease, error)
	// Leases reads leases by their rows, whoever holds them. It leaves out rows that no longer exist.
	Leases(ctx context.Context, rows []int32) ([]Lease, error)
	// Release moves the checkpoints, frees the leases and notifies the nodes. It leaves out leases that the node no
	// longer holds.
	Release(ctx context.Context, advances []Advance) error
	// Advance moves checkpoints over events that do not concern their projections and returns the rows that moved.
	Advance(ctx context.Context, advances []Advance) (moved map[int32]bool, err error)
	// AnnounceDrain notifies the other nodes that the node releases its leases, so that they take its share.
	AnnounceDrain(ctx context.Context, node Node) error
	// Orders returns the orders of the projections of these rows, or of all whose leases the node holds if rows is nil.
	// It leaves out projections that should run and have no commands.
	Orders(ctx context.Context, node Node, rows []int32) (map[int32]Orders, error)
}

// Lists reads what status shows, besides the lists of package control.
type Lists interface {
	// Tenants lists the tenants of these names, or all of the store if names is nil, sorted by name.
	Tenants(ctx context.Context, names []string) ([]Tenant, error)
	// OldestSnapshot returns the transaction in this database with the oldest snapshot.
	OldestSnapshot(ctx context.Context) (Snapshot, error)
}

// Health finds out whether a database can be worked with.
type Health interface {
	// Ping returns nil if the server answers over the pool and is the primary.
	Ping(ctx context.Context) error
	// Probe returns nil if the server can be worked with. It writes over a connection of its own, if it can get one. A
	// lock of another session is no error.
	Probe(ctx context.Context) error
	// Runnable returns why no runtime can run on the store, although the store can be read.
	Runnable(ctx context.Context) error
	// SchemaVersions compares the store's tables with the migrations of this program. It needs no migrated store.
	SchemaVersions(ctx context.Context) (SchemaVersions, error)
}

// ReadRange selects events with After < position <= UpTo, of the given types (none: all) and of a partition's share, at
// most Limit of them, and about MaxBytes.
type ReadRange struct {
	After, UpTo int64
	Types       []string
	Share       partition.Share
	Limit       int
	MaxBytes    int
}

// Page is the result of a read.
type Page struct {
	Events []event.Envelope
	// To is the position up to which the page has all events of its range.
	To int64
	// Incarnation is the server's incarnation when the page was read.
	Incarnation Incarnation
	// Bytes is the memory that the events share and hold beside themselves.
	Bytes int
	// Asked is when the append began whose events these are, zero for a read.
	Asked time.Time
}

// Size returns how much memory the events take in bytes.
func (p Page) Size() (bytes int) {
	for i := range p.Events {
		bytes += p.Events[i].Size()
	}
	return bytes
}

// Page makes a page of the events read of the range, which it reuses. truncated reports whether the read ended before
// the range or the limit, after at least one event. The caller sets Bytes.
func (r ReadRange) Page(events []event.Envelope, truncated bool, in Incarnation) Page {
	page := Page{Events: events, To: r.UpTo, Incarnation: in}
	if truncated || len(events) >= r.Limit {
		page.To = events[len(events)-1].Position
	}
	if len(r.Share.Passed) > 0 {
		page.Events = slices.DeleteFunc(events,
			func(e event.Envelope) bool { return !r.Share.Has(e.Stream, e.Position) })
	}
	return page
}

// Heads are the highest visible positions of tenants.
type Heads struct {
	Positions map[string]int64
	// Failed says why the heads of other tenants could not be read, such as tenancy.ErrLocked.
	Failed map[string]error
	// Incarnation is the server's incarnation when all of them were read.
	Incarnation Incarnation
}

// EventAge is when an event was inserted, and how long ago that was by the clock of the store.
type EventAge struct {
	At  time.Time
	Age time.Duration
}

// Settled is how far a tenant's events are settled. Mark is the settled mark, or a lower position if appends are in
// progress. Held describes these, nil if there are none. Its Since is not set.
type Settled struct {
	Mark int64
	Held *Held
}

// Waker is told of each append made through a store in this process. Its functions do not block.
type Waker struct {
	// Wake is called after the append with the tenant and the position of its last event, or UnknownPosition. own has
	// the events of the append, as a read would return them. It is nil if they have to be read.
	Wake func(tenant string, position int64, own *Page)
	// Rests reports before an append of a tenant whether Wake would make use of its events. nil means that it never
	// does.
	Rests func(tenant string) bool
}

// Tail has the settled mark of a tenant and its newest settled events: all with From < position <= Mark. Incarnation
// is that of the server in which they were read. All of them were asked for at Asked or later.
type Tail struct {
	Incarnation Incarnation
	Mark        int64
	From        int64
	Events      []event.Envelope
	Asked       time.Time
}

// Followers take what a runtime of their process reads, so that a tenant is read once. Its methods do not block.
type Followers interface {
	// Followed reports whether a tenant has followers.
	Followed(tenant string) bool
	// Advanced gives them what the runtime has read. nil means that it does not read the tenant any more, or that what
	// it has read may not exist any more: then they read for themselves.
	Advanced(tenant string, t *Tail)
	// Gone ends them: events at or below a mark that they were given are gone, or belong to an earlier tenant of the
	// name.
	Gone(tenant string)
}

// TenantPosition is a position in the events of a tenant.
type TenantPosition struct {
	Tenant   string
	Position int64
}

// TailPoller follows the end of a tenant's events and advances the settled mark. One goroutine uses it at a time.
type TailPoller interface {
	// ReadWithin sets the function that waits for a slot before each read. It is called before the first Poll, if at
	// all. Poll waits for no slot while it waits for open transactions, or starts together with other pollers.
	ReadWithin(slot ReadSlot)
	// Poll polls for events beyond the mark. After an error the poller starts again.
	Poll(ctx context.Context) (TailUpdate, error)
	// Take moves the mark over the events of a committed append, if they are what Poll would return next. Otherwise it
	// changes nothing and returns false: then Poll finds them.
	Take(own *Page) (TailUpdate, bool)
}

// ReadSlot waits for the slot of a read, and returns the context that limits the read. release is called after the
// read.
type ReadSlot func(ctx context.Context) (limited context.Context, release func(), err error)

// NoReadSlot is a ReadSlot that neither waits nor limits.
func NoReadSlot(ctx context.Context) (limited context.Context, release func(), err error) {
	return ctx, func() {}, nil
}

// TailUpdate is the result of a poll.
type TailUpdate struct {
	// Mark is the settled mark: no event at or below it can still appear.
	Mark int64
	// Incarnation is the server's incarnation when the mark was settled and Events were read.
	Incarnation Incarnation
	// From is where Events begin: they are all events with From < position <= Mark. A mark that is found without a read
	// has From equal to Mark.
	From   int64
	Events []event.Envelope
	// Bytes is the memory that Events share and hold beside themselves.
	Bytes int
	// Gone reports that the tail has begun anew, since events at or below its mark are gone, or belonged to an earlier
	// tenant of the name.
	Gone bool
	// More reports whether another poll may find more at once.
	More bool
	// Again is the delay before the next poll while the tail waits for a gap. 0 means that a wake-up starts the next
	// one.
	Again time.Duration
	// Held describes what holds the mark back. It is nil if nothing does.
	Held *Held
}

// Held is a gap that the settled mark waits for.
type Held struct {
	// Below is the visible position above the gap.
	Below int64
	// Since is when the wait began.
	Since time.Time
	// Holders names the open transactions: "backend" and its pid, or "prepared transaction" and its virtual transaction
	// id. pg_locks has that id, and pg_prepared_xacts has the transaction.
	Holders []string
}

// Session is the node's session connection: it listens, and its heartbeat keeps the node's leases.
type Session interface {
	// Next waits for the next notice. It returns ctx's error when ctx is done, and leaves the session usable.
	Next(ctx context.Context) (Notice, error)
	// Heartbeat extends the node's leases, and writes the node's summary if it has changed.
	Heartbeat(ctx context.Context, summary *NodeSummary) error
	// ListPeers returns the other living nodes.
	ListPeers(ctx context.Context) (Fleet, error)
	// MarkDead ends the heartbeat of a node whose session lock is gone, and notifies the others. It returns false if
	// the node holds its lock again, has sent a heartbeat since, or is dead already.
	MarkDead(ctx context.Context, node Peer) (bool, error)
	// Pooled reports whether the connection goes through a pooler. Then no notices arrive, and there is no session
	// lock.
	Pooled() bool
	// Deregister removes the node. Leases that it still holds are free at once.
	Deregister(ctx context.Context) error
	// Close ends the connection.
	Close(ctx context.Context) error
}

// UnknownPosition is the position of events that were announced without one. It is higher than any settled mark.
const UnknownPosition = math.MaxInt64

// Notice is a notification that the session received.
type Notice struct {
	// Tenant has new events up to Position, which may be UnknownPosition. With Control, its state or the set of its
	// projections changed instead.
	Tenant   string
	Position int64
	// Control reports whether the notice is about leases. With Nodes, nodes came or went. With a Row, its projection
	// was paused or resumed or, with Commanded, has commands for its dead letters. With Operations, an operation was
	// requested or cancelled. If none of these is set and Tenant is empty, leases came free.
	Control    bool
	Row        int32
	Commanded  bool
	Nodes      bool
	Operations bool
}
