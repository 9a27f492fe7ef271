package actors

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// ensureMost is how many rows of projections one transaction makes at most.
const ensureMost = 1000

// tenants are the tenants whose projections have their rows.
type tenants struct {
	// by name, their keys in the store; shared with rounds in progress, so it is replaced and never changed
	ensured     map[string]int32
	incarnation engine.Incarnation     // of the server in which the rows were made; 0 before it is known
	atOnce      int                    // how many rows the next transaction makes
	logged      map[leftOut]bool       // what was logged
	waiting     map[engine.Rename]bool // renames that wait for the nodes of an earlier release
	later       map[string]swapLater   // by name, the tenants whose hooks failed; never changed
}

// swapAgain is the pause after a failure of the hook Swap of a later version with which a tenant begins.
const swapAgain = 5 * time.Second

// swapLater is a version with which a tenant cannot begin, since its hook fails. It is tried again at that time.
type swapLater struct {
	standstill Standstill
	again      time.Time
}

// leftOut says why a projection does not run: its name is retired for a reason, or it waits for the nodes of its
// earlier name.
type leftOut struct{ projection, reason, earlier string }

// ensureRound is one round of making rows. Some of them may have been made even if the round failed.
type ensureRound struct {
	tenants                 // as the round began
	names   []string        // the tenants that the round looks at, nil for all
	changed map[string]bool // tenants that may lack rows although they had them
	made    []engine.Tenant // tenants whose rows were made
	removed []string        // tenants that do not exist any more, or are not active
	more    bool            // there are further tenants
	left    engine.LeftOut
	renames []engine.Rename               // those that no other node seems to keep waiting
	failed  map[string]engine.SwapFailure // by name, the tenants whose hooks failed
	err     error
}

// nextEnsure returns the next round. It is for all tenants if such a round is due, and otherwise for tenants that
// notifications named.
func (n *node) nextEnsure() ensureRound {
	e := ensureRound{tenants: n.tenants, changed: n.changes.fill}
	if now := time.Now(); now.Before(n.changes.listAll) && n.search.resync > 0 {
		e.names = slices.AppendSeq([]string{}, maps.Keys(n.changes.fill))
	} else {
		n.changes.listAll = now.Add(n.listAgain())
		e.names = n.deps.Node.Tenants
	}
	n.changes.fill = make(map[string]bool)
	e.renames = n.unused()
	if len(e.renames) > 0 {
		e.ensured = maps.Clone(e.ensured)
		for _, r := range e.renames {
			delete(e.ensured, r.Tenant)
			if e.names != nil {
				e.names = append(e.names, r.Tenant)
			}
		}
	}
	return e
}

// listAgain returns after which time all tenants are listed again, beside the searches that read all owned leases.
// Where no notifications arrive, or a hook failed, that is in each search. Otherwise notifications name the tenants
// that change, and a new session lists all.
func (n *node) listAgain() time.Duration {
	session := n.deps.Registry.Session()
	if session.Pooled || len(n.tenants.later) > 0 {
		return n.deps.Timing.ReconcileInterval / 2
	}
	return time.Hour
}

// unused returns those of the waiting renames for which no other node is known to register an earlier name. The store
// checks that again.
func (n *node) unused() (renames []engine.Rename) {
	if len(n.tenants.waiting) == 0 {
		return nil
	}
	users := make(map[string][]engine.Member) // by names without versions
	for _, m := range n.deps.Registry.Session().Members {
		for _, name := range m.Projections {
			base, _ := projection.ID{Name: name}.Version()
			users[base] = append(users[base], m)
		}
	}
	for r := range n.tenants.waiting {
		if !slices.ContainsFunc(users[r.From], func(m engine.Member) bool {
			return slices.ContainsFunc(m.Projections, func(name string) bool {
				base, _ := projection.ID{Name: name}.Version()
				return base == r.From && m.Knows(r.Tenant, name)
			})
		}) {
			renames = append(renames, r)
		}
	}
	return renames
}

// ensure makes the rows of the node's projections for new tenants, in several transactions. It stops after half of
// QueryTimeout. If a transaction fails, the next round begins with half as many rows.
func (n *node) ensure(ctx context.Context, e *ensureRound) (err error) {
	if e.names != nil && len(e.names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.deps.Timing.QueryTimeout/2)
	defer cancel()
	for renames := range slices.Chunk(e.renames, ensureMost) {
		if err := n.deps.Limiter.Read(ctx,
			func(ctx context.Context) error { return n.deps.Plane.RenameUnused(ctx, renames) }); err != nil {
			return err
		}
	}
	var listed []engine.Tenant
	if err := n.deps.Limiter.Read(ctx, func(ctx context.Context) (err error) {
		listed, err = n.deps.Lists.Tenants(ctx, e.names)
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
			if err := n.deps.Limiter.Read(ctx, func(ctx context.Context) error {
				left, err := n.deps.Plane.Ensure(ctx, projections)
				e.left.Retired, e.left.Waiting = append(e.left.Retired, left.Retired...),
					append(e.left.Waiting, left.Waiting...)
				return e.hooksFailed(err)
			}); err != nil {
				e.atOnce = max(1, rows/2)
				return err
			}
			e.atOnce = min(ensureMost, 2*e.atOnce)
		}
		e.made = append(e.made, slices.DeleteFunc(fresh[:tenants:tenants],
			func(t engine.Tenant) bool { return e.failed[t.Name].Err != nil })...)
		fresh = fresh[tenants:]
	}
	return nil
}

// hooksFailed records the failures of hooks by tenant. It returns all other errors.
func (e *ensureRound) hooksFailed(err error) error {
	var failed *engine.SwapError
	if !errors.As(err, &failed) {
		return err
	}
	if e.failed == nil {
		e.failed = make(map[string]engine.SwapFailure)
	}
	maps.Copy(e.failed, failed.Tenants)
	return nil
}

// firstTenants returns the projections of the first of these tenants, how many rows these projections have if they are
// new, and the number of these tenants. It takes as many tenants as fit the limit of rows, but at least one.
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

// newProjections returns the projections that the node can run for a tenant, and how many rows they have if they are
// new.
func (n *node) newProjections(tenant string) (list []engine.NewProjection, rows int) {
	for _, name := range n.deps.Registered.Projections {
		if n.deps.Registered.Filters[name].Matches(tenant) {
			def := n.deps.Definitions[name]
			list = append(list, def.New(projection.ID{Tenant: tenant, Name: name}))
			rows += max(1, def.Partitions)
		}
	}
	return list, rows
}

// compare returns the tenants that need rows, and notes those that have gone. A tenant that was created again under its
// name needs new rows.
func (e *ensureRound) compare(listed []engine.Tenant) (fresh []engine.Tenant) {
	runs, now := make(map[string]bool, len(listed)), time.Now()
	for _, t := range listed {
		if t.State != tenancy.Active && t.State != tenancy.Paused {
			continue
		}
		runs[t.Name] = true
		if (e.changed[t.Name] || e.ensured[t.Name] != t.Row) &&
			!now.Before(e.later[t.Name].again) {
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
	n.rowsLeftOut(e)
	n.swapsFailed(e)
	if e.err != nil || e.more || len(e.failed) > 0 {
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

// swapsFailed logs and reports the tenants that cannot begin with a version, and puts off the next tries.
func (n *node) swapsFailed(e *ensureRound) {
	if len(e.failed) == 0 && len(n.tenants.later) == 0 {
		return
	}
	now := time.Now()
	later := maps.Clone(n.tenants.later)
	if later == nil {
		later = make(map[string]swapLater)
	}
	for _, t := range e.made {
		delete(later, t.Name)
	}
	for _, name := range e.removed {
		delete(later, name)
	}
	for tenant, failure := range e.failed {
		stands := Standstill{
			ID: failure.ID, Since: now, Reason: "the tenant cannot begin with it: " + failure.Err.Error(), Fails: true,
		}
		if before, failed := later[tenant]; failed {
			stands.Since = before.standstill.Since
		}
		later[tenant] = swapLater{stands, now.Add(swapAgain)}
		n.log.Warn("the hook by which a tenant begins with a version failed, retrying", zap.String("tenant", tenant),
			zap.Error(failure.Err))
	}
	n.tenants.later = later
	n.deps.Registry.publishUnbegun(later)
}

// rowsLeftOut remembers the renames that wait, and logs why projections do not run, once for all tenants.
func (n *node) rowsLeftOut(e *ensureRound) {
	reasons := make(map[leftOut][]string) // with the tenants
	for _, r := range e.left.Retired {
		key := leftOut{projection: r.Name, reason: r.What()}
		reasons[key] = append(reasons[key], r.Tenant)
	}
	before := n.tenants.waiting
	if len(before) > 0 {
		done := make(map[string]bool)
		for _, t := range e.made {
			done[t.Name] = true
		}
		for _, name := range e.removed {
			done[name] = true
		}
		n.tenants.waiting = maps.Clone(before)
		maps.DeleteFunc(n.tenants.waiting, func(r engine.Rename, _ bool) bool { return done[r.Tenant] })
	}
	for _, p := range e.left.Waiting {
		r := p.Rename()
		n.tenants.waiting[r] = true
		n.search.again = n.search.again || !before[r] // perhaps no node keeps it waiting
		key := leftOut{projection: p.Name, earlier: p.RenamedFrom}
		reasons[key] = append(reasons[key], p.Tenant)
	}
	for key, tenants := range reasons {
		if n.tenants.logged[key] {
			continue
		}
		n.tenants.logged[key] = true
		log := n.log.With(zap.String("projection", key.projection), zap.Int("tenants", len(tenants)),
			zap.String("tenant", tenants[0]))
		if key.earlier != "" {
			log.Info("a projection waits until no node registers its earlier name", zap.String("earlier", key.earlier))
		} else {
			log.Warn("a registered projection is retired and does not run", zap.String("reason", key.reason))
		}
	}
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

// rowGone is called when a row of a tenant's projections does not exist any more: the projection has other partitions
// now, or the tenant was removed, and may have been created again. The next search makes the rows that are missing, in
// one statement for the tenant.
func (n *node) rowGone(ctx actor.Context, tenant string) {
	if n.tenants.ensured[tenant] == 0 {
		return
	}
	n.tenants.ensured = maps.Clone(n.tenants.ensured)
	delete(n.tenants.ensured, tenant)
	n.changes.fill[tenant] = true
	n.reconcileSoon(ctx)
}
