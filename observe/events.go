package observe

import (
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Batch is a batch or a delivery that has ended.
type Batch struct {
	Projection projection.ID
	// Delivery reports whether the handler worked outside a transaction.
	Delivery bool
	// Live reports whether the projection had reached the end of the events. Otherwise it was catching up.
	Live bool
	// Events counts the events that the handler got, and Bytes is their approximate size. They are 0 if the batch
	// failed before the handler was called.
	Events, Bytes int
	// Applied counts the events among them that were handled, and whose effects are committed or acknowledged.
	Applied int
	// Parked counts the events that were parked with the batch: because an earlier event of their stream is parked, or
	// because the handler of a delivery rejected them.
	Parked int
	// Position is the checkpoint after the batch if the batch was committed, otherwise the checkpoint before it.
	Position int64
	// Oldest is when the first of the events was appended, by the clock of the database.
	Oldest time.Time
	// Queued is how long the batch waited for its slot, Duration how long it took afterwards.
	Queued, Duration time.Duration
	// Fault is the kind of the error, empty if the batch succeeded. Err is the error.
	Fault Fault
	Err   error
}

// Fault says where the cause of an error lies.
type Fault string

// The faults of batches.
const (
	// FaultHandler is an error, a panic or a timeout of the handler.
	FaultHandler Fault = "handler"
	// FaultOutage is an error for which IsOutage of Projection.Breaker reported that a service is down.
	FaultOutage Fault = "outage"
	// FaultInfrastructure is an error of the database that says nothing about the event, such as a deadlock or a lock
	// wait.
	FaultInfrastructure Fault = "infrastructure"
	// FaultUnclear is an error that either the server or the event may have caused, such as a lost connection.
	FaultUnclear Fault = "unclear"
	// FaultInterrupted is an error that may not recur on another connection, such as a cancelled statement.
	FaultInterrupted Fault = "interrupted"
	// FaultMissingObject is a table, column, function, schema or privilege that the handler needs and that is missing.
	FaultMissingObject Fault = "missing object"
	// FaultConfiguration is an error that a change of the configuration must repair, such as an unknown tenant.
	FaultConfiguration Fault = "configuration"
	// FaultLeaseLost means that another node holds the lease, so the batch was refused.
	FaultLeaseLost Fault = "lease lost"
)

// Failure is a counted failure of an event.
type Failure struct {
	Projection projection.ID
	Position   int64
	Stream     string
	Type       string
	// Attempt is how often the event has failed so far.
	Attempt int
	Fault   Fault
	Err     error
}

// Decision is the action of a projection for events that it cannot handle.
type Decision struct {
	Projection projection.ID
	// Action is ActionPark, ActionParkStream, ActionSkip or ActionStop of package projection.
	Action projection.Action
	// Events counts the events that were parked or skipped. It is more than 1 only for events that are parked because
	// an earlier event of their stream is parked. It is 0 if the projection stopped.
	Events int
	// Position, Stream and Type describe the event, and Attempts counts its failures. If several events were parked,
	// Position is the last checkpoint, and the others are empty. If a projection stopped because events are gone, all
	// are empty.
	Position int64
	Stream   string
	Type     string
	Attempts int
	// Err is the error of the event, or why the projection stopped. It is nil for events that are parked because of
	// their streams.
	Err error
}

// Replay is the replay of a dead letter.
type Replay struct {
	Projection projection.ID
	Position   int64
	Stream     string
	// Err is why the replay failed. It is nil if the event was handled.
	Err error
	// Action is the action after a failed replay: with ActionPark the event stays parked, with ActionSkip it was
	// skipped, and with ActionStop it stays parked and the projection stopped. It means nothing if Err is nil.
	Action projection.Action
}

// Breaker is a change of the state of a projection's circuit breaker.
type Breaker struct {
	Projection projection.ID
	Before     projection.BreakerState
	State      projection.BreakerState
	// Reason is why the breaker is open. It is nil if the breaker is not open.
	Reason error
}

// LeaseChange is a kind of change of a lease of this node.
type LeaseChange string

// The changes of a lease.
const (
	LeaseClaimed  LeaseChange = "claimed"
	LeaseReleased LeaseChange = "released"
	LeaseLost     LeaseChange = "lost"
)

// Lease is a change of a lease of this node.
type Lease struct {
	Projection projection.ID
	Change     LeaseChange
	Epoch      int64
	// Takeover reports whether the lease was claimed after a node died that held it. It is also true for later claims,
	// until a batch commits or the projection reaches the end of the events.
	Takeover bool
}

// Hold is a wait of a tenant's settled mark for open transactions.
type Hold struct {
	Tenant string
	// Ended reports whether the wait is over, or is no longer observed because the events cannot be read.
	Ended bool
	// Mark is the settled mark, and Below the position that it has not reached yet.
	Mark, Below int64
	// Holders names the transactions: "backend" and its pid, or "prepared transaction" and its virtual transaction id.
	Holders []string
	// Since is when the wait began.
	Since time.Time
}

// Read is a poll of a tenant's feed for new events, or the events of an append that the feed got without a poll.
type Read struct {
	Tenant string
	// Events counts the new events, and Bytes is the memory that they take.
	Events, Bytes int
	// Mark is the settled mark after the poll.
	Mark int64
	// Own reports that nothing was read: an append in this process gave its events to the feed. Then Duration is 0.
	Own bool
	// Woken reports whether an append or a notification caused the poll. Latency is the time from that wake-up to the
	// start of the poll.
	Woken   bool
	Latency time.Duration
	// Duration is how long the poll took, including waits for slots.
	Duration time.Duration
}

// Slot is a kind of slots. Each kind has a limit of its own.
type Slot string

// The kinds of slots. Work may need slots of several kinds.
const (
	SlotBatch        Slot = "batch"
	SlotDelivery     Slot = "delivery"
	SlotLongDelivery Slot = "long delivery"
	// SlotRead is for short statements, and SlotAck is for the statements of deliveries.
	SlotRead Slot = "read"
	SlotAck  Slot = "ack"
	// SlotQuarantine is for events at which processes may have crashed. There is one such slot.
	SlotQuarantine Slot = "quarantine"
)

// Wait is a wait for a slot. Slots keep work from waiting inside the connection pool.
type Wait struct {
	Slot Slot
	// Tenant and Name identify the projection. Name is empty for feeds, and both are for the node itself.
	Tenant, Name string
	Duration     time.Duration
	// Err is why the wait ended without a slot. It is nil if the work got its slot.
	Err error
}

// ConnectionWaits are the waits for connections of the store, of all work of this process that uses the store: batches,
// reads, appends and, for pgstore, whatever else uses the pool. A file has one connection for writing.
type ConnectionWaits struct {
	// Count counts the waits that ended with a connection, and Duration is how long these took together. On PostgreSQL
	// they include the time in which the pool opened a connection.
	Count    int64
	Duration time.Duration
	// GivenUp counts the waits that ended without a connection, because their contexts ended.
	GivenUp int64
}

// Session is a change of the node's session connection.
type Session struct {
	Connected bool
	// Again reports whether the node had a session connection before.
	Again bool
	// Pooled reports whether the connection goes through a pooler in transaction mode.
	Pooled bool
	// Err is why the connection was lost.
	Err error
	// Lasted is how long the node had a connection, or had none, before the change. It is 0 for the first connection.
	Lasted time.Duration
}

// Database is a change of the availability of the database.
type Database struct {
	Usable bool
	// Err is the error of the probe that failed, nil if Usable.
	Err error
	// Outage is how long the database could not be used, 0 unless Usable.
	Outage time.Duration
}

// ActorKind is a kind of actors.
type ActorKind string

// The kinds of actors.
const (
	ActorNode       ActorKind = "node"
	ActorListener   ActorKind = "listener"
	ActorFeed       ActorKind = "feed"
	ActorProjection ActorKind = "projection"
)

// Restart is the restart of an actor.
type Restart struct {
	Kind ActorKind
	// Projection is that of ActorProjection. For ActorFeed it has only the tenant.
	Projection projection.ID
	// Stuck reports whether the actor made no progress. Otherwise it panicked, and Err has the panic.
	Stuck bool
	Err   error
}
