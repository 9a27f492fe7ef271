package admin

import (
	"time"

	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Summary is the state of a whole deployment: of all tenants, and of the projections on all nodes. It comes from a few
// statements on the control schema and from what the nodes write with their heartbeats. So it costs the same for one
// tenant and for ten thousand, and figures of other nodes are up to a heartbeat old. A projection that moves meanwhile
// may be counted twice, or not at all.
type Summary struct {
	// Node is the id of this runtime's node, whose NodeStatus is in Nodes. Only a running runtime knows it.
	Node string `json:"node,omitempty"`
	// At is when the summary was read, by the clock of this process.
	At time.Time `json:"at"`
	// Session is this node's session connection. Only a running runtime knows it.
	Session SessionStatus `json:"session,omitzero"`
	// Nodes are the processes that run projections, this one included, the oldest first. A process that ended
	// gracefully is left out. A process that died is listed for an hour.
	Nodes []NodeStatus `json:"nodes"`
	// Tenants counts the tenants in each state.
	Tenants map[tenancy.State]int `json:"tenants"`
	// States counts the projections in each state, each partition separately, as reported by the nodes that run them.
	// StateElsewhere counts those of living nodes whose version of the library reports no states.
	States map[State]int `json:"states"`
	// NotOwned counts the projections that should run but have had no living owner for longer than LeaseDuration, each
	// partition separately. Those that are StateUnregistered are not counted here: they need a decision, but no process
	// is missing.
	NotOwned int `json:"notOwned"`
	// Unregistered counts the projections that are StateUnregistered, each partition separately. They should run, but
	// no node registers them: pause or remove them, or deploy their code.
	Unregistered int `json:"unregistered"`
	// Lagging are the projections that are furthest behind the settled marks of their tenants, at most 10, the worst
	// first. Their state, position and reason are those of the node that runs them, and Head is the settled mark.
	Lagging []ProjectionStatus `json:"lagging"`
	// LaggingTenants are the tenants with the projections that are furthest behind, at most 10, the worst first.
	LaggingTenants []TenantLag `json:"laggingTenants"`
	// Held are the tenants whose settled mark is held back or whose events cannot be read, at most 10, the longest
	// first. Head is the highest position known to the node that reads the tenant's events.
	Held []TenantStatus `json:"held"`
	// Standing are the projections that have not moved for 30 s although events wait, because their reads fail or hang,
	// or because of another fault that is counted against no event, and later versions with which a tenant cannot
	// begin, because their hooks fail. It has those of them that have stood still for the longest time, at most 10 of
	// each node. StandingCount counts all.
	Standing      []Standstill `json:"standing"`
	StandingCount int          `json:"standingCount"`
	// Hour has the figures of each minute of the last hour, the oldest first, from the first minute on in which a node
	// handled an event or a projection was behind. Worst are projections that had the longest lags in that time, at
	// most 3 of each node, the worst first. They come from the nodes' memory, by the nodes' clocks: those of a node
	// that was stopped are missing, and those of a node that died stay for an hour.
	Hour  []Minute         `json:"hour"`
	Worst []ProjectionHour `json:"worst"`
	// Parked counts the parked events of all projections. OldestParked is the time at which the oldest of them failed
	// for the first time. OldestParkedIn is the projection that parked it.
	Parked         int64         `json:"parked"`
	OldestParked   time.Time     `json:"oldestParked,omitzero"`
	OldestParkedIn projection.ID `json:"oldestParkedIn,omitzero"`
	// OldestSnapshot is the age of the oldest transaction that holds back the clean-up of dead rows. While it is open,
	// checkpoints advance more and more slowly. OldestSnapshotPID is the process ID of its backend. Both are 0 if there
	// is none.
	OldestSnapshot    time.Duration `json:"oldestSnapshot,omitzero"`
	OldestSnapshotPID int           `json:"oldestSnapshotPid,omitzero"`
	// Abandoned counts the handlers of this process that did not return when they were cancelled.
	Abandoned int64 `json:"abandoned"`
	// Stuck counts the actors of this node that made no progress and were restarted. Only a running runtime knows it.
	Stuck int `json:"stuck"`
}

// Minute has figures of one minute.
type Minute struct {
	// At is when it began.
	At time.Time `json:"at"`
	// Applied counts the events that were handled in it.
	Applied int64 `json:"applied"`
	// Behind is how many positions the projections were behind the settled marks at its end, in total. Lag is how long
	// the event had waited then that waited the longest.
	Behind int64         `json:"behind"`
	Lag    time.Duration `json:"lag"`
}

// ProjectionHour has the figures of a projection in each minute of the last hour.
type ProjectionHour struct {
	ID      projection.ID `json:"id"`
	Minutes []Minute      `json:"minutes"`
}

// Standstill describes a projection that does not move although events wait.
type Standstill struct {
	ID projection.ID `json:"id"`
	// Since is when it moved last, or when the events began to wait, by the clock of its node.
	Since time.Time `json:"since"`
	// Reason is its last error.
	Reason string `json:"reason"`
}

// TenantLag is how far the projections of a tenant are behind, as their nodes report it.
type TenantLag struct {
	Tenant string `json:"tenant"`
	// Behind is how many positions Worst is behind the settled mark. No other projection of the tenant is further
	// behind.
	Behind int64         `json:"behind"`
	Worst  projection.ID `json:"worst"`
	// Lagging counts the tenant's projections that are behind, each partition separately. Each node reports the 10
	// tenants that are the furthest behind there, so the projections on other nodes may be missing from the count.
	Lagging int `json:"lagging"`
}

// SessionStatus is the state of a node's session connection, which carries wake-ups and heartbeats.
type SessionStatus struct {
	Connected bool `json:"connected"`
	// Since is when the connection was made or lost.
	Since time.Time `json:"since,omitzero"`
	// HeartbeatSent is when the last heartbeat that succeeded was sent.
	HeartbeatSent time.Time `json:"heartbeatSent,omitzero"`
	// Pooled reports that the session connection goes through a pooler in transaction mode, so that no notifications
	// arrive. Events and free leases are found by polling, and deaths are noticed by heartbeats alone. See
	// pgstore.Options.SessionDSN.
	Pooled bool `json:"pooled,omitzero"`
	// StorePooled reports that the connections of the store's pool go through a pooler in transaction mode.
	StorePooled bool `json:"storePooled,omitzero"`
	// Reason is why the session is not connected, why no leases can be claimed, or what does not work behind a pooler.
	Reason string `json:"reason,omitempty"`
}

// NodeStatus is one process that runs projections.
type NodeStatus struct {
	ID string `json:"id"`
	// Name is its millrace.Config.NodeName.
	Name string `json:"name,omitempty"`
	// Alive reports that its heartbeat has not expired. Draining reports that it is releasing its leases.
	Alive    bool `json:"alive"`
	Draining bool `json:"draining,omitzero"`
	// Leases is how many leases it holds.
	Leases int `json:"leases"`
	// Registered are the names of the projections that it can run. Tenants are the tenants for which it runs them; none
	// means all. Filters has the entries of millrace.Projection.Tenants, by projection, for projections that the node
	// runs only for some of its tenants.
	Registered []string            `json:"registered,omitempty"`
	Tenants    []string            `json:"tenants,omitempty"`
	Filters    map[string][]string `json:"filters,omitempty"`
	StartedAt  time.Time           `json:"startedAt"`
	// Silent is how long ago its last heartbeat was.
	Silent time.Duration `json:"silent"`
	// States counts the projections that the node runs, by state. It is nil if the node is dead, or if its version of
	// the library does not report it.
	States map[State]int `json:"states,omitzero"`
}
