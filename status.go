package millrace

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// State is what a projection is doing.
type State string

const (
	// StateStarting means that its node reads the projection's checkpoint.
	StateStarting State = "starting"
	// StateCatchUp means that it is more than one batch behind.
	StateCatchUp State = "catching up"
	// StateLive means that it is at the end of the events, or about to be.
	StateLive State = "live"
	// StateWaiting means that something failed and will be tried again. The reason says what failed.
	StateWaiting State = "waiting"
	// StateMissingObject means that its handler needs a table, column, function, schema or privilege that is missing in the
	// database. The reason says which. The projection goes on by itself when the object exists. See
	// Projection.MissingObjectTimeout.
	StateMissingObject State = "missing object"
	// StatePaused means that it is paused: no node runs it until it is resumed. If its tenant is paused, archived or being
	// dropped, the reason says so.
	StatePaused State = "paused"
	// StateFailed means that it stopped until a person repairs the cause that the reason names. If the cause is an event, the
	// projection must also be resumed.
	StateFailed State = "failed"
	// StateElsewhere means that another node runs the projection, and that no event is failing.
	StateElsewhere State = "elsewhere"
	// StateNotOwned means that no living node holds the lease. The reason says so if no living node knows the projection.
	StateNotOwned State = "not owned"
)

// Summary is the state of a whole deployment: of all tenants, and of the projections on all nodes. It comes from a few statements on
// the control schema and from what the nodes write with their heartbeats. So it costs the same for one tenant and for ten
// thousand, and figures of other nodes are up to a heartbeat old. A projection that moves meanwhile may be counted twice, or not
// at all.
type Summary struct {
	// Node is the id of this runtime while it runs. It is empty otherwise.
	Node string
	// Session is this node's session connection.
	Session SessionStatus
	// Nodes are the processes that run projections, this one included, the oldest first. A process that ended
	// gracefully is left out. A process that died is listed for an hour.
	Nodes []NodeStatus
	// Tenants counts the tenants in each state.
	Tenants map[projection.TenantState]int
	// States counts the projections in each state, each partition separately, as reported by the nodes that run them.
	// StateElsewhere counts those of living nodes whose version of the library reports no states.
	States map[State]int
	// NotOwned counts the projections that should run but have had no living owner for longer than LeaseDuration, each partition
	// separately.
	NotOwned int
	// Lagging are the projections that are furthest behind the settled marks of their tenants, at most 10, the worst first. Their
	// state, position and reason are those of the node that runs them, and Head is the settled mark.
	Lagging []ProjectionStatus
	// Held are the tenants whose settled mark is held back or whose events cannot be read, at most 10, the longest first. Head is
	// the highest position known to the node that reads the tenant's events.
	Held []TenantStatus
	// Parked counts the parked events of all projections. OldestParked is when the oldest of them failed first, and OldestParkedIn
	// is its projection.
	Parked         int64
	OldestParked   time.Time
	OldestParkedIn ProjectionID
	// OldestSnapshot is the age of the oldest transaction that holds back the clean-up of dead rows. While it is open,
	// checkpoints advance ever more slowly. OldestSnapshotPID is the process ID of its backend. Both are 0 if there is none.
	OldestSnapshot    time.Duration
	OldestSnapshotPID int
	// Abandoned counts the handlers of this process that did not return when they were cancelled.
	Abandoned int64
	// Stuck counts the actors of this node that made no progress and were restarted.
	Stuck int
}

// StatusFilter selects the projections of a Status. A projection must match all of the fields that are set. The zero value selects
// the first 100 projections.
type StatusFilter struct {
	// Tenants and Names select projections by tenant and by name.
	Tenants, Names []string
	// States select projections by their states. StateStarting, StateCatchUp and StateLive select only projections of this node:
	// those of other nodes are StateElsewhere. A filter by states reads the rows of all projections that the other fields select.
	States []State
	// Owner selects the projections whose lease a node holds, dead or alive.
	Owner string
	// Parked selects projections with parked events.
	Parked bool
	// After is the ID of the last projection of the previous page. Projections are sorted by tenant, name and partition.
	After ProjectionID
	// Limit is the maximum number of projections in the page, at most 10,000. Default 100. A page with fewer projections is
	// the last.
	Limit int
}

// Status has a page of projections and their tenants, from the database and from this node.
type Status struct {
	// Node is the id of this runtime while it runs. It is empty otherwise.
	Node string
	// Tenants are the tenants of the projections and of the filter, sorted by name.
	Tenants []TenantStatus
	// Projections has an entry for each partition. They are sorted by tenant, name and partition.
	Projections []ProjectionStatus
}

// Projection returns the status of a projection, or the zero value if there is none. An empty tenant means
// projection.DefaultTenant. If id names no partition, the status is that of all partitions together: sums of events, the lowest
// position, and the worst state with its reason. Owner and Epoch are then empty, unless one node owns all partitions.
func (s Status) Projection(id ProjectionID) ProjectionStatus {
	id = engine.FullID(id)
	var parts []ProjectionStatus
	for _, p := range s.Projections {
		if p.ID == id {
			return p
		}
		if id.Partition == 0 && p.ID.Tenant == id.Tenant && p.ID.Name == id.Name {
			parts = append(parts, p)
		}
	}
	return together(id, parts)
}

// SessionStatus is the state of a node's session connection, which carries wake-ups and heartbeats.
type SessionStatus struct {
	Connected bool
	// Since is when the connection was made or lost.
	Since time.Time
	// HeartbeatSent is when the last heartbeat that succeeded was sent.
	HeartbeatSent time.Time
	// Pooled reports that the session connection goes through a pooler in transaction mode, so that no notifications arrive.
	// Events and free leases are found by polling, and deaths are noticed by heartbeats alone. See pgstore.Options.SessionDSN.
	Pooled bool
	// StorePooled reports that the connections of the store's pool go through a pooler in transaction mode. It is false while the
	// runtime is not running.
	StorePooled bool
	// Reason is why the session is not connected, why no leases can be claimed, or what does not work behind a pooler.
	Reason string
}

// NodeStatus is one process that runs projections.
type NodeStatus struct {
	ID string
	// Alive reports that its heartbeat has not expired. Draining reports that it is releasing its leases.
	Alive, Draining bool
	// Leases is how many leases it holds.
	Leases int
	// Registered are the names of the projections that it can run. Tenants are the tenants for which it runs them; none means all.
	// Filters has the entries of Projection.Tenants, by projection, for projections that the node runs only for some of its
	// tenants.
	Registered, Tenants []string
	Filters             map[string][]string
	StartedAt           time.Time
	// Silent is how long ago its last heartbeat was.
	Silent time.Duration
	// States counts the projections that the node runs, by state. It is nil if the node is dead, or if its version of the
	// library does not report it.
	States map[State]int
}

// TenantStatus is the end of a tenant's events.
type TenantStatus struct {
	Tenant string
	// State is the state of the tenant. Only the projections of an active tenant run.
	State projection.TenantState
	// Head is the highest visible position, or Mark if it cannot be read.
	Head int64
	// Mark is the settled mark as this node knows it: no event at or below it can still appear. It is 0 if the node runs none of
	// the tenant's projections.
	Mark int64
	// Held describes what holds the mark back, nil if nothing does.
	Held *HeldMark
	// Reason is why the tenant's events cannot be read, for instance which session locks them.
	Reason string
}

// HeldMark describes the transactions that keep a settled mark from moving.
type HeldMark struct {
	// Below is the position that the mark has yet to reach.
	Below int64
	// Since is when the wait began.
	Since time.Time
	// Holders names the transactions that the mark waits for: "backend" and its pid, or "prepared transaction" and its virtual
	// transaction id. pg_locks has that id, and pg_prepared_xacts has the transaction.
	Holders []string
}

// ProjectionStatus is the state and the progress of a projection.
type ProjectionStatus struct {
	ID    ProjectionID
	State State
	// Owner and Epoch are those of the lease.
	Owner string
	Epoch int64
	// NotOwned is how long no living node has held the lease. It is 0 if one does.
	NotOwned time.Duration
	// Checkpoint is the checkpoint in the database. Position is where the projection is. It may be ahead of the checkpoint by
	// events that the projection does not select.
	Checkpoint, Position int64
	// Head is the tenant's highest visible position. Behind is Head minus Position.
	Head, Behind int64
	// Applied counts the events that this node's handler applied.
	Applied int64
	// Parked counts the parked events. OldestParked is when the oldest of them failed first.
	Parked       int64
	OldestParked time.Time
	// Skipped counts the events that were skipped since the projection was created.
	Skipped int64
	// FailingPosition is the position of the event that is failing, and Attempts is how often it failed. They are 0 if no event
	// is failing.
	FailingPosition int64
	Attempts        int
	// Reason is why the projection waits or failed, or the error of the failing event.
	Reason string
	// Breaker is the state of its circuit breaker. It is empty if there is none, or if another node runs the projection. In that
	// case State and Reason show an open breaker.
	Breaker projection.BreakerState
}
