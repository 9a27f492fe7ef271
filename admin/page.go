package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

const (
	// statusLimit and statusMost are the default and the greatest StatusFilter.Limit.
	statusLimit, statusMost = 100, 10_000
	// filteredRows is how many rows are read at once if some of them may not match the filter.
	filteredRows = 500
)

// Status returns a page of the projections that a filter selects. It reads the rows of those projections, the ends of their
// tenants' events, and the ages of the oldest events that they have not handled. For the whole deployment use Summary.
func (a *Admin) Status(ctx context.Context, filter StatusFilter) (Status, error) {
	switch {
	case filter.Limit < 0:
		return Status{}, fmt.Errorf("status: StatusFilter.Limit must not be negative: %d", filter.Limit)
	case filter.Limit > statusMost:
		return Status{}, fmt.Errorf("status: StatusFilter.Limit (%d) must be at most %d", filter.Limit, statusMost)
	}
	filter.Limit = cmp.Or(filter.Limit, statusLimit)
	status, err := a.status(ctx, filter)
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	return status, nil
}

func (a *Admin) status(ctx context.Context, filter StatusFilter) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	filter.Tenants = slices.Clone(filter.Tenants)
	for i, tenant := range filter.Tenants {
		filter.Tenants[i] = engine.FullTenant(tenant)
	}
	status := Status{At: time.Now().UTC()}
	p := pager{filter: filter, view: newView(a), found: make([]ProjectionStatus, 0)}
	if p.view.deps != nil {
		status.Node = p.view.deps.Node.ID
	}
	err := p.read(ctx)
	if err == nil {
		err = p.view.readTenants(ctx, filter.Tenants)
	}
	if err == nil {
		err = p.view.readLags(ctx, p.found)
	}
	named := slices.Clone(filter.Tenants)
	for _, s := range p.found {
		named = append(named, s.ID.Tenant)
	}
	slices.Sort(named)
	status.Projections, status.Tenants = p.found, make([]TenantStatus, 0, len(named))
	for _, tenant := range slices.Compact(named) {
		status.Tenants = append(status.Tenants, p.view.tenants[tenant])
	}
	return status, err
}

// pager reads the page of a filter. The filter names no empty tenant.
type pager struct {
	filter StatusFilter
	view   *view
	found  []ProjectionStatus
}

// read reads rows until the page is full or no rows are left.
func (p *pager) read(ctx context.Context) error {
	f := p.filter
	after := f.After
	if after != (projection.ID{}) {
		after = engine.FullID(after)
	}
	if len(f.States) > 0 {
		if err := p.view.readNodes(ctx); err != nil {
			return err
		}
	}
	for {
		limit := f.Limit
		if len(f.States) > 0 {
			limit = max(limit, filteredRows)
		}
		rows, err := p.rows(ctx, after, limit)
		if err != nil {
			return err
		}
		list, err := p.view.statuses(ctx, rows)
		if err != nil {
			return err
		}
		for _, s := range list {
			if after = s.ID; len(f.States) == 0 || slices.Contains(f.States, s.State) {
				p.found = append(p.found, s)
			}
		}
		if len(rows) < limit || len(p.found) >= f.Limit {
			break
		}
	}
	p.found = p.found[:min(f.Limit, len(p.found))]
	return nil
}

// rows returns at most limit rows after one. Some of them may have other states than the filter's.
func (p *pager) rows(ctx context.Context, after projection.ID, limit int) ([]engine.ProjectionRow, error) {
	f := engine.ProjectionFilter{Tenants: p.filter.Tenants, Names: p.filter.Names, Owner: p.filter.Owner, Parked: p.filter.Parked, After: after, Limit: limit}
	plane := p.view.admin.plane
	if len(p.filter.States) == 0 {
		return plane.Projections(ctx, f)
	}
	// The states of some projections are known better than by their rows.
	byRow, byID := f, f
	byRow.States = rowStates(p.filter.States)
	byID.IDs = p.view.reported(p.filter.States)
	if deps := p.view.deps; deps != nil {
		byRow.NotOwner = deps.Node.ID
		selected := f
		for _, s := range p.filter.States {
			selected.States = append(selected.States, string(s))
		}
		if f.Parked || f.Owner != "" {
			selected.Limit = 0 // the rows decide which of them are on the page
		}
		byID.IDs = append(byID.IDs, deps.Registry.In(selected)...)
	}
	rows, err := plane.Projections(ctx, byRow)
	if err != nil || len(byID.IDs) == 0 {
		return rows, err
	}
	known, err := plane.Projections(ctx, byID)
	if err != nil {
		return nil, err
	}
	rows = append(rows, known...)
	slices.SortFunc(rows, func(a, b engine.ProjectionRow) int { return engine.CompareIDs(a.ID, b.ID) })
	rows = slices.CompactFunc(rows, func(a, b engine.ProjectionRow) bool { return a.ID == b.ID })
	return rows[:min(limit, len(rows))], nil
}

// rowStates returns the states that the rows of projections in these states may have.
func rowStates(states []State) (rows []string) {
	for _, s := range states {
		switch s {
		case StateStarting, StateCatchUp, StateLive:
			s = StateElsewhere
		case StateUnregistered:
			s = StateNotOwned
		case StateElsewhere:
			s = "" // no row has the empty state
		}
		rows = append(rows, string(s))
	}
	return rows
}
