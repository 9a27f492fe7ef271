package engine

import (
	"time"

	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Tenant is a tenant as the database has it.
type Tenant struct {
	// Row is the key of the tenant in the store. A tenant that is created again under its name has another.
	Row   int32
	Name  string
	State tenancy.State
}

// ProjectionFilter selects rows of projections. A row must match all of its fields. Empty fields match all rows.
type ProjectionFilter struct {
	Tenants, Names []string
	// IDs are exact: partition 0 selects the row of a projection that is not split.
	IDs []projection.ID
	// States select rows by ProjectionRow.State.
	States []string
	// Owner selects the leases of a node, NotOwner all others.
	Owner, NotOwner string
	// Parked selects projections with parked events.
	Parked bool
	// After selects the rows after that ID, in the order of tenants, names and partitions. Its tenant is not
	// empty.
	After projection.ID
	// Limit is how many rows are returned at most. 0 means all.
	Limit int
}

// LagFilter selects rows of projections by how far they are behind. A row must match all of its fields. Empty fields
// match all rows.
type LagFilter struct {
	// Heads are the heads of the tenants whose rows are selected.
	Heads map[string]int64
	Names []string
	// States select rows by ProjectionRow.State, except those of Owned and of Reported, which may have any state.
	States   []string
	Owned    string
	Reported []projection.ID
	// Owner and Parked are those of a ProjectionFilter.
	Owner  string
	Parked bool
	// Least is how far they are behind at least. After selects the rows after one, nil for the first page.
	Least int64
	After *LagRow
	Limit int
}

// LagRow is how far the checkpoint of a projection is behind the head of its tenant. Rows are sorted by Behind, the
// largest first, and then by ID.
type LagRow struct {
	ID                 projection.ID
	Checkpoint, Behind int64
	// State is that of a ProjectionRow, and Owner the node with the lease, dead or alive.
	State, Owner string
}

// ProjectionRow is a projection as the database has it.
type ProjectionRow struct {
	ID projection.ID
	// Partitions is how many partitions the projection has.
	Partitions int
	// State is the state by the row alone, as an admin.State. It is the first of these that applies: paused, failed
	// because it is halted, not owned, failed for its owner, missing object or waiting at a failing event, elsewhere.
	State string
	// Desired is the desired state of the projection. It is WantPause while its tenant is suspended. Tenant is the
	// state of the tenant.
	Desired DesiredState
	Tenant  tenancy.State
	// Failed is why the projection waits for an operator. It is empty if the projection does not.
	Failed string
	// Halted reports that the projection waits until it is resumed.
	Halted          bool
	FailingPosition int64
	Attempts        int
	LastError       string
	// LastErrorAt is when LastError was recorded. NextAttempt is when the attempt after it is due, zero if that is not
	// known.
	LastErrorAt, NextAttempt time.Time
	// OwnerName is the name of the node Owner. It is empty if the node has no row any more.
	Owner, OwnerName string
	OwnerAlive       bool
	// NotOwned is how long no living node has held the lease. It is 0 if one does.
	NotOwned   time.Duration
	Epoch      int64
	Checkpoint int64
	// Parked counts the parked events, Skipped the skipped ones.
	Parked, Skipped int64
	// OldestParked is the time at which the oldest parked event failed for the first time. It is zero if none is
	// parked.
	OldestParked time.Time
	// RebuildSince is when the projection was set back to the position RebuildFrom, zero if it was not, and RebuildFor
	// is how long ago that was. The rebuild ends at RebuildTo.
	RebuildSince           time.Time
	RebuildFor             time.Duration
	RebuildFrom, RebuildTo int64
	// Operation is the operation that holds the projection, or is open on it. Its Number is 0 if there is none. Held
	// reports that it holds the projection.
	Operation Operation
	Held      bool
}

// NodeRow is a node as the database has it. A node that was stopped gracefully has no row.
type NodeRow struct {
	Member
	// Alive reports whether its heartbeat is recent, and Draining whether it is releasing its leases.
	Alive, Draining bool
	StartedAt       time.Time
	HeartbeatAt     time.Time
	// Silent is the time since the heartbeat, by the server's clock.
	Silent time.Duration
	// Leases is how many leases it holds.
	Leases int
	// Summary is the summary of the node's last heartbeats, nil if a node of its version writes none.
	Summary *NodeSummary
}

// Overview has the figures of a deployment that are not in any node's summary.
type Overview struct {
	// Tenants counts the tenants in each state.
	Tenants map[tenancy.State]int
	// Paused, Halted and NotOwned count the projections that no living node owns. NotOwned are those that should run.
	Paused, Halted int
	NotOwned       []NotOwned
	// Parked counts the parked events of all projections.
	Parked int64
	// OldestParked is the time at which the oldest of them failed for the first time. OldestParkedIn is the projection
	// that parked it. They are zero if no event is parked.
	OldestParked   time.Time
	OldestParkedIn projection.ID
}

// NotOwned counts the projections of a name that should run and that no living node owns. Overdue are those that have
// had no living owner for too long.
type NotOwned struct {
	Name string
	// Tenant is the only tenant whose projections are counted, empty for all.
	Tenant         string
	Count, Overdue int
}

// Snapshot is a transaction that keeps dead rows from being cleaned up.
type Snapshot struct {
	// PID is its backend, 0 if there is none.
	PID int
	// Age is how long the transaction has been open.
	Age time.Duration
}

// SchemaVersions are the versions of the tables of a store.
type SchemaVersions struct {
	// Found is the version of the store's own tables, 0 if there are none. Newest is the newest version that this
	// program knows.
	Found, Newest int
	// Outdated are tenants that Migrate would change, or whose tables are gone, at most 1,000.
	Outdated []string
}
