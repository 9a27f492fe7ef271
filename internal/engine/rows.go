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

// ProjectionRow is a projection as the database has it.
type ProjectionRow struct {
	ID projection.ID
	// Partitions is how many partitions the projection has.
	Partitions int
	// Desired says whether the projection should run. It is WantPause while the projection is suspended. Tenant is the state of
	// its tenant.
	Desired DesiredState
	Tenant  projection.TenantState
	// Failed is why the projection waits for an operator. It is empty if the projection does not.
	Failed string
	// Halted reports that the projection waits until it is resumed.
	Halted          bool
	FailingPosition int64
	Attempts        int
	// MissingObject reports whether the event at FailingPosition waits for an object or a privilege that its handler needs.
	MissingObject bool
	LastError     string
	Owner         string
	OwnerAlive    bool
	// NotOwned is how long no living node has held the lease. It is 0 if one does.
	NotOwned   time.Duration
	Epoch      int64
	Checkpoint int64
	// Parked counts the parked events, Skipped the skipped ones.
	Parked, Skipped int64
	// OldestParked is when the oldest of the parked events first failed. It is zero if none is parked.
	OldestParked time.Time
}

// NodeRow is a node as the database has it. A node that was stopped in order has no row.
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
}

// Snapshot is a transaction that keeps dead rows from being cleaned up.
type Snapshot struct {
	// PID is its backend, 0 if there is none.
	PID int
	// Age is how long the transaction has been open.
	Age time.Duration
}
