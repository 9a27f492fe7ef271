package millrace

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

const (
	// statusLimit and statusMost are the default and the greatest StatusFilter.Limit.
	statusLimit, statusMost = 100, 10_000
)

// Status returns a page of the projections that a filter selects. It reads the rows of those projections and the heads of their
// tenants. For the whole deployment use Summary.
func (r *Runtime) Status(ctx context.Context, filter StatusFilter) (Status, error) {
	switch {
	case filter.Limit < 0:
		return Status{}, fmt.Errorf("status: StatusFilter.Limit must not be negative: %d", filter.Limit)
	case filter.Limit > statusMost:
		return Status{}, fmt.Errorf("status: StatusFilter.Limit (%d) must be at most %d", filter.Limit, statusMost)
	}
	filter.Limit = cmp.Or(filter.Limit, statusLimit)
	status, err := r.status(ctx, filter)
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	return status, nil
}

// status is Status. A limit of 0 means all.
func (r *Runtime) status(ctx context.Context, filter StatusFilter) (status Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.QueryTimeout)
	defer cancel()
	p := pager{runtime: r, filter: filter, deps: r.running()}
	if err := p.read(ctx); err != nil {
		return status, err
	}
	var feeds map[string]actors.FeedEntry
	if p.deps != nil {
		status.Node, feeds = p.deps.Node.ID, p.deps.Registry.Feeds()
	}
	status.Projections = p.found
	named := make([]string, 0, len(filter.Tenants)+len(p.found))
	for _, tenant := range filter.Tenants {
		named = append(named, engine.FullID(ProjectionID{Tenant: tenant}).Tenant)
	}
	for _, s := range p.found {
		named = append(named, s.ID.Tenant)
	}
	slices.Sort(named)
	named = slices.Compact(named)
	heads, err := r.store.Heads(ctx, named)
	if err != nil {
		return status, err
	}
	known, err := r.store.Tenants(ctx, named)
	if err != nil {
		return status, err
	}
	states := make(map[string]projection.TenantState, len(known))
	for _, t := range known {
		states[t.Name] = t.State
	}
	for _, tenant := range named {
		s := r.tenantStatus(ctx, tenant, feeds[tenant], heads)
		s.State = states[tenant]
		status.Tenants = append(status.Tenants, s)
	}
	for i := range status.Projections {
		s := &status.Projections[i]
		s.Head = heads.Positions[s.ID.Tenant]
		s.Behind = max(0, s.Head-s.Position)
		if err := heads.Failed[s.ID.Tenant]; err != nil && s.State == StateLive {
			s.State, s.Reason = StateWaiting, err.Error()
		}
	}
	return status, r.explainNotOwned(ctx, status.Projections)
}

// explainNotOwned sets the reason of projections without a living owner: whether any living node could run
// them.
func (r *Runtime) explainNotOwned(ctx context.Context, list []ProjectionStatus) error {
	if !slices.ContainsFunc(list, func(s ProjectionStatus) bool { return s.State == StateNotOwned }) {
		return nil
	}
	nodes, err := r.store.Nodes(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if s := &list[i]; s.State == StateNotOwned && !slices.ContainsFunc(nodes, func(n engine.NodeRow) bool {
			return n.Alive && n.Knows(s.ID.Tenant, s.ID.Name)
		}) {
			s.Reason = "no living node knows the projection"
		}
	}
	return nil
}

func (r *Runtime) tenantStatus(ctx context.Context, name string, feed actors.FeedEntry, heads engine.Heads) TenantStatus {
	head, found := heads.Positions[name]
	if err := heads.Failed[name]; err != nil {
		feed.Err, head = err, feed.Mark
	}
	s := TenantStatus{Tenant: name, Head: head, Mark: feed.Mark, Held: (*HeldMark)(feed.Held), Reason: text(feed.Err)}
	if !found && feed.Err == nil {
		s.Reason = text(r.store.Absent(ctx, name))
	}
	return s
}

// pager reads the page of a filter. The states of this node's projections are in the registry, those of all others in their rows.
type pager struct {
	runtime *Runtime
	filter  StatusFilter
	deps    *actors.Deps // nil while the runtime is not running
	found   []ProjectionStatus
}

// read reads rows until the page is full or no rows are left. A row whose state changed meanwhile may no longer match the
// filter.
func (p *pager) read(ctx context.Context) error {
	f := p.filter
	after := f.After
	if after != (ProjectionID{}) {
		after = engine.FullID(after)
	}
	for {
		limit := max(0, f.Limit-len(p.found))
		rows, err := p.rows(ctx, after, limit)
		if err != nil {
			return err
		}
		for _, row := range rows {
			var entry actors.ProjectionEntry
			var here bool
			if p.deps != nil {
				entry, here = p.deps.Registry.Get(row.ID)
			}
			if s := projectionStatus(row, entry, here); len(f.States) == 0 || slices.Contains(f.States, s.State) {
				p.found = append(p.found, s)
			}
			after = row.ID
		}
		if limit == 0 || len(rows) < limit || len(p.found) >= f.Limit {
			return nil
		}
	}
}

// rows returns at most limit rows after one.
func (p *pager) rows(ctx context.Context, after ProjectionID, limit int) ([]engine.ProjectionRow, error) {
	f := engine.ProjectionFilter{Names: p.filter.Names, Owner: p.filter.Owner, Parked: p.filter.Parked, After: after, Limit: limit}
	for _, tenant := range p.filter.Tenants {
		f.Tenants = append(f.Tenants, engine.FullID(ProjectionID{Tenant: tenant}).Tenant)
	}
	if len(p.filter.States) == 0 {
		return p.runtime.store.Projections(ctx, f)
	}
	elsewhere, here := f, f
	for _, s := range p.filter.States {
		elsewhere.States = append(elsewhere.States, string(s))
	}
	if p.deps != nil {
		elsewhere.NotOwner = p.deps.Node.ID
		selected := elsewhere
		if f.Parked || f.Owner != "" {
			selected.Limit = 0 // the rows decide which of them are on the page
		}
		here.IDs = p.deps.Registry.In(selected)
	}
	rows, err := p.runtime.store.Projections(ctx, elsewhere)
	if err != nil || len(here.IDs) == 0 {
		return rows, err
	}
	own, err := p.runtime.store.Projections(ctx, here)
	if err != nil {
		return nil, err
	}
	rows = append(rows, own...)
	slices.SortFunc(rows, func(a, b engine.ProjectionRow) int { return engine.CompareIDs(a.ID, b.ID) })
	rows = slices.CompactFunc(rows, func(a, b engine.ProjectionRow) bool { return a.ID == b.ID })
	if limit > 0 {
		rows = rows[:min(limit, len(rows))]
	}
	return rows, nil
}

// projectionStatus is the status of a projection, without the head of its tenant.
func projectionStatus(row engine.ProjectionRow, entry actors.ProjectionEntry, here bool) ProjectionStatus {
	s := ProjectionStatus{
		ID: row.ID, State: State(row.State), Owner: row.Owner, Epoch: row.Epoch, Checkpoint: row.Checkpoint, Position: row.Checkpoint,
		Parked: row.Parked, OldestParked: row.OldestParked, Skipped: row.Skipped, FailingPosition: row.FailingPosition, Attempts: row.Attempts,
		Applied: entry.Applied, Reason: row.LastError, Breaker: entry.Breaker,
	}
	if row.FailingPosition <= row.Checkpoint {
		// What failed last was handled or parked since.
		s.FailingPosition, s.Attempts, s.Reason = 0, 0, ""
	}
	if s.Attempts == 0 {
		s.FailingPosition = 0 // it waits there for what its handler depends on, and no event fails
	}
	// A node forgets a projection soon after it has released the lease, and the row is newer.
	released := s.State == StatePaused && row.Owner == ""
	switch {
	case here && !released:
		s.State, s.Position = State(entry.Phase), max(entry.Position, row.Checkpoint)
		if entry.Reason != nil {
			s.Reason = entry.Reason.Error()
		}
	case s.State == StatePaused:
		if reason := asleep(row.Tenant); reason != "" {
			s.Reason = reason
		}
	case s.State == StateNotOwned:
		s.NotOwned = row.NotOwned
	case s.State == StateFailed:
		s.Reason = row.Failed
		if row.Halted {
			s.NotOwned = row.NotOwned
		}
	}
	return s
}

// asleep returns why the projections of a tenant in that state do not run, or an empty string if they do.
func asleep(state projection.TenantState) string {
	switch state {
	case projection.TenantPaused:
		return "the tenant is paused"
	case projection.TenantArchived:
		return projection.ErrTenantArchived.Error()
	case projection.TenantDropping:
		return projection.ErrTenantDropping.Error()
	case projection.TenantCopying:
		return projection.ErrTenantCopying.Error()
	}
	return ""
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
