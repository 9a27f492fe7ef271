package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
)

// Node is one running process as it registers itself.
type Node struct {
	// ID is a random UUID, new for every start.
	ID string
	// Name is the node's name for people. Several nodes may have the same.
	Name string
	// Projections are the names of the projections that the node can run. Tenants are those that it runs them for; none
	// means all. Filters has the projections that it runs for some of these tenants only.
	Projections []string
	Tenants     []string
	Filters     map[string]TenantFilter
	// Delivers are the names of the projections whose handlers work outside of a transaction.
	Delivers []string
	// LeaseDuration is how long the node's leases last after its last heartbeat.
	LeaseDuration time.Duration
}

// NewProjection is a projection of a tenant that may have no rows yet, and how many partitions it gets then.
type NewProjection struct {
	Tenant, Name string
	Partitions   int
	// RenamedFrom is the name that the projection had in earlier releases, without a version. It is empty if there was
	// none.
	RenamedFrom string
	// Start is where the projection begins. All its partitions begin there.
	Start projection.Start
	// Swap is the hook that lets readers use a version from 2 on. It runs within Timeout in the transaction that
	// inserts the rows if the tenant has no earlier version.
	Swap    handler.Hook
	Timeout time.Duration
}

// ID returns the projection's ID.
func (p NewProjection) ID() projection.ID { return projection.ID{Tenant: p.Tenant, Name: p.Name} }

// SwapError is returned by Ensure if hooks failed for some tenants. The other rows were inserted.
type SwapError struct {
	// Tenants has a failure of each tenant, by its name.
	Tenants map[string]SwapFailure
}

// SwapFailure is why a tenant cannot begin with a version.
type SwapFailure struct {
	ID  projection.ID
	Err error
}

func (e *SwapError) Error() string {
	tenant := slices.Min(slices.Collect(maps.Keys(e.Tenants)))
	return fmt.Sprintf("the swap hooks of %d tenants failed; tenant %q: %v", len(e.Tenants), tenant,
		e.Tenants[tenant].Err)
}

// BeginsLater reports whether the projection does not begin at the first event.
func (p NewProjection) BeginsLater() bool {
	return p.Start.End || p.Start.Position > 1 || !p.Start.Time.IsZero()
}

// Rename returns the rename by which the projection gets its rows.
func (p NewProjection) Rename() Rename {
	to, _ := projection.ID{Name: p.Name}.Version()
	return Rename{Tenant: p.Tenant, From: p.RenamedFrom, To: to}
}

// LeftOut holds the new projections that were not created. The projections in Retired have retired names. Those in
// Waiting get their rows by a rename, because the tenant still has a projection named RenamedFrom.
type LeftOut struct {
	Retired []*Retired
	Waiting []NewProjection
}

// Rename is a change of a projection's name in a tenant, with all its versions.
type Rename struct{ Tenant, From, To string }

// Member returns the node as other nodes see it.
func (n Node) Member() Member {
	return Member{ID: n.ID, Name: n.Name, Projections: n.Projections, Tenants: n.Tenants, Filters: n.Filters}
}

// Fleet has the other nodes whose heartbeats have not expired.
type Fleet struct {
	Peers []Peer
	// Members are the nodes that take a share of the leases: all that do not drain.
	Members []Member
}

// Peer shows whether another node is alive.
type Peer struct {
	ID, Name string
	// Locked reports whether the node's session lock is held.
	Locked bool
	// Beat is its last heartbeat, by the server's clock.
	Beat time.Time
}

// Member is a living node with what it can run.
type Member struct {
	// ID is the node's. Of two members with the same ID the first counts.
	ID string
	// Name, Projections, Tenants and Filters come from its Node.
	Name        string
	Projections []string
	Tenants     []string
	Filters     map[string]TenantFilter
}

// Knows reports whether the member can run a projection of a tenant. An empty tenant means DefaultTenant.
func (m Member) Knows(tenant, name string) bool {
	return slices.Contains(m.Projections, name) && m.serves(tenant) && m.Filters[name].Matches(tenant)
}

func (m Member) serves(tenant string) bool {
	tenant = FullID(projection.ID{Tenant: tenant}).Tenant
	return len(m.Tenants) == 0 ||
		slices.ContainsFunc(m.Tenants, func(t string) bool { return FullID(projection.ID{Tenant: t}).Tenant == tenant })
}

// Want is the number of wanted leases of a projection, owned or free. Several of one tenant and name add up.
type Want struct {
	// Tenant is the tenant whose leases are counted. If it is empty, the count is for all tenants that are not counted
	// separately.
	Tenant string
	// Name is the projection's.
	Name   string
	Leases int
}

// LeaseRef names a wanted lease.
type LeaseRef struct {
	// Row is the key of the lease in the store.
	Row int32
	// ID is the projection that is leased.
	ID projection.ID
}
