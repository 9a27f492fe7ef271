package admin

import (
	"cmp"
	"context"
	"errors"
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

// Status returns a page of the projections that a filter selects. It reads the rows of those projections, the ends of
// their tenants' events, and the ages of the oldest events that they have not handled. For the whole deployment use
// Summary.
//
// A page that is sorted by StatusFilter.Sort needs the ends of the events of all selected tenants, and the checkpoints
// of all their projections. For each 250 tenants it sends two statements, or with SortByLag some more. It keeps the
// selected tenants in memory, and no more than a page of projections.
func (a *Admin) Status(ctx context.Context, filter StatusFilter) (Status, error) {
	switch {
	case filter.Limit < 0:
		return Status{}, fmt.Errorf("status: StatusFilter.Limit must not be negative: %d", filter.Limit)
	case filter.Limit > statusMost:
		return Status{}, fmt.Errorf("status: StatusFilter.Limit (%d) must be at most %d", filter.Limit, statusMost)
	case filter.Sort != SortByID && filter.Sort != SortByBehind && filter.Sort != SortByLag:
		return Status{}, fmt.Errorf("status: StatusFilter.Sort is not known: %q", filter.Sort)
	case filter.After != (projection.ID{}) && (filter.Next != "" || filter.Sort != SortByID):
		return Status{}, errors.New("status: StatusFilter.After must not be set together with Next or Sort")
	}
	next, err := readCursor(filter.Next, filter.Sort)
	if err != nil {
		return Status{}, fmt.Errorf("status: StatusFilter.Next %w", err)
	}
	filter.Limit = cmp.Or(filter.Limit, statusLimit)
	status, err := a.status(ctx, filter, next)
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	return status, nil
}

func (a *Admin) status(ctx context.Context, filter StatusFilter, next *cursor) (Status, error) {
	filter.Tenants = slices.Clone(filter.Tenants)
	for i, tenant := range filter.Tenants {
		filter.Tenants[i] = engine.FullTenant(tenant)
	}
	status := Status{At: time.Now().UTC()}
	p := pager{filter: filter, from: next, view: newView(a), found: make([]ProjectionStatus, 0)}
	if p.view.deps != nil {
		status.Node = p.view.deps.Node.ID
	}
	if err := p.readPage(ctx, a.timeout); err != nil {
		return Status{}, err
	}
	named := slices.Clone(filter.Tenants)
	for _, s := range p.found {
		named = append(named, s.ID.Tenant)
	}
	slices.Sort(named)
	status.Projections, status.Next, status.Tenants = p.found, p.next.String(), make([]TenantStatus, 0, len(named))
	for _, tenant := range slices.Compact(named) {
		status.Tenants = append(status.Tenants, p.view.tenants[tenant])
	}
	return status, nil
}

// pager reads the page of a filter. The filter names no empty tenant.
type pager struct {
	filter StatusFilter
	// from is where the page begins, nil for the first page, and next where the next page does, nil after the last.
	from, next *cursor
	view       *view
	ranked     []ranked // those of a sorted page
	found      []ProjectionStatus
}

// readPage reads the page, and what it shows of tenants and lags. A sorted page is ranked without the timeout.
func (p *pager) readPage(ctx context.Context, timeout time.Duration) error {
	read := p.read
	if p.filter.Sort != SortByID {
		if err := p.rank(ctx); err != nil {
			return err
		}
		read = p.show
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := read(ctx); err != nil {
		return err
	}
	if err := p.view.readTenants(ctx, p.filter.Tenants); err != nil {
		return err
	}
	if p.filter.Sort == SortByLag {
		return nil // the lags were read
	}
	return p.view.readLags(ctx, p.found)
}

// read reads rows until the page is full or no rows are left.
func (p *pager) read(ctx context.Context) error {
	f := p.filter
	after := f.After
	if after != (projection.ID{}) {
		after = engine.FullID(after)
	}
	if p.from != nil {
		after = p.from.ID
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
			after = s.ID
			if len(f.States) == 0 || slices.Contains(f.States, s.State) {
				p.found = append(p.found, s)
			}
		}
		if len(rows) < limit || len(p.found) >= f.Limit {
			break
		}
	}
	if len(p.found) >= f.Limit {
		p.found = p.found[:f.Limit]
		p.next = &cursor{ID: p.found[f.Limit-1].ID}
	}
	return nil
}

// rows returns at most limit rows after one. Some of them may have other states than the filter's.
func (p *pager) rows(ctx context.Context, after projection.ID, limit int) ([]engine.ProjectionRow, error) {
	f := engine.ProjectionFilter{
		Tenants: p.filter.Tenants, Names: p.filter.Names, Owner: p.filter.Owner, Parked: p.filter.Parked, After: after,
		Limit: limit,
	}
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
