package actors

import (
	"context"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
)

// changesGap is the least time between two rounds of changes. It grows up to searchSoon if searches take longer, so
// that many notifications cost few searches.
const changesGap = 10 * time.Millisecond

// changes are the tenants named by notifications: their states, or the sets of their projections, changed.
type changes struct {
	// named are the tenants since the last round. timer begins the next round, and is nil if none is due.
	named map[string]bool
	timer *time.Timer
	last  time.Time
	gap   time.Duration
	// claiming are tenants that were named while a search was in progress, which may claim leases that should not run.
	claiming map[string]bool
	// fill are the tenants whose missing rows the next search inserts. From listAll on, a search considers all
	// tenants.
	fill    map[string]bool
	listAll time.Time
}

func newChanges() changes {
	return changes{named: make(map[string]bool), claiming: make(map[string]bool), fill: make(map[string]bool)}
}

// tenantChanged begins a round at once, unless the last one has just begun.
func (n *node) tenantChanged(ctx actor.Context, tenant string) {
	c := &n.changes
	c.named[tenant] = true
	if c.timer == nil {
		c.timer = n.deps.After(ctx, max(0, max(changesGap, c.gap)-time.Since(c.last)), n.tenantsChanged)
	}
}

// tenantsChanged claims leases of the named tenants, and drains projections that should not run any more.
func (n *node) tenantsChanged(ctx actor.Context) {
	c := &n.changes
	named := c.named
	c.named, c.timer, c.last = make(map[string]bool), nil, time.Now()
	for tenant := range named {
		if only := n.deps.Node.Tenants; len(only) == 0 || slices.Contains(only, tenant) {
			c.fill[tenant] = true
		}
		if n.search.busy {
			c.claiming[tenant] = true
		}
	}
	n.reconcile(ctx)
	n.checkLeases(ctx, named)
}

// searchedTenants is called after a search.
func (n *node) searchedTenants(ctx actor.Context) {
	c := &n.changes
	c.gap = min(searchSoon, time.Since(n.search.last))
	if len(c.claiming) > 0 {
		claiming := c.claiming
		c.claiming = make(map[string]bool)
		n.checkLeases(ctx, claiming)
	}
}

// checkLeases reads the leases that the node holds of these tenants. It retires lost leases, and drains projections
// that should not run. It waits for no slot.
func (n *node) checkLeases(ctx actor.Context, tenants map[string]bool) {
	keys := n.table.KeysOf(tenants)
	if len(keys) == 0 {
		return
	}
	rows := make([]int32, len(keys))
	for i, key := range keys {
		rows[i] = key.Row
	}
	var leases []engine.Lease
	n.deps.Run(ctx, n.deps.Timing.QueryTimeout, func(ctx context.Context) (err error) {
		leases, err = n.deps.Ownership.Leases(ctx, rows)
		return err
	}, func(ctx actor.Context, err error) {
		if err != nil {
			n.log.Warn("reading the leases of changed tenants failed, retrying", zap.Error(err))
			n.search.resync = 0 // the next search reads all owned leases
			n.reconcileSoon(ctx)
			return
		}
		n.leasesChecked(ctx, keys, leases)
	})
}

// leasesChecked compares the leases that were read with the table. It ignores leases that changed in the table
// meanwhile.
func (n *node) leasesChecked(ctx actor.Context, keys []engine.LeaseKey, leases []engine.Lease) {
	n.leasesSeen(ctx, leases)
	read := make(map[engine.LeaseKey]engine.Lease, len(leases))
	for _, l := range leases {
		read[l.Key()] = l
	}
	lost := false
	for _, l := range leases {
		if !n.deps.Node.Member().Knows(l.ID.Tenant, l.ID.Name) {
			n.rowGone(ctx, l.ID.Tenant) // it was renamed
		}
	}
	for _, key := range keys {
		now, phase := n.table.Lease(key.Row)
		lease, exists := read[key]
		switch {
		case now != key || phase == "" || phase == ownership.Releasing:
		case !exists || lease.Owner != n.deps.Node.ID:
			lost = true
			n.retire(ctx, key)
		case !lease.Desired.Runs():
			n.carryOut(ctx, n.table.Drain(key.Row))
		}
	}
	if lost {
		n.reconcile(ctx) // the last search counted them, and took a smaller share of the free leases
	}
}
