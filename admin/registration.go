package admin

import (
	"maps"
	"slices"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// registration says which nodes can run a projection.
type registration struct {
	// anyAlive reports whether any node is alive, and alive whether a living node can run the projection.
	anyAlive, alive bool
	// dead is the last node that died and could run it. Its ID is empty if there is none.
	dead engine.NodeRow
}

// registrationOf returns which of the nodes can run a projection.
func registrationOf(nodes []engine.NodeRow, id projection.ID) (r registration) {
	for _, n := range nodes {
		r.anyAlive = r.anyAlive || n.Alive
		if !n.Knows(id.Tenant, id.Name) {
			continue
		}
		r.alive = r.alive || n.Alive
		if !n.Alive && !n.HeartbeatAt.Before(r.dead.HeartbeatAt) {
			r.dead = n
		}
	}
	return r
}

// unregistered reports whether the projection is probably no longer in the code.
func (r registration) unregistered() bool { return r.anyAlive && !r.alive && r.dead.ID == "" }

// registeredForSome returns the names that nodes register, but none for all tenants.
func registeredForSome(nodes []engine.NodeRow) []string {
	some := make(map[string]bool)
	for _, n := range nodes {
		for _, name := range n.Projections {
			if _, seen := some[name]; !seen {
				some[name] = true
			}
			if len(n.Tenants) == 0 && n.Filters[name].All() {
				some[name] = false
			}
		}
	}
	maps.DeleteFunc(some, func(_ string, restricted bool) bool { return !restricted })
	return slices.Sorted(maps.Keys(some))
}
