package actors

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// ensureMost is how many rows of projections one transaction makes at most.
const ensureMost = 1000

// tenants are the tenants whose projections have their rows.
type tenants struct {
	ensured     map[string]int32   // by name, their keys in the store; shared with rounds in progress, so it is replaced and never changed
	incarnation engine.Incarnation // of the server in which the rows were made; 0 before it is known
	atOnce      int                // how many rows the next transaction makes
}

// ensureRound is one round of making rows. Some of them may have been made even if the round failed.
type ensureRound struct {
	tenants                 // as the round began
	names   []string        // the tenants that the round looks at, nil for all
	made    []engine.Tenant // tenants whose rows were made
	removed []string        // tenants that do not exist any more, or are not active
	more    bool            // there are further tenants
	err     error
}

// nextEnsure returns the next round. It is for all tenants if such a round is due, and otherwise for tenants that
// notifications named.
func (n *node) nextEnsure() ensureRound {
	e := ensureRound{tenants: n.tenants}
	if now := time.Now(); now.Before(n.changes.listAll) {
		e.names = slices.AppendSeq([]string{}, maps.Keys(n.changes.fill))
	} else {
		n.changes.listAll = now.Add(n.deps.Timing.ReconcileInterval / 2)
		e.names = n.deps.Node.Tenants
	}
	n.changes.fill = make(map[string]bool)
	return e
}

// ensure makes the rows of the node's projections for new tenants, in several transactions. It stops after half of
// QueryTimeout. If a transaction fails, the next round begins with half as many rows.
func (n *node) ensure(ctx context.Context, e *ensureRound) (err error) {
	if e.names != nil && len(e.names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.deps.Timing.QueryTimeout/2)
	defer cancel()
	var listed []engine.Tenant
	if err := n.deps.Limiter.Read(ctx, func(ctx context.Context) (err error) {
		listed, err = n.deps.Store.Tenants(ctx, e.names)
		return err
	}); err != nil {
		return err
	}
	fresh := e.compare(listed)
	for len(fresh) > 0 {
		if ctx.Err() != nil {
			e.more = true
			return nil
		}
		projections, rows, tenants := n.firstTenants(fresh, e.atOnce)
		if rows > 0 {
			if err := n.deps.Limiter.Read(ctx, func(ctx context.Context) error { return n.deps.Store.Ensure(ctx, projections) }); err != nil {
				e.atOnce = max(1, rows/2)
				return err
			}
			e.atOnce = min(ensureMost, 2*e.atOnce)
		}
		e.made = append(e.made, fresh[:tenants]...)
		fresh = fresh[tenants:]
	}
	return nil
}

// firstTenants returns the projections of the first of these tenants, how many rows these projections have if they are new,
// and the number of these tenants. It takes as many tenants as fit the limit of rows, but at least one.
func (n *node) firstTenants(of []engine.Tenant, most int) (list []engine.NewProjection, rows, tenants int) {
	for _, tenant := range of {
		projections, more := n.newProjections(tenant.Name)
		if tenants > 0 && rows+more > most {
			break
		}
		list, rows, tenants = append(list, projections...), rows+more, tenants+1
	}
	return list, rows, tenants
}

// newProjections returns the projections that the node can run for a tenant, and how many rows they have if they are new.
func (n *node) newProjections(tenant string) (list []engine.NewProjection, rows int) {
	for _, name := range n.deps.Node.Projections {
		if n.deps.Node.Filters[name].Matches(tenant) {
			partitions := n.deps.Definitions[name].Partitions
			list = append(list, engine.NewProjection{Tenant: tenant, Name: name, Partitions: partitions})
			rows += max(1, partitions)
		}
	}
	return list, rows
}

// compare returns the tenants that need rows, and notes those that have gone. A tenant that was created again under its name
// needs new rows.
func (e *ensureRound) compare(listed []engine.Tenant) (fresh []engine.Tenant) {
	runs := make(map[string]bool, len(listed))
	for _, t := range listed {
		if t.State != projection.TenantActive && t.State != projection.TenantPaused {
			continue
		}
		if runs[t.Name] = true; e.ensured[t.Name] != t.Row {
			fresh = append(fresh, t)
		}
	}
	if e.names != nil {
		e.removed = slices.DeleteFunc(slices.Clone(e.names), func(name string) bool { return runs[name] })
		return fresh
	}
	for name := range e.ensured {
		if !runs[name] {
			e.removed = append(e.removed, name)
		}
	}
	return fresh
}

// ensureEnded handles the result of a round.
func (n *node) ensureEnded(e *ensureRound) {
	n.tenants.atOnce = e.atOnce
	if e.err != nil || e.more {
		n.changes.listAll = time.Time{}
	}
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
		ensured[t.Name] = t.Row
	}
	n.tenants.ensured = ensured
	n.deps.Registry.forget(e.removed)
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
		n.tenants.ensured = make(map[string]int32)
		n.changes.listAll = time.Time{}
		n.reconcileSoon(ctx)
	}
	n.tenants.incarnation = in
}

// rowGone is called when a row of a tenant's projections does not exist any more: the projection has other partitions now, or the
// tenant was removed, and may have been created again. The next search makes the rows that are missing, in one statement for the
// tenant.
func (n *node) rowGone(ctx actor.Context, tenant string) {
	if n.tenants.ensured[tenant] == 0 {
		return
	}
	n.tenants.ensured = maps.Clone(n.tenants.ensured)
	delete(n.tenants.ensured, tenant)
	n.changes.fill[tenant] = true
	n.reconcileSoon(ctx)
}
