// Package engine has what the actors of a runtime and its store share: leases, batches, faults, and Store, the port through
// which the actors reach a database.
package engine

import (
	"context"
	"math"
	"reflect"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
)

// Store is the port to the database. Every method is safe for concurrent use and bounded by ctx.
type Store interface {
	Operations
	// Name is the store's type in errors, such as *pgstore.Store.
	Name() string
	// TxType is the type of the transactions that the store gives to handlers.
	TxType() reflect.Type
	// Connections is how many statements and batches can run at once.
	Connections() int
	// DefaultBatches is how many batches run at once by default, 0 if that depends on Connections alone.
	DefaultBatches() int
	// ConnectionWaits returns how work has waited for connections, also work that is not a runtime's. It sends no statement.
	ConnectionWaits() ConnectionWaits
	// Pooled reports whether a pooler in transaction mode stands between the store and the server.
	Pooled() bool
	// NotWithin returns projection.ErrWithinTx if ctx is the context of a transaction of the store.
	NotWithin(ctx context.Context) error
	// ValidTenant returns an error if no tenant can have that name.
	ValidTenant(name string) error
	// Apply returns the Run of a projection whose handler takes TxType.
	Apply(h Handler, o ApplyOptions) Run
	// Opening returns a function that makes the Opening of a projection's next batch. It returns nil if the store does not begin
	// batches in advance.
	Opening(o ApplyOptions) func(lease Lease) Opening
	// Deliver returns the Run of a projection that delivers outside of a transaction.
	Deliver(h Handler, o DeliverOptions) Run
	// Abandoned counts the handlers that did not return after their context was cancelled.
	Abandoned() int64
	// SchemaVersions compares the store's tables with the migrations of this program. It needs no migrated store.
	SchemaVersions(ctx context.Context) (SchemaVersions, error)
	// Absent returns why a tenant's events cannot be found: there is no such tenant, or its schema was dropped.
	Absent(ctx context.Context, tenant string) error
	// Projections lists the rows that a filter selects, sorted. It reads no tenant's tables.
	Projections(ctx context.Context, filter ProjectionFilter) ([]ProjectionRow, error)
	// Nodes lists the rows of the nodes, the oldest first.
	Nodes(ctx context.Context) ([]NodeRow, error)
	// Overview returns the figures that no node counts. patience is how long a projection may have no living owner. Those
	// of the names in byTenant are counted for each tenant. It reads no tenant's tables.
	Overview(ctx context.Context, patience time.Duration, byTenant []string) (Overview, error)
	// OldestSnapshot returns the transaction in this database with the oldest snapshot.
	OldestSnapshot(ctx context.Context) (Snapshot, error)
	// SetDesiredState sets the desired state of a projection and notifies its owner. WantRun clears the failure of the
	// projection. If the projection was halted at an event, the attempts at that event are counted anew.
	SetDesiredState(ctx context.Context, id projection.ID, desired DesiredState) error
	// PauseEnded reports whether the lease of a paused projection is free. It frees the lease of a dead owner. It returns
	// projection.ErrResumed if the projection was resumed meanwhile.
	PauseEnded(ctx context.Context, id projection.ID) (free bool, err error)
	// Versions returns how far a version of a projection is behind the earlier one. types are the event types that the version
	// selects. It returns projection.ErrUnknownProjection, projection.ErrRetired or projection.ErrUnknownTenant if the version has
	// no rows, and projection.ErrSeveralVersions.
	Versions(ctx context.Context, id projection.ID, types []string) (versions.State, error)
	// Repartition replaces the partitions of a projection by n others in one transaction, and notifies the nodes. Each event
	// is handled once, by an old or a new partition. Previous owners cannot commit any more. If the projection has n
	// partitions, Repartition changes nothing.
	Repartition(ctx context.Context, id projection.ID, n int) error
	// Connect opens the node's session connection, registers the node and starts to listen.
	Connect(ctx context.Context, node Node) (Session, error)
	// OnWake registers fn, which is called after each append made through this store in this process, with the tenant and the
	// position of its last event, or UnknownPosition. remove ends that.
	OnWake(fn func(tenant string, position int64)) (remove func())
	// Runnable returns why no runtime can run on the store, although the store can be read.
	Runnable(ctx context.Context) error
	// Tenants lists the tenants of these names, or all of the store if names is nil, sorted by name.
	Tenants(ctx context.Context, names []string) ([]Tenant, error)
	// SetTenantDesired pauses a tenant, or resumes it, and notifies the nodes. The desired states of its projections do not
	// change. It returns projection.ErrTenantDropping or projection.ErrTenantCopying while the tenant is being dropped or copied.
	SetTenantDesired(ctx context.Context, tenant string, desired DesiredState) error
	// SuspensionEnded reports whether all leases of a tenant that is paused, archived or being dropped are free. It frees the
	// leases of dead owners. It returns projection.ErrResumed if the tenant's projections may run again.
	SuspensionEnded(ctx context.Context, tenant string) (free bool, err error)
	// Ensure inserts the rows of those projections that have none, one for each partition. Tenants that do not exist, or are
	// archived or being dropped, are left out. So are retired names, and projections that have rows under the name RenamedFrom:
	// Ensure returns these. If it creates a projection, it retires the name RenamedFrom.
	Ensure(ctx context.Context, projections []NewProjection) (LeftOut, error)
	// Retired returns the retired ones of these names in these tenants.
	Retired(ctx context.Context, tenants, names []string) ([]*Retired, error)
	// Rename gives a projection another name, with all its versions and partitions, in one transaction. Their owners cannot
	// commit any more, and the nodes are notified. The old names are retired, and names that led to them lead to the new ones.
	// It returns projection.ErrExists if a projection has the new name. If the projection has it already, Rename does nothing.
	Rename(ctx context.Context, rename Rename) error
	// RenameUnused is Rename for many tenants, in one transaction. It leaves out projections that a living node registers
	// under an old name, and those that cannot be renamed.
	RenameUnused(ctx context.Context, renames []Rename) error
	// Forget deletes a projection and all that belongs to it, and retires its name. It returns projection.ErrInUse if a living
	// node registers the projection, or holds its lease. If it was forgotten already, Forget does nothing.
	Forget(ctx context.Context, id projection.ID) error
	// Create creates a projection whose name may be retired, and notifies the nodes. It returns projection.ErrExists if a
	// projection has that name.
	Create(ctx context.Context, new NewProjection) error
	// Free lists the leases that the node could claim: those without an owner, unless unowned is false, and those of dead owners.
	// An owner whose heartbeat ran out counts as dead only if trustHeartbeats is true.
	Free(ctx context.Context, node Node, trustHeartbeats, unowned bool) ([]LeaseRef, error)
	// Counts returns how many leases of each projection are wanted, in one count for all tenants. The leases of these tenants,
	// of these projections, and of partitions are counted for each tenant separately.
	Counts(ctx context.Context, tenants, names []string) ([]Want, error)
	// Claim claims those of the leases that are still free, in one statement. Then it ends the sessions that are left of the
	// batches of dead owners.
	Claim(ctx context.Context, node Node, rows []int32, trustHeartbeats bool) ([]Lease, error)
	// AnnounceDrain notifies the other nodes that the node releases its leases, so that they take its share.
	AnnounceDrain(ctx context.Context, node Node) error
	// Owned reads all leases that the node holds.
	Owned(ctx context.Context, node Node) ([]Lease, error)
	// Leases reads leases by their rows, whoever holds them. It leaves out rows that no longer exist.
	Leases(ctx context.Context, rows []int32) ([]Lease, error)
	// Release moves the checkpoints, frees the leases and notifies the nodes. It leaves out leases that the node no longer
	// holds.
	Release(ctx context.Context, advances []Advance) error
	// Advance moves checkpoints over events that do not concern their projections and returns the rows that moved.
	Advance(ctx context.Context, advances []Advance) (moved map[int32]bool, err error)
	// RecordFailure writes the attempts at an event, under the lease's fence, and returns when the event failed first. With
	// an attempt of 0 it counts nothing and writes only the error, as the reason of a wait. retry is the delay of the next
	// attempt, 0 if that is not known.
	RecordFailure(ctx context.Context, lease Lease, failure projection.Failure, retry time.Duration) (first time.Time, err error)
	// BeginAttempt counts an attempt at an event before the handler is called, under the lease's fence.
	BeginAttempt(ctx context.Context, lease Lease, position int64, attempt int) error
	// Park writes the dead letter and advances the checkpoint over its event in one fenced transaction. With stream, the later
	// events of its stream are parked, too.
	Park(ctx context.Context, lease Lease, letter projection.DeadLetter, stream bool) error
	// ParkedStreams returns which of these streams are parked.
	ParkedStreams(ctx context.Context, lease Lease, streams []string) (map[string]bool, error)
	// NextCommand returns the oldest open command for dead letters, discards before replays, and how many dead letters are
	// parked. With discards it leaves out replays.
	NextCommand(ctx context.Context, lease Lease, discards bool) (ReplayQueue, error)
	// Discard discards the dead letters of a command under the lease's fence and ends the command. It returns how many there
	// were.
	Discard(ctx context.Context, lease Lease, command int64) (int64, error)
	// BeginReplay counts the next replay of a command before it runs, under the lease's fence. The replay itself is a batch.
	// unfinished is the dead letter whose replay the caller began last, without an outcome. If no dead letter is left,
	// BeginReplay ends the command and returns nil.
	BeginReplay(ctx context.Context, lease Lease, command, unfinished int64) (*Replay, error)
	// FailReplay parks a dead letter again after a failed replay, under the lease's fence. The command continues after it, unless
	// the projection stops: then it ends.
	FailReplay(ctx context.Context, lease Lease, failed FailedReplay) error
	// SkipReplay discards a dead letter after a failed replay, under the lease's fence, and counts its event as skipped. The
	// command continues after it.
	SkipReplay(ctx context.Context, lease Lease, failed FailedReplay) error
	// ScheduleReplay creates a command for the dead letter that is due by the policy, if there is one and no command is open.
	// Otherwise next is the time until one is due, 0 if none ever is.
	ScheduleReplay(ctx context.Context, lease Lease, policy projection.ReplayPolicy) (scheduled bool, next time.Duration, err error)
	// Skip counts a skipped event and advances the checkpoint to its position, in one fenced transaction.
	Skip(ctx context.Context, lease Lease, position int64) error
	// Halt writes under the lease's fence that the projection waits until a user resumes it, and why.
	Halt(ctx context.Context, lease Lease, reason string) error
	// Read returns a page of a tenant's events.
	Read(ctx context.Context, tenant string, r ReadRange) (Page, error)
	// Tail follows the end of a tenant's events.
	Tail(tenant string) Tail
	// Orders returns the orders of the projections of these rows, or of all whose leases the node holds if rows is nil. It
	// leaves out projections that should run and have no commands.
	Orders(ctx context.Context, node Node, rows []int32) (map[int32]Orders, error)
	// SetFailed writes under the lease's fence why a projection waits for a person. An empty reason clears that. It changes
	// nothing about a projection that Halt stopped.
	SetFailed(ctx context.Context, lease Lease, reason string) error
	// Heads returns the highest visible position of each tenant. It leaves out tenants that do not exist.
	Heads(ctx context.Context, tenants []string) (Heads, error)
	// Settle returns how far the events of these tenants are settled up to heads, which were just read. It waits a moment for
	// appends in progress. It leaves out tenants without a head.
	Settle(ctx context.Context, heads Heads, tenants []string) (map[string]Settled, error)
	// Ages returns how long ago the first event after each position was inserted. It leaves out positions without a later
	// event, and tenants that cannot be read.
	Ages(ctx context.Context, after []TenantPosition) (map[TenantPosition]time.Duration, error)
	// Ping returns nil if the server answers over the pool and is the primary.
	Ping(ctx context.Context) error
	// Probe returns nil if the server can be worked with. It writes over a connection of its own, if it can get one. A lock
	// of another session is no error.
	Probe(ctx context.Context) error
	// Classify returns err as a Fault with its class.
	Classify(err error) *Fault
}

// ReadRange selects events with After < position <= UpTo, of the given types (none: all) and of a partition's share, at most
// Limit of them, and about MaxBytes.
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
	// Incarnation is that of the server in which the page was read.
	Incarnation Incarnation
	// Bytes is the memory that the events share and hold beside themselves.
	Bytes int
}

// Heads are the highest visible positions of tenants.
type Heads struct {
	Positions map[string]int64
	// Failed says why the heads of other tenants could not be read, such as ErrTenantLocked.
	Failed map[string]error
	// Incarnation is that of the server in which all of them were read.
	Incarnation Incarnation
}

// Settled is how far a tenant's events are settled. Mark is the settled mark, or a lower position if appends are in progress.
// Held describes these, nil if there are none. Its Since is not set.
type Settled struct {
	Mark int64
	Held *Held
}

// TenantPosition is a position in the events of a tenant.
type TenantPosition struct {
	Tenant   string
	Position int64
}

// Tail follows the end of a tenant's events and advances the settled mark. One goroutine uses it at a time.
type Tail interface {
	// ReadWithin sets the function that waits for a slot before each read. It is called before the first Poll, if at all. Poll
	// waits for no slot while it waits for open transactions, or starts together with other tails.
	ReadWithin(slot ReadSlot)
	// Poll polls for events beyond the mark. After an error the tail starts again.
	Poll(ctx context.Context) (TailUpdate, error)
}

// ReadSlot waits for the slot of a read, and returns the context that limits the read. release is called after the read.
type ReadSlot func(ctx context.Context) (limited context.Context, release func(), err error)

// NoReadSlot is a ReadSlot that neither waits nor limits.
func NoReadSlot(ctx context.Context) (limited context.Context, release func(), err error) {
	return ctx, func() {}, nil
}

// TailUpdate is the result of a poll.
type TailUpdate struct {
	// Mark is the settled mark: no event at or below it can still appear.
	Mark int64
	// Incarnation is that of the server in which the mark was settled and Events were read.
	Incarnation Incarnation
	// From is where Events begin: they are all events with From < position <= Mark. A mark that is found without a read has
	// From equal to Mark.
	From   int64
	Events []event.Envelope
	// Bytes is the memory that Events share and hold beside themselves.
	Bytes int
	// More reports whether another poll may find more at once.
	More bool
	// Again is the delay before the next poll while the tail waits for a gap. 0 means that a wake-up starts the next one.
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
	// Holders names the open transactions: "backend" and its pid, or "prepared transaction" and its virtual transaction id.
	// pg_locks has that id, and pg_prepared_xacts has the transaction.
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
	// MarkDead ends the heartbeat of a node whose session lock is gone, and notifies the others. It returns false if the node
	// holds its lock again, has sent a heartbeat since, or is dead already.
	MarkDead(ctx context.Context, node Peer) (bool, error)
	// Pooled reports whether the connection goes through a pooler. Then no notices arrive, and there is no session lock.
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
	// Tenant has new events up to Position; 0 means UnknownPosition. With Control, its state or the set of its projections changed
	// instead.
	Tenant   string
	Position int64
	// Control reports whether the notice is about leases. With Nodes, nodes came or went. With a Row, its projection was
	// paused or resumed or, with Commanded, has commands for its dead letters. With Operations, an operation was requested or
	// cancelled. If none of these is set and Tenant is empty, leases came free.
	Control    bool
	Row        int32
	Commanded  bool
	Nodes      bool
	Operations bool
}
