package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Summary returns the state of the whole deployment. It reads no tenant's tables, and sends the same few statements
// however many tenants and projections there are. For single projections use Status.
func (a *Admin) Summary(ctx context.Context) (Summary, error) {
	summary, err := a.summary(ctx)
	if err != nil {
		return Summary{}, fmt.Errorf("summary: %w", err)
	}
	return summary, nil
}

func (a *Admin) summary(ctx context.Context) (s Summary, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	s, nodes, err := a.overview(ctx)
	if err != nil {
		return s, err
	}
	oldest, err := a.store.OldestSnapshot(ctx)
	if err != nil {
		return s, err
	}
	s.At, s.Abandoned, s.OldestSnapshot, s.OldestSnapshotPID = time.Now().UTC(), a.store.Abandoned(), oldest.Age,
		oldest.PID
	s.Nodes, s.Held = make([]NodeStatus, 0, len(nodes)), make([]TenantStatus, 0)
	s.Standing = make([]Standstill, 0)
	s.Lagging, s.LaggingTenants = make([]ProjectionStatus, 0), make([]TenantLag, 0)
	if deps := a.waiter.Running(); deps != nil {
		s.Node, s.Stuck, s.Session = deps.Node.ID, int(deps.Registry.Stuck.Load()),
			sessionStatus(deps.Registry.Session())
		s.Session.StorePooled = a.store.Pooled()
		for i := range nodes {
			if nodes[i].ID == s.Node {
				nodes[i].Summary = deps.Registry.Summary() // newer than the row's
			}
		}
	}
	return s, s.add(ctx, a.plane, nodes)
}

// overview returns the figures of a Summary that no node counts, and the nodes.
func (a *Admin) overview(ctx context.Context) (s Summary, nodes []engine.NodeRow, err error) {
	nodes, err = a.plane.Nodes(ctx)
	if err != nil {
		return s, nil, err
	}
	o, err := a.plane.Overview(ctx, a.patience, registeredForSome(nodes))
	if err != nil {
		return s, nil, err
	}
	s = Summary{
		Tenants: o.Tenants, States: make(map[State]int), Parked: o.Parked, OldestParked: o.OldestParked.UTC(),
		OldestParkedIn: o.OldestParkedIn,
	}
	s.count(StatePaused, o.Paused)
	s.count(StateFailed, o.Halted)
	s.countNotOwned(nodes, o.NotOwned)
	return s, nodes, nil
}

func (s *Summary) count(state State, n int) {
	if n > 0 {
		s.States[state] += n
	}
}

// countNotOwned counts the projections without a living owner.
func (s *Summary) countNotOwned(nodes []engine.NodeRow, counts []engine.NotOwned) {
	for _, c := range counts {
		if registrationOf(nodes, projection.ID{Tenant: c.Tenant, Name: c.Name}).unregistered() {
			s.count(StateUnregistered, c.Count)
			continue
		}
		s.count(StateNotOwned, c.Count)
		s.NotOwned += c.Overdue
	}
	s.Unregistered = s.States[StateUnregistered]
}

// add adds the nodes, and the summaries of the living ones.
func (s *Summary) add(ctx context.Context, plane control.Plane, nodes []engine.NodeRow) error {
	var lagging []engine.LaggingProjection
	var tenants []engine.LaggingTenant
	var held []engine.HeldTenant
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, nodeStatus(n))
		switch {
		case !n.Alive:
		case n.Summary == nil:
			s.count(StateElsewhere, n.Leases)
		default:
			for state, count := range n.Summary.States {
				s.count(State(state), count)
			}
			lagging, held = append(lagging, n.Summary.Lagging...), append(held, n.Summary.Held...)
			tenants = append(tenants, n.Summary.LaggingTenants...)
			s.StandingCount += n.Summary.StandingCount
			for _, p := range n.Summary.Standing {
				s.Standing = append(s.Standing, Standstill{ID: p.ID, Since: p.Since.UTC(), Reason: p.Reason})
			}
		}
	}
	for _, h := range engine.LongestHeld(held) {
		s.Held = append(s.Held, heldTenant(h))
	}
	slices.SortStableFunc(s.Standing, func(a, b Standstill) int { return a.Since.Compare(b.Since) })
	s.addLaggingTenants(tenants)
	s.addHours(nodes)
	slices.SortStableFunc(lagging, func(a,
		b engine.LaggingProjection) int {
		return cmp.Compare(b.Behind(), a.Behind())
	})
	return s.addLagging(ctx, plane, lagging[:min(engine.MaxSummarized, len(lagging))])
}

// addLaggingTenants adds the tenants that are furthest behind, each once.
func (s *Summary) addLaggingTenants(reported []engine.LaggingTenant) {
	slices.SortStableFunc(reported, func(a, b engine.LaggingTenant) int { return cmp.Compare(b.Behind(), a.Behind()) })
	at := make(map[string]int)
	for _, l := range reported {
		i, seen := at[l.Worst.Tenant]
		if !seen {
			i = len(s.LaggingTenants)
			at[l.Worst.Tenant] = i
			s.LaggingTenants = append(s.LaggingTenants,
				TenantLag{Tenant: l.Worst.Tenant, Behind: l.Behind(), Worst: l.Worst})
		}
		s.LaggingTenants[i].Lagging += l.Lagging
	}
	s.LaggingTenants = s.LaggingTenants[:min(engine.MaxSummarized, len(s.LaggingTenants))]
}

// addLagging adds lagging projections, from the summaries of their nodes and from their rows.
func (s *Summary) addLagging(ctx context.Context, plane control.Plane, lagging []engine.LaggingProjection) error {
	filter := engine.ProjectionFilter{IDs: make([]projection.ID, len(lagging))}
	for i, l := range lagging {
		filter.IDs[i] = l.ID
	}
	if len(lagging) == 0 {
		return nil
	}
	rows, err := plane.Projections(ctx, filter)
	if err != nil {
		return err
	}
	for _, l := range lagging {
		at := slices.IndexFunc(rows, func(row engine.ProjectionRow) bool { return row.ID == l.ID })
		if at < 0 {
			continue // it is gone
		}
		p := projectionStatus(rows[at], actors.ProjectionEntry{}, false)
		p.State, p.Position, p.Mark, p.Head, p.Rate = State(l.State), max(l.Position, p.Checkpoint), l.Mark, l.Mark,
			l.Rate
		p.Behind = max(0, p.Head-p.Position)
		if l.Reason != "" {
			p.Reason = l.Reason
		}
		s.Lagging = append(s.Lagging, p)
	}
	return nil
}

func nodeStatus(n engine.NodeRow) NodeStatus {
	s := NodeStatus{ID: n.ID, Name: n.Name, Alive: n.Alive, Draining: n.Draining, Leases: n.Leases,
		Registered: n.Projections,
		StartedAt:  n.StartedAt.UTC(), Silent: n.Silent}
	if len(n.Tenants) > 0 {
		s.Tenants = n.Tenants
	}
	for name, filter := range n.Filters {
		if s.Filters == nil {
			s.Filters = make(map[string][]string)
		}
		s.Filters[name] = slices.Clone(filter.Entries())
	}
	if n.Alive && n.Summary != nil {
		s.States = make(map[State]int)
		for state, count := range n.Summary.States {
			s.States[State(state)] = count
		}
	}
	return s
}

func sessionStatus(e actors.SessionEntry) SessionStatus {
	s := SessionStatus{
		Connected: e.Connected, Pooled: e.Connected && e.Pooled, Since: e.Since.UTC(),
		HeartbeatSent: e.HeartbeatSent.UTC(), Reason: text(e.Err),
	}
	if e.Connected {
		s.Reason = text(e.ClaimErr)
	}
	if s.Pooled && s.Reason == "" {
		s.Reason = withoutSession
	}
	return s
}

// withoutSession is the reason reported for a session connection through a pooler in transaction mode.
const withoutSession = "the session connection goes through a pooler in transaction mode: new events and free leases are found by polling, " +
	"and the death of a node is noticed by its heartbeat alone; set pgstore.Options.SessionDSN to an address that bypasses the pooler"
