package engine

import (
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Tenant is a tenant as the database has it.
type Tenant struct {
	// Row is the key of the tenant in the store. A tenant that is created again under its name has another.
	Row   int32
	Name  string
	State projection.TenantState
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

// ProjectionRow is a projection as the database has it.
type ProjectionRow struct {
	ID projection.ID
	// Partitions is how many partitions the projection has.
	Partitions int
	// State is the state by the row alone, as a millrace.State. It is the first of these that applies: paused, failed because it
	// is halted, not owned, failed for its owner, missing object or waiting at a failing event, elsewhere.
	State string
	// Desired is the desired state of the projection. It is WantPause while the projection is suspended. Tenant is the state of
	// its tenant.
	Desired DesiredState
	Tenant  projection.TenantState
	// Failed is why the projection waits for an operator. It is empty if the projection does not.
	Failed string
	// Halted reports that the projection waits until it is resumed.
	Halted          bool
	FailingPosition int64
	Attempts        int
	LastError       string
	Owner           string
	OwnerAlive      bool
	// NotOwned is how long no living node has held the lease. It is 0 if one does.
	NotOwned   time.Duration
	Epoch      int64
	Checkpoint int64
	// Parked counts the parked events, Skipped the skipped ones.
	Parked, Skipped int64
	// OldestParked is when the oldest of the parked events first failed. It is zero if none is parked.
	OldestParked time.Time
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
	Tenants map[projection.TenantState]int
	// Paused, Halted and NotOwned count the projections that no living node owns. NotOwned are those that should run.
	Paused, Halted, NotOwned int
	// Overdue counts those of NotOwned that have had no living owner for too long.
	Overdue int
	// Parked counts the parked events of all projections.
	Parked int64
	// OldestParked is when the oldest of them first failed, and OldestParkedIn its projection. They are zero without parked
	// events.
	OldestParked   time.Time
	OldestParkedIn projection.ID
}

// Snapshot is a transaction that keeps dead rows from being cleaned up.
type Snapshot struct {
	// PID is its backend, 0 if there is none.
	PID int
	// Age is how long the transaction has been open.
	Age time.Duration
}
