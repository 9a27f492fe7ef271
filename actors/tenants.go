package actors

import (
	"context"
	"maps"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
)

// ensureMost is how many rows of projections one transaction makes at most.
const ensureMost = 1000

// tenants are the tenants whose projections have their rows.
type tenants struct {
	ensured     map[string]bool    // shared with rounds in progress, so it is replaced and never changed
	incarnation engine.Incarnation // of the server in which the rows were made; 0 before it is known
	atOnce      int                // how many rows the next transaction makes
}

// ensureRound is one round of making rows. Some of them may have been made even if the round failed.
type ensureRound struct {
	tenants          // as the round began
	made    []string // tenants whose rows were made
	removed []string // tenants that do not exist any more
	more    bool     // there are further tenants
	err     error
}

// ensure makes the rows of the node's projections for new tenants, in several transactions. It stops after half of
// QueryTimeout. If a transaction fails, the next round begins with one that is half as large.
func (n *node) ensure(ctx context.Context, e *ensureRound) (err error) {
	ctx, cancel := context.WithTimeout(ctx, n.deps.Timing.QueryTimeout/2)
	defer cancel()
	all := n.deps.Node.Tenants
	if len(all) == 0 {
		if err := n.deps.Limiter.Read(ctx, func(ctx context.Context) (err error) {
			all, err = n.deps.Store.Tenants(ctx)
			return err
		}); err != nil {
			return err
		}
	}
	e.removed = missing(e.ensured, all)
	fresh := slices.DeleteFunc(slices.Clone(all), func(t string) bool { return e.ensured[t] })
	rows := n.rowsPerTenant()
	for len(fresh) > 0 {
		if ctx.Err() != nil {
			e.more = true
			return nil
		}
		next := fresh[:min(len(fresh), max(1, e.atOnce/rows))]
		if err := n.deps.Limiter.Read(ctx, func(ctx context.Context) error {
			return n.deps.Store.Ensure(ctx, n.newProjections(next))
		}); err != nil {
			e.atOnce = max(1, len(next)*rows/2)
			return err
		}
		e.atOnce = min(ensureMost, 2*e.atOnce)
		e.made = append(e.made, next...)
		fresh = fresh[len(next):]
	}
	return nil
}

// newProjections returns the node's projections of these tenants.
func (n *node) newProjections(tenants []string) (list []engine.NewProjection) {
	for _, t := range tenants {
		for _, name := range n.deps.Node.Projections {
			list = append(list, engine.NewProjection{Tenant: t, Name: name, Partitions: n.deps.Definitions[name].Partitions})
		}
	}
	return list
}

// rowsPerTenant returns how many rows the node's projections have for a new tenant.
func (n *node) rowsPerTenant() (rows int) {
	for _, name := range n.deps.Node.Projections {
		rows += max(1, n.deps.Definitions[name].Partitions)
	}
	return rows
}

// missing returns the tenants in ensured that are not among all. If such a tenant is created again, it needs new rows.
func missing(ensured map[string]bool, all []string) (gone []string) {
	exists := make(map[string]bool, len(all))
	for _, t := range all {
		exists[t] = true
	}
	for t := range ensured {
		if !exists[t] {
			gone = append(gone, t)
		}
	}
	return gone
}

// ensureEnded handles the result of a round.
func (n *node) ensureEnded(e *ensureRound) {
	n.tenants.atOnce = e.atOnce
	if e.incarnation != n.tenants.incarnation && e.incarnation != 0 {
		e.made = nil // the rows may be lost
	}
	if len(e.removed) == 0 && len(e.made) == 0 {
		return
	}
	ensured := maps.Clone(n.tenants.ensured)
	for _, t := range e.removed {
		delete(ensured, t)
	}
	for _, t := range e.made {
		ensured[t] = true
	}
	n.tenants.ensured = ensured
}

// leasesSeen is called with leases that were read together.
func (n *node) leasesSeen(ctx actor.Context, leases []engine.Lease) {
	if len(leases) > 0 {
		n.serverSeen(ctx, leases[0].Incarnation)
	}
}

// serverSeen is called with the incarnation of the server. In a new one the rows that this node made may be lost.
func (n *node) serverSeen(ctx actor.Context, in engine.Incarnation) {
	if in == 0 || in == n.tenants.incarnation {
		return
	}
	if n.tenants.incarnation != 0 {
		n.tenants.ensured = make(map[string]bool)
		n.reconcileSoon(ctx)
	}
	n.tenants.incarnation = in
}

// rowGone is called when a row of a tenant's projections does not exist any more: the tenant was removed, and may have been
// created again.
func (n *node) rowGone(ctx actor.Context, tenant string) {
	if n.tenants.ensured[tenant] {
		n.ensureEnded(&ensureRound{tenants: n.tenants, removed: []string{tenant}})
		n.reconcileSoon(ctx)
	}
}
