package engine

import (
	"context"
	"reflect"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// Store is the port to the database. Every method is safe for concurrent use and bounded by ctx.
type Store interface {
	// Name is the store's type in errors, such as *pgstore.Store.
	Name() string
	// TxType is the type of the transactions that the store gives to handlers.
	TxType() reflect.Type
	// Connections is how many statements and batches can run at once.
	Connections() int
	// Pooled reports whether a pooler in transaction mode stands between the store and the server.
	Pooled() bool
	// ValidTenant returns an error if no tenant can have that name.
	ValidTenant(name string) error
	// Apply returns what runs the batches of a projection whose handler takes TxType.
	Apply(h Handler, o ApplyOptions) Run
	// Deliver returns what runs the deliveries of a projection.
	Deliver(h Handler, o DeliverOptions) Run
	// Abandoned counts the handlers that did not return after their context was cancelled.
	Abandoned() int64
	// Absent returns why a tenant's events cannot be found: there is no such tenant, or its schema was dropped.
	Absent(ctx context.Context, tenant string) error
	// Projections lists the projections of these tenants as the database has them, sorted.
	Projections(ctx context.Context, tenants []string) ([]ProjectionRow, error)
	// Nodes lists the nodes as the database has them, the oldest first.
	Nodes(ctx context.Context) ([]NodeRow, error)
	// OldestSnapshot returns the transaction in this database with the oldest snapshot.
	OldestSnapshot(ctx context.Context) (Snapshot, error)
	// SetWanted sets the desired state of a projection and notifies its owner. WantRun clears its failure; if it had stopped at
	// an event, the attempts at that event are counted anew.
	SetDesiredState(ctx context.Context, id projection.ID, desired DesiredState) error
	// PauseEnded reports whether the lease of a paused projection is free. A dead owner's lease is taken away and left free. The
	// error is projection.ErrResumed if the projection was resumed meanwhile.
	PauseEnded(ctx context.Context, id projection.ID) (free bool, err error)
	// Connect opens the node's session connection, registers the node and starts to listen.
	Connect(ctx context.Context, node Node) (Session, error)
	// OnWake registers fn to be called with the tenant after each append made through this store in this process. The
	// function returned ends it.
	OnWake(fn func(tenant string)) (remove func())
	// Tenants lists the tenants of the store.
	Tenants(ctx context.Context) ([]string, error)
	// Ensure makes the rows of the projections for each tenant where they are missing.
	Ensure(ctx context.Context, tenants, names []string) error
	// Free lists the leases that the node could claim: nobody holds them, or their owner is dead. judge says whether a
	// heartbeat that ran out means death.
	Free(ctx context.Context, node Node, judge bool) ([]LeaseRef, error)
	// Counts tells how many leases are wanted, apart for each of the tenants named, together for all others.
	Counts(ctx context.Context, tenants []string) ([]Want, error)
	// Claim takes those of the leases that are still free, in one statement, and then ends what is left of the batches of
	// dead owners.
	Claim(ctx context.Context, node Node, rows []int32, judge bool) ([]Lease, error)
	// Leave tells the other nodes that the node gives its leases back, so that they take its share.
	AnnounceDrain(ctx context.Context, node Node) error
	// Owned returns all leases that the node holds, as the database has it.
	Owned(ctx context.Context, node Node) ([]Lease, error)
	// Leases reads leases by their rows, whoever holds them. A row that does not exist any more is left out.
	Leases(ctx context.Context, rows []int32) ([]Lease, error)
	// Release gives the leases back, each with its checkpoint moved to the given one, and tells the nodes. Leases that are
	// no longer held are passed over.
	Release(ctx context.Context, advances []Advance) error
	// Advance moves checkpoints over events that do not concern their projections and returns the rows that moved.
	Advance(ctx context.Context, advances []Advance) (moved map[int32]bool, err error)
	// RecordFailure keeps the count of an event's failures under the lease's fence, and returns when the first was. With an
	// attempt of 0 nothing is counted, and the error is why the projection waits there.
	RecordFailure(ctx context.Context, lease Lease, failure projection.Failure) (first time.Time, err error)
	// BeginAttempt counts an attempt at an event before it is made, under the lease's fence.
	BeginAttempt(ctx context.Context, lease Lease, position int64, deaths int) error
	// Park writes the dead letter and advances the checkpoint over its event in one fenced transaction. stream tells that
	// later events of its stream are to be parked behind it.
	Park(ctx context.Context, lease Lease, letter projection.DeadLetter, stream bool) error
	// ParkedStreams tells which of these streams are parked.
	ParkedStreams(ctx context.Context, lease Lease, streams []string) (map[string]bool, error)
	// NextCommand returns what is to be done with dead letters, the oldest first, and how many there are. discards leaves
	// out replays.
	NextCommand(ctx context.Context, lease Lease, discards bool) (ReplayQueue, error)
	// Discard carries a command out under the lease's fence, and ends it. It returns how many letters were discarded.
	Discard(ctx context.Context, lease Lease, command int64) (int64, error)
	// BeginReplay counts the next replay of a command, under the lease's fence, before it is made. mine is the letter whose
	// replay the caller began last, without a word on how that ended. It returns nil where nothing is left, and ends the
	// command then. The replay itself is a batch.
	BeginReplay(ctx context.Context, lease Lease, command, mine int64) (*Replay, error)
	// FailReplay parks a dead letter again whose replay failed, under the lease's fence. The command goes on without it.
	FailReplay(ctx context.Context, lease Lease, failed FailedReplay) error
	// StopReplay is FailReplay, and also stops the projection until it is resumed, with that reason. The command ends.
	StopReplay(ctx context.Context, lease Lease, failed FailedReplay, reason string) error
	// SkipReplay gives up a dead letter whose replay failed, under the lease's fence. It counts the event as skipped, and the
	// command goes on after it.
	SkipReplay(ctx context.Context, lease Lease, failed FailedReplay) error
	// ScheduleReplay makes a command of the letter that is due by the policy, if there is one and no command is open. Else
	// next is in how long one is due, 0 where none ever is.
	ScheduleReplay(ctx context.Context, lease Lease, policy projection.ReplayPolicy) (scheduled bool, next time.Duration, err error)
	// Skip counts a skipped event and advances the checkpoint over it, up to position, in one fenced transaction.
	Skip(ctx context.Context, lease Lease, position int64) error
	// Halt keeps, under the lease's fence, that the projection waits until somebody resumes it, and why.
	Halt(ctx context.Context, lease Lease, reason string) error
	// Read returns events of a tenant with after < position <= upTo, of the given types (none: all), at most limit of
	// them and about maxBytes, and the position up to which nothing else was left out.
	Read(ctx context.Context, tenant string, r ReadRange) (Page, error)
	// Tail follows the end of a tenant's events.
	Tail(tenant string) Tail
	// Wanted returns what is asked of the projections of these rows, or with nil of all whose leases the node holds. Those that
	// should run and have no commands are left out.
	Orders(ctx context.Context, node Node, rows []int32) (map[int32]Orders, error)
	// SetFailed keeps why a projection waits for somebody, or with an empty reason that it does not any more, under the
	// lease's fence. It changes nothing about one that Halt stopped.
	SetFailed(ctx context.Context, lease Lease, reason string) error
	// Heads returns the highest visible position of each tenant; one that does not exist is left out.
	Heads(ctx context.Context, tenants []string) (Heads, error)
	// Ping returns nil if the server answers over the pool, and is the primary.
	Ping(ctx context.Context) error
	// Probe returns nil if the server can be worked with. It writes over a connection of its own, if it can get one. A lock
	// of another session is no error.
	Probe(ctx context.Context) error
	// Classify tells whose fault err is.
	Classify(err error) *Fault
}

// Desk is what there is to do with dead letters: Command is nil where nothing is. Parked and ParkedStreams are as in Lease.
type ReplayQueue struct {
	Command       *Command
	Parked        int64
	ParkedStreams bool
}

// ReadRange says what to read.
type ReadRange struct {
	After, UpTo int64
	Types       []string
	Limit       int
	MaxBytes    int
}

// Page is a piece of a tenant's events.
type Page struct {
	Events []event.Envelope
	// To is the position up to which the page is complete.
	To int64
	// Incarnation is that of the server in which the page was read.
	Incarnation Incarnation
	// Bytes is the memory that the events share and hold beside themselves.
	Bytes int
}

// Heads are the highest visible positions of tenants.
type Heads struct {
	// Positions has them by tenant. Failed says why those of other existing tenants could not be read, for instance that
	// their events are locked (ErrTenantLocked).
	Positions map[string]int64
	Failed    map[string]error
	// Incarnation is that of the server in which all of them were read.
	Incarnation Incarnation
}

// Tail follows the end of a tenant's events and settles it. It is used by one goroutine at a time.
type Tail interface {
	// ReadWithin sets what is called for a slot before each read; the slot is given back after it. It is called before
	// the first Poll, if at all.
	ReadWithin(slot func(ctx context.Context) (release func(), err error))
	// Poll looks for events beyond the mark. After an error everything the tail knew is forgotten.
	Poll(ctx context.Context) (TailUpdate, error)
}

// TailUpdate is what a look at a tenant's end found.
type TailUpdate struct {
	// Mark is the settled mark: no event at or below it can still appear.
	Mark int64
	// Incarnation is that of the server in which the mark was settled and Events were read.
	Incarnation Incarnation
	// From is where Events begin: they are all events with From < position <= Mark, or none where Mark was found at once.
	From   int64
	Events []event.Envelope
	// Bytes is the memory that Events share and hold beside themselves.
	Bytes int
	// More tells that there may be more to read at once.
	More bool
	// Again is when to look again because a gap is being waited for; 0 means on the next wake.
	Again time.Duration
	// Held tells what holds the mark back, nil where nothing does.
	Held *Held
}

// Session is the node's session connection: it listens, and its heartbeat keeps the node's leases.
type Session interface {
	// Next waits for the next notice. It returns ctx's error when ctx is done, and leaves the session usable.
	Next(ctx context.Context) (Notice, error)
	// Heartbeat extends the node's leases.
	Heartbeat(ctx context.Context) error
	// Look tells which other nodes are alive.
	ListPeers(ctx context.Context) (Fleet, error)
	// Bury ends the heartbeat of a node whose session lock is gone, and tells the others. It returns false where the node
	// holds its lock again, has sent a heartbeat since, or is dead already.
	MarkDead(ctx context.Context, node Peer) (bool, error)
	// Pooled tells that a pooler stands between, so that no notices arrive and there is no session lock.
	Pooled() bool
	// Depart deregisters the node: leases that it still holds are free at once.
	Deregister(ctx context.Context) error
	// Close ends the connection.
	Close(ctx context.Context) error
}

// Notice is what a session heard.
type Notice struct {
	// Tenant has new events, unless the notice is about leases.
	Tenant string
	// Control reports that the notice is about leases: the projection of Row was paused or resumed or, where Commanded is set,
	// has commands for its dead letters; or nodes come and go; or else leases came free.
	Control   bool
	Row       int32
	Commanded bool
	Nodes     bool
}

// Command is what somebody wants to be done with dead letters: the holder of the lease does it.
type Command struct {
	ID int64
	// Replay tells that they are to be replayed, else they are discarded.
	Replay bool
}
