package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// view is what one call of Status knows. What is on this node comes from the registry, and all else from the database
// and from the summaries of the other nodes.
type view struct {
	admin *Admin
	deps  *actors.Deps // nil while the runtime is not running
	feeds map[string]actors.FeedEntry
	// nodes are nil before they are read. lagging and held are from the summaries of the living ones.
	nodes   []engine.NodeRow
	lagging map[projection.ID]report
	held    map[string]engine.HeldTenant
	// standing are the projections of other nodes that do not move although events wait.
	standing map[projection.ID]engine.StandingProjection
	// heads are the heads that were read before, nil if each is read when it is needed. tenants have the ends that were
	// read so far, and failed the tenants that could not be read.
	heads   *engine.Heads
	tenants map[string]TenantStatus
	failed  map[string]error
}

// report is what a node reports about a projection.
type report struct {
	engine.LaggingProjection
	node string
}

func newView(a *Admin) *view {
	v := &view{
		admin: a, deps: a.waiter.Running(), tenants: make(map[string]TenantStatus), failed: make(map[string]error),
	}
	if v.deps != nil {
		v.feeds = v.deps.Registry.Feeds()
	}
	return v
}

// statuses returns the statuses of projections, without their lags.
func (v *view) statuses(ctx context.Context, rows []engine.ProjectionRow) ([]ProjectionStatus, error) {
	tenants := make([]string, len(rows))
	for i, row := range rows {
		tenants[i] = row.ID.Tenant
		if s := State(row.State); s == StateElsewhere || s == StateNotOwned {
			if err := v.readNodes(ctx); err != nil {
				return nil, err
			}
		}
	}
	if err := v.readTenants(ctx, tenants); err != nil {
		return nil, err
	}
	list := make([]ProjectionStatus, len(rows))
	for i, row := range rows {
		list[i] = v.status(row)
	}
	return list, nil
}

func (v *view) status(row engine.ProjectionRow) ProjectionStatus {
	var entry actors.ProjectionEntry
	var here bool
	if v.deps != nil {
		entry, here = v.deps.Registry.Get(row.ID)
	}
	end := v.tenants[row.ID.Tenant]
	s := projectionStatus(row, entry, here)
	s.Mark, s.Head = end.Mark, end.Head
	switch {
	case here:
	case s.State == StateElsewhere:
		v.elsewhere(&s)
	case s.State == StateNotOwned:
		v.notOwned(&s)
	}
	s.Behind = max(0, s.Head-s.Position)
	v.stands(&s, here)
	if err := v.failed[s.ID.Tenant]; err != nil && s.State == StateLive {
		s.State, s.Reason = StateWaiting, err.Error()
	}
	return s
}

// stands gives a reason to a projection that seems to run and does not move although events wait.
func (v *view) stands(s *ProjectionStatus, here bool) {
	if s.State != StateLive && s.State != StateCatchUp && s.State != StateStarting {
		return
	}
	if end := v.tenants[s.ID.Tenant]; end.Reason != "" {
		s.State, s.Reason = StateWaiting, "the events of the tenant cannot be read: "+end.Reason
		return
	}
	if here {
		still, stands := v.deps.Registry.Standstill(s.ID)
		if stands {
			s.Reason = still.Reason
		}
		if still.Fails {
			s.State = StateWaiting
		}
		return
	}
	if still, stands := v.standing[s.ID]; stands {
		s.State, s.Reason = StateWaiting, still.Reason
	}
}

// elsewhere completes the status of a projection that another node runs. Its row says that no event fails.
func (v *view) elsewhere(s *ProjectionStatus) {
	r, reported := v.lagging[s.ID]
	switch {
	case reported && r.node == s.Owner && r.Position >= s.Checkpoint: // not outdated
		s.State, s.Reason, s.Position, s.Rate = State(r.State), r.Reason, r.Position, r.Rate
	case !v.reportsAll(s.Owner) && s.Mark-s.Checkpoint > engine.DefaultBatch:
		s.State = StateCatchUp
	default:
		s.State = StateLive
	}
}

// reportsAll reports whether the summary of a node names all of its projections that are behind. It may not know those
// that the node claimed last.
func (v *view) reportsAll(node string) bool {
	at := slices.IndexFunc(v.nodes, func(n engine.NodeRow) bool { return n.ID == node })
	if at < 0 || !v.nodes[at].Alive || v.nodes[at].Summary == nil {
		return false
	}
	summary, counted := v.nodes[at].Summary, 0
	for _, n := range summary.States {
		counted += n
	}
	return counted >= v.nodes[at].Leases && len(summary.Lagging) < engine.MaxSummarized
}

// notOwned completes the status of a projection without a living owner: the state and the reason depend on which nodes
// could run it.
func (v *view) notOwned(s *ProjectionStatus) {
	switch by := registrationOf(v.nodes, s.ID); {
	case by.unregistered():
		s.State, s.Reason = StateUnregistered, "no node registers the projection for its tenant"
	case !by.anyAlive:
		s.Reason = "no node is alive"
	case !by.alive:
		s.Reason = fmt.Sprintf("no living node registers the projection for its tenant; node %s (%s) did, and died",
			by.dead.Name, by.dead.ID)
	}
}

// readNodes reads the nodes, the first time.
func (v *view) readNodes(ctx context.Context) (err error) {
	if v.nodes != nil {
		return nil
	}
	nodes, err := v.admin.plane.Nodes(ctx)
	if err != nil {
		return err
	}
	v.nodes, v.lagging, v.held = append([]engine.NodeRow{}, nodes...), make(map[projection.ID]report),
		make(map[string]engine.HeldTenant)
	v.standing = make(map[projection.ID]engine.StandingProjection)
	for _, n := range nodes {
		if !n.Alive || n.Summary == nil {
			continue
		}
		for _, l := range n.Summary.Lagging {
			v.lagging[l.ID] = report{l, n.ID}
		}
		for _, p := range n.Summary.Standing {
			v.standing[p.ID] = p
		}
		for _, h := range n.Summary.Held {
			v.held[h.Tenant] = h
		}
	}
	return nil
}

// reported returns the IDs of the projections that other nodes reported in one of these states.
func (v *view) reported(states []State) (ids []projection.ID) {
	for id, r := range v.lagging {
		if slices.Contains(states, State(r.State)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// readTenants reads the ends of the events of those of these tenants that were not read before.
func (v *view) readTenants(ctx context.Context, names []string) error {
	names = slices.Sorted(slices.Values(names))
	names = slices.DeleteFunc(slices.Compact(names),
		func(name string) bool { _, known := v.tenants[name]; return known })
	if len(names) == 0 {
		return nil
	}
	heads, err := v.headsOf(ctx, names)
	if err != nil {
		return err
	}
	known, err := v.admin.store.Tenants(ctx, names)
	if err != nil {
		return err
	}
	settled, err := v.settle(ctx, heads)
	if err != nil {
		return err
	}
	states := make(map[string]tenancy.State, len(known))
	for _, t := range known {
		states[t.Name] = t.State
	}
	for _, name := range names {
		t := v.tenant(ctx, name, heads, settled[name])
		t.State = states[name]
		v.tenants[name] = t
	}
	maps.Copy(v.failed, heads.Failed)
	return nil
}

func (v *view) headsOf(ctx context.Context, names []string) (engine.Heads, error) {
	if v.heads == nil {
		return v.admin.store.Heads(ctx, names)
	}
	some := engine.Heads{
		Positions: make(map[string]int64, len(names)), Failed: make(map[string]error), Incarnation: v.heads.Incarnation,
	}
	for _, name := range names {
		if head, found := v.heads.Positions[name]; found {
			some.Positions[name] = head
		}
		if err := v.heads.Failed[name]; err != nil {
			some.Failed[name] = err
		}
	}
	return some, nil
}

// settle settles the events of the tenants whose feeds are not on this node.
func (v *view) settle(ctx context.Context, heads engine.Heads) (map[string]engine.Settled, error) {
	var foreign []string
	for name := range heads.Positions {
		if feed := v.feeds[name]; feed.Mark == 0 || feed.Err != nil {
			foreign = append(foreign, name)
		}
	}
	if len(foreign) == 0 {
		return nil, nil
	}
	settled, err := v.admin.store.Settle(ctx, heads, foreign)
	if err != nil {
		return nil, err
	}
	for name, s := range settled {
		if s.Held == nil {
			continue
		}
		if err := v.readNodes(ctx); err != nil {
			return nil, err
		}
		if h, reported := v.held[name]; reported && h.Held != nil {
			s.Mark, s.Held.Since = max(s.Mark, h.Mark), h.Held.Since.UTC()
			settled[name] = s
		}
	}
	return settled, nil
}

// tenant returns the end of a tenant's events, by the feed of this node if it has one.
func (v *view) tenant(ctx context.Context, name string, heads engine.Heads, settled engine.Settled) TenantStatus {
	feed := v.feeds[name]
	head, found := heads.Positions[name]
	if err := heads.Failed[name]; err != nil {
		feed.Err, head = err, feed.Mark
	}
	s := TenantStatus{Tenant: name, Head: head, Mark: feed.Mark, Held: heldMark(feed.Held), Reason: text(feed.Err)}
	if s.Mark == 0 || feed.Err != nil && settled.Mark > 0 {
		s.Mark, s.Held = settled.Mark, heldMark(settled.Held)
	}
	if h := v.held[name]; s.Reason == "" && h.Held == nil {
		s.Reason = h.Reason // another node reads them
	}
	if !found && feed.Err == nil {
		s.Reason = text(v.admin.store.Absent(ctx, name))
	}
	return s
}

func heldMark(h *engine.Held) *HeldMark {
	if h == nil {
		return nil
	}
	return &HeldMark{Below: h.Below, Since: h.Since.UTC(), Holders: h.Holders}
}

// readLags sets the lags of projections that have not handled all events.
func (v *view) readLags(ctx context.Context, list []ProjectionStatus) error {
	at := func(s ProjectionStatus) engine.TenantPosition {
		return engine.TenantPosition{Tenant: s.ID.Tenant, Position: s.Head - s.Behind}
	}
	behind := make(map[engine.TenantPosition]bool)
	for _, s := range list {
		if s.Behind > 0 && v.failed[s.ID.Tenant] == nil {
			behind[at(s)] = true
		}
	}
	if len(behind) == 0 {
		return nil
	}
	ages, err := v.admin.store.Ages(ctx, slices.Collect(maps.Keys(behind)))
	for i := range list {
		list[i].Lag = ages[at(list[i])].Age
	}
	return err
}
