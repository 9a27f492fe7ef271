package admin

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
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
	// StateMissingObject means that its handler needs a table, column, function, schema or privilege that is missing in
	// the database. The reason says which. The projection goes on by itself when the object exists. See
	// millrace.Projection.MissingObjectTimeout.
	StateMissingObject State = "missing object"
	// StatePaused means that it is paused: no node runs it until it is resumed. If its tenant is paused, archived or
	// being dropped, the reason says so.
	StatePaused State = "paused"
	// StateFailed means that it stopped until a person repairs the cause that the reason names. If the cause is an
	// event, the projection must also be resumed.
	StateFailed State = "failed"
	// StateElsewhere counts the projections of a node whose version of the library reports no states. Status never has
	// it.
	StateElsewhere State = "elsewhere"
	// StateNotOwned means that no living node holds the lease. The reason says so if no living node registers the
	// projection.
	StateNotOwned State = "not owned"
	// StateUnregistered means that nodes are alive, but that no node registers the projection for its tenant: it was
	// probably renamed or removed from the code. A node that died without a graceful end still counts for an hour, so
	// that the projections of a crashed node are StateNotOwned.
	StateUnregistered State = "unregistered"
)

// StatusFilter selects the projections of a Status. A projection must match all of the fields that are set. The zero
// value selects the first 100 projections.
type StatusFilter struct {
	// Tenants and Names select projections by tenant and by name.
	Tenants, Names []string
	// States select projections by their states. A filter by states reads the rows of all projections that the other
	// fields select. For StateStarting, StateCatchUp and StateLive it also reads the ends of the events of all their
	// tenants.
	States []State
	// Owner selects the projections whose lease a node holds, dead or alive.
	Owner string
	// Parked selects projections with parked events.
	Parked bool
	// Sort is the order of the projections. Default SortByID.
	Sort Sort
	// Next is the Next of the Status with the previous page, which had the same Sort. It is empty for the first page.
	Next string
	// After is the ID of the last projection of the previous page, in place of Next. It is for SortByID alone.
	After projection.ID
	// Limit is the maximum number of projections in the page, at most 10,000. Default 100.
	Limit int
}

// Sort is an order of projections.
type Sort string

const (
	// SortByID sorts by tenant, name and partition.
	SortByID Sort = ""
	// SortByBehind sorts by ProjectionStatus.Behind, the largest first.
	SortByBehind Sort = "behind"
	// SortByLag sorts by ProjectionStatus.Lag, the longest first.
	SortByLag Sort = "lag"
)

// Status has a page of projections and their tenants: from the database, from this runtime while it runs, and from what
// the other nodes write with their heartbeats. In the JSON of all types of a Status and a Summary, names are in lower
// camel case. Durations are texts such as "1m30s", times are RFC 3339 in UTC, and empty optional fields are left out.
type Status struct {
	// Node is the id of this runtime's node. Only a running runtime knows it.
	Node string `json:"node,omitempty"`
	// At is when the status was read, by the clock of this process. For the rate of any projection, read the status
	// twice, and divide the difference of Position by the difference of At.
	At time.Time `json:"at"`
	// Tenants are the tenants of the projections and of the filter, sorted by name.
	Tenants []TenantStatus `json:"tenants"`
	// Projections has an entry for each partition, in the order of StatusFilter.Sort, and then by tenant, name and
	// partition.
	Projections []ProjectionStatus `json:"projections"`
	// Next is the StatusFilter.Next of the next page. It is empty on the last page. With a filter by states, a sorted
	// page may have fewer projections than the limit although it is not the last.
	Next string `json:"next,omitempty"`
}

// Projection returns the status of a projection, or the zero value if there is none. An empty tenant means
// projection.DefaultTenant. If id names no partition, the status is that of all partitions together: sums of events,
// the lowest position and its rate, the longest lag, the earliest next attempt, the latest error, and the worst state
// with its reason. Owner, OwnerName and Epoch are then empty, unless one node owns all partitions.
func (s Status) Projection(id projection.ID) ProjectionStatus {
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

// TenantStatus is the end of a tenant's events.
type TenantStatus struct {
	Tenant string `json:"tenant"`
	// State is the state of the tenant. Only the projections of an active tenant run.
	State tenancy.State `json:"state,omitempty"`
	// Head is the highest visible position, or Mark if it cannot be read.
	Head int64 `json:"head"`
	// Mark is the settled mark: no event at or below it can still appear. It comes from this node if the node runs
	// projections of the tenant. Otherwise Status settles the events itself. If appends are in progress, it waits for
	// them for a quarter of a second. If they last longer, Mark is the highest position that is known to be settled.
	Mark int64 `json:"mark"`
	// Held describes what holds the mark back, nil if nothing does.
	Held *HeldMark `json:"held,omitempty"`
	// Reason is why the tenant's events cannot be read, for instance which session locks them.
	Reason string `json:"reason,omitempty"`
}

// HeldMark describes the transactions that keep a settled mark from moving.
type HeldMark struct {
	// Below is the position that the mark has yet to reach.
	Below int64 `json:"below"`
	// Since is when the wait began. It is zero if no node reports it.
	Since time.Time `json:"since,omitzero"`
	// Holders names the transactions that the mark waits for: "backend" and its pid, or "prepared transaction" and its
	// virtual transaction id. pg_locks has that id, and pg_prepared_xacts has the transaction.
	Holders []string `json:"holders,omitempty"`
}

// ProjectionStatus is the state and the progress of a projection.
type ProjectionStatus struct {
	ID projection.ID `json:"id"`
	// State is exact on the node that runs the projection. On other processes it is the state in the projection's row.
	// If the row says only that the projection runs, it is the state that its node reported with its last heartbeat. If
	// it reported nothing about the projection, the state is StateLive or StateCatchUp by the distance from Checkpoint
	// to Mark.
	State State `json:"state"`
	// Reason is why the projection waits, failed or does not run, or the error of the failing event. After deadlocks it
	// names the projections that the projection is kept apart from.
	Reason string `json:"reason,omitempty"`
	// Owner is the id of the node that holds the lease, or held it when it died. OwnerName is its
	// millrace.Config.NodeName, empty if the node died over an hour ago. Epoch is the epoch of the lease.
	Owner     string `json:"owner,omitempty"`
	OwnerName string `json:"ownerName,omitempty"`
	Epoch     int64  `json:"epoch"`
	// NotOwned is how long no living node has held the lease. It is 0 if one does.
	NotOwned time.Duration `json:"notOwned,omitzero"`
	// Checkpoint is the checkpoint in the database. Position is where the projection is. It may be ahead of the
	// checkpoint by events that the projection does not select. If another node runs the projection and it is not among
	// the furthest behind of that node, Position is the checkpoint. It moves past such events with a delay of up to 5
	// s.
	Checkpoint int64 `json:"checkpoint"`
	Position   int64 `json:"position"`
	// Mark and Head are the settled mark and the highest visible position of the tenant: see TenantStatus.
	Mark int64 `json:"mark"`
	Head int64 `json:"head"`
	// Behind is Head minus Position, which is about the number of events after Position. Lag is the age of the oldest
	// of them, 0 if there is none or if it cannot be read. Summary does not read it. In a page that is sorted by one of
	// them, both count from Checkpoint, so that all processes agree on the order.
	Behind int64         `json:"behind"`
	Lag    time.Duration `json:"lag,omitzero"`
	// Rate is how fast Position rises, in positions per second: a moving average over about 10 s, kept by the node that
	// runs the projection. It is 0 if that is another node and the projection is not among the furthest behind of that
	// node.
	Rate float64 `json:"rate,omitzero"`
	// Applied counts the events that this node's handler applied. Only the runtime that runs the projection knows it.
	Applied int64 `json:"applied,omitzero"`
	// Parked counts the parked events, with those that are parked because an earlier event of their stream is.
	// OldestParked is the time at which the oldest of them failed for the first time.
	Parked       int64     `json:"parked"`
	OldestParked time.Time `json:"oldestParked,omitzero"`
	// Skipped counts the events that were skipped since the projection was created or began again at the first event.
	Skipped int64 `json:"skipped"`
	// FailingPosition is the position of the event that is failing, and Attempts is how often it failed. They are 0 if
	// no event is failing.
	FailingPosition int64 `json:"failingPosition,omitzero"`
	Attempts        int   `json:"attempts,omitzero"`
	// NextAttempt is when the failing event, or the service that an open circuit breaker waits for, is due to be tried
	// again. It is zero if that is not known. If it has passed, the attempt is in progress or its node died: a new
	// owner tries at once.
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// LastError is the last error that was recorded for an event, and LastErrorAt is when. They stay after the event
	// was handled.
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
	// Breaker is the state of its circuit breaker. It is empty if there is none. Only the runtime that runs the
	// projection knows it. Elsewhere State and Reason show an open breaker.
	Breaker projection.BreakerState `json:"breaker,omitempty"`
	// Rebuild is the progress of a projection that was set back. It is nil after the projection has caught up.
	Rebuild *RebuildStatus `json:"rebuild,omitempty"`
	// Operation is the open operation of the projection, or the operation for which it stands still. It is nil if there
	// is none.
	Operation *OperationStatus `json:"operation,omitempty"`
}
