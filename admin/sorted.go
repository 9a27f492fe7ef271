package admin

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

const (
	// tenantsAtOnce is how many tenants are ranked at once. Their heads are one statement.
	tenantsAtOnce = 250
	// rankedRows is how many rows are read at once if not all of them can be on the page.
	rankedRows = 10_000
)

// ranking finds the projections of a sorted page, and the first one of the next page. It visits the selected tenants in
// slices.
type ranking struct {
	*pager
	limit int
	// guess is a view in which all heads are settled. It decides the state of a projection before its row is read.
	guess  *view
	heads  engine.Heads
	ranked []ranked // in order, at most limit
}

// ranked is a projection with its place in the order.
type ranked struct {
	engine.LagRow
	oldest engine.EventAge
	place  *cursor
}

// placed sets the place of a projection.
func (r ranked) placed(sort Sort) ranked {
	r.place = &cursor{Sort: sort, ID: r.ID}
	switch {
	case sort == SortByBehind:
		r.place.Key = &r.Behind
	case r.oldest != engine.EventAge{}: // the zero time is also that of an event of the year 1
		at := r.oldest.At.UnixMicro()
		r.place.Key = &at
	case r.Behind > 0: // the event could not be read
		at := int64(math.MaxInt64)
		r.place.Key = &at
	}
	return r
}

// compare orders places. Those without a key come last.
func (c *cursor) compare(other *cursor) int {
	switch a, b := c.Key, other.Key; {
	case a == nil && b == nil:
	case a == nil:
		return 1
	case b == nil:
		return -1
	case c.Sort == SortByBehind && *a != *b:
		return cmp.Compare(*b, *a)
	case *a != *b:
		return cmp.Compare(*a, *b)
	}
	return engine.CompareIDs(c.ID, other.ID)
}

// rank finds the projections of a sorted page. Each slice of tenants has a time-out of its own.
func (p *pager) rank(ctx context.Context) error {
	r := ranking{
		pager: p, limit: p.filter.Limit + 1, guess: newView(p.view.admin),
		heads: engine.Heads{Positions: make(map[string]int64), Failed: make(map[string]error)},
	}
	var tenants []string
	err := r.within(ctx, func(ctx context.Context) (err error) {
		if err := p.view.readNodes(ctx); err != nil {
			return err
		}
		tenants, err = p.tenantNames(ctx)
		return err
	})
	if err != nil {
		return err
	}
	r.guess.nodes, r.guess.lagging, r.guess.held, r.guess.standing = p.view.nodes, p.view.lagging, p.view.held,
		p.view.standing
	for slice := range slices.Chunk(tenants, tenantsAtOnce) {
		if err := r.within(ctx, func(ctx context.Context) error { return r.rankTenants(ctx, slice) }); err != nil {
			return err
		}
	}
	if len(r.ranked) == r.limit {
		r.ranked = r.ranked[:p.filter.Limit]
		p.next = r.ranked[p.filter.Limit-1].place
	}
	p.view.heads, p.ranked = &r.heads, r.ranked
	return nil
}

func (r *ranking) within(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.view.admin.timeout)
	defer cancel()
	return fn(ctx)
}

func (p *pager) tenantNames(ctx context.Context) (names []string, err error) {
	if len(p.filter.Tenants) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(p.filter.Tenants))), nil
	}
	tenants, err := p.view.admin.store.Tenants(ctx, nil)
	for _, t := range tenants {
		names = append(names, t.Name)
	}
	return names, err
}

// rankTenants adds the projections of some tenants.
func (r *ranking) rankTenants(ctx context.Context, tenants []string) error {
	store := r.view.admin.store
	heads, err := store.Heads(ctx, tenants)
	if err != nil {
		return err
	}
	if in := r.heads.Incarnation; in != 0 && heads.Incarnation != 0 && in != heads.Incarnation {
		return event.ErrIncarnationChanged
	}
	r.heads.Incarnation = cmp.Or(heads.Incarnation, r.heads.Incarnation)
	maps.Copy(r.heads.Positions, heads.Positions)
	maps.Copy(r.heads.Failed, heads.Failed)
	filter := engine.LagFilter{
		Heads: make(map[string]int64), Names: r.filter.Names, Owner: r.filter.Owner, Parked: r.filter.Parked,
	}
	r.guess.tenants = make(map[string]TenantStatus, len(tenants))
	for _, name := range tenants {
		end := r.guess.ended(name, heads)
		r.guess.tenants[name], filter.Heads[name] = end, end.Head
	}
	if len(r.filter.States) > 0 {
		filter.States, filter.Reported = rowStates(r.filter.States), r.guess.reported(r.filter.States)
		if deps := r.guess.deps; deps != nil {
			filter.Owned = deps.Node.ID
		}
	}
	if r.filter.Sort == SortByBehind {
		if r.from != nil {
			filter.After = &engine.LagRow{ID: r.from.ID, Behind: *r.from.Key}
		}
		return r.rankInOrder(ctx, filter)
	}
	return r.rankByLag(ctx, filter)
}

// rankByLag reads all rows of some tenants that are behind. The others come last, and are read if there is room for
// them.
func (r *ranking) rankByLag(ctx context.Context, filter engine.LagFilter) error {
	current := &engine.LagRow{}
	if r.from != nil && r.from.Key == nil {
		current.ID = r.from.ID
	} else {
		lagging := filter
		lagging.Limit, lagging.Least = rankedRows, 1
		for more := true; more; {
			list, last, err := r.rows(ctx, lagging)
			if err != nil {
				return err
			}
			if err := r.readOldest(ctx, list); err != nil {
				return err
			}
			r.add(list)
			lagging.After, more = last, last != nil
		}
	}
	if len(r.ranked) == r.limit && r.ranked[r.limit-1].Behind > 0 {
		return nil
	}
	filter.After = current
	return r.rankInOrder(ctx, filter)
}

// rankInOrder reads rows of some tenants in the order of the page, until no more of them can be on it.
func (r *ranking) rankInOrder(ctx context.Context, filter engine.LagFilter) error {
	filter.Limit = r.limit
	if len(filter.States) > 0 {
		filter.Limit = max(r.limit, rankedRows)
	}
	for selected := 0; selected < r.limit; {
		list, last, err := r.rows(ctx, filter)
		if err != nil {
			return err
		}
		r.add(list)
		if last == nil {
			return nil
		}
		selected, filter.After = selected+len(list), last
	}
	return nil
}

// ended is the end of a tenant's events if all of them are settled.
func (v *view) ended(name string, heads engine.Heads) TenantStatus {
	feed, head := v.feeds[name], heads.Positions[name]
	if err := heads.Failed[name]; err != nil {
		feed.Err, head = err, max(feed.Mark, v.held[name].Mark)
	}
	end := TenantStatus{Tenant: name, Head: head, Mark: head, Reason: text(feed.Err)}
	if h := v.held[name]; end.Reason == "" && h.Held == nil {
		end.Reason = h.Reason
	}
	return end
}

// rows returns those rows that the filter selects, and the last row that was read, nil if no more can be read.
func (r *ranking) rows(ctx context.Context, filter engine.LagFilter) (list []ranked, last *engine.LagRow, err error) {
	rows, err := r.view.admin.plane.Lags(ctx, filter)
	for _, row := range rows {
		if r.selects(row) {
			list = append(list, ranked{LagRow: row})
		}
	}
	if len(rows) == filter.Limit {
		last = &rows[len(rows)-1]
	}
	return list, last, err
}

// selects reports whether the filter selects a projection by its state, as far as that is known without its whole row.
func (r *ranking) selects(row engine.LagRow) bool {
	if len(r.filter.States) == 0 {
		return true
	}
	alive := State(row.State) != StateNotOwned
	s := r.guess.status(engine.ProjectionRow{
		ID: row.ID, State: row.State, Owner: row.Owner, OwnerAlive: alive, Checkpoint: row.Checkpoint,
	})
	return slices.Contains(r.filter.States, s.State)
}

func (r *ranking) readOldest(ctx context.Context, list []ranked) error {
	at := func(row ranked) engine.TenantPosition {
		return engine.TenantPosition{Tenant: row.ID.Tenant, Position: row.Checkpoint}
	}
	behind := make(map[engine.TenantPosition]bool)
	for _, row := range list {
		behind[at(row)] = true
	}
	ages, err := r.view.admin.store.Ages(ctx, slices.Collect(maps.Keys(behind)))
	for i, row := range list {
		list[i].oldest = ages[at(row)]
	}
	return err
}

// add adds those of the projections that can be on the page.
func (r *ranking) add(list []ranked) {
	for _, row := range list {
		row = row.placed(r.filter.Sort)
		if r.from == nil || r.from.compare(row.place) < 0 {
			r.ranked = append(r.ranked, row)
		}
	}
	slices.SortFunc(r.ranked, func(a, b ranked) int { return a.place.compare(b.place) })
	r.ranked = slices.Clip(r.ranked[:min(r.limit, len(r.ranked))])
}

// show reads the rows of the ranked projections. It leaves out those that are gone, or that have other states than they
// seemed to have.
func (p *pager) show(ctx context.Context) error {
	if len(p.ranked) == 0 {
		return nil
	}
	ids := make([]projection.ID, len(p.ranked))
	for i, r := range p.ranked {
		ids[i] = r.ID
	}
	rows, err := p.view.admin.plane.Projections(ctx, engine.ProjectionFilter{IDs: ids})
	if err != nil {
		return err
	}
	statuses, err := p.view.statuses(ctx, rows)
	if err != nil {
		return err
	}
	known := make(map[projection.ID]ProjectionStatus, len(statuses))
	for _, s := range statuses {
		known[s.ID] = s
	}
	for _, r := range p.ranked {
		s, found := known[r.ID]
		if found && (len(p.filter.States) == 0 || slices.Contains(p.filter.States, s.State)) {
			s.Behind = r.Behind
			if p.filter.Sort == SortByLag {
				s.Lag = r.oldest.Age
			}
			p.found = append(p.found, s)
		}
	}
	return nil
}
