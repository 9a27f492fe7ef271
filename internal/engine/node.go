package engine

import (
	"slices"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Node is one running process as it registers itself.
type Node struct {
	// ID is a random UUID, new for every start.
	ID string
	// Projections are the names that this node can run, Tenants those that it runs them for; none means all.
	Projections []string
	Tenants     []string
	// LeaseDuration is how long the node's leases hold after its last heartbeat.
	LeaseDuration time.Duration
}

// Neighbours are the other nodes that are alive by their heartbeats.
type Fleet struct {
	// Peers tells of each whether it holds its session lock.
	Peers []Peer
	// Members are those that take a share: all but the ones that are leaving.
	Members []Member
}

// Peer is another living node at a look.
type Peer struct {
	// ID is the node's.
	ID string
	// Locked tells whether its session lock is held.
	Locked bool
	// Beat is its last heartbeat, by the server's clock.
	Beat time.Time
}

// Member is a living node as the others see it: what it can run.
type Member struct {
	// ID is the node's; of two members with the same one the first counts.
	ID string
	// Projections are the names that it has registered.
	Projections []string
	// Tenants are those that it serves; none means all.
	Tenants []string
}

// Knows tells whether the member can run a projection of a tenant. An empty tenant means DefaultTenant.
func (m Member) Knows(tenant, name string) bool {
	if !slices.Contains(m.Projections, name) {
		return false
	}
	tenant = FullID(projection.ID{Tenant: tenant}).Tenant
	return len(m.Tenants) == 0 ||
		slices.ContainsFunc(m.Tenants, func(t string) bool { return FullID(projection.ID{Tenant: t}).Tenant == tenant })
}

// Count says how many leases of a projection are wanted. Counts of the same tenant and name add up.
type Want struct {
	// Tenant is the one whose leases are counted, or empty for those of all tenants that no member names in its Tenants.
	Tenant string
	// Name is the projection's.
	Name string
	// Leases is how many there are, owned or free.
	Leases int
}

// LeaseRef is one wanted lease as the balance sees it.
type LeaseRef struct {
	// Row is the key of the lease in the store.
	Row int32
	// ID is the projection that is leased.
	ID projection.ID
}
