package millrace

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
)

// Summary returns the state of the whole deployment. It reads no tenant's tables, and sends the same few statements however many
// tenants and projections there are. For single projections use Status.
func (r *Runtime) Summary(ctx context.Context) (Summary, error) {
	summary, err := r.summary(ctx)
	if err != nil {
		return Summary{}, fmt.Errorf("summary: %w", err)
	}
	return summary, nil
}

func (r *Runtime) summary(ctx context.Context) (s Summary, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.QueryTimeout)
	defer cancel()
	overview, err := r.store.Overview(ctx, r.config.LeaseDuration)
	if err != nil {
		return s, err
	}
	nodes, err := r.store.Nodes(ctx)
	if err != nil {
		return s, err
	}
	oldest, err := r.store.OldestSnapshot(ctx)
	if err != nil {
		return s, err
	}
	s = Summary{
		Abandoned: r.store.Abandoned(), OldestSnapshot: oldest.Age, OldestSnapshotPID: oldest.PID, Tenants: overview.Tenants,
		States: make(map[State]int), NotOwned: overview.Overdue, Parked: overview.Parked, OldestParked: overview.OldestParked,
		OldestParkedIn: overview.OldestParkedIn,
	}
	s.count(StatePaused, overview.Paused)
	s.count(StateFailed, overview.Halted)
	s.count(StateNotOwned, overview.NotOwned)
	if deps := r.running(); deps != nil {
		s.Node, s.Stuck, s.Session = deps.Node.ID, int(deps.Registry.Stuck.Load()), sessionStatus(deps.Registry.Session())
		s.Session.StorePooled = r.store.Pooled()
		for i := range nodes {
			if nodes[i].ID == s.Node {
				nodes[i].Summary = deps.Registry.Summary() // newer than the row's
			}
		}
	}
	return s, s.add(ctx, r.store, nodes)
}

func (s *Summary) count(state State, n int) {
	if n > 0 {
		s.States[state] += n
	}
}

// add adds the nodes, and the summaries of the living ones.
func (s *Summary) add(ctx context.Context, store engine.Store, nodes []engine.NodeRow) error {
	var lagging []engine.LaggingProjection
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
		}
	}
	for _, h := range engine.LongestHeld(held) {
		t := TenantStatus{Tenant: h.Tenant, Head: h.Mark, Mark: h.Mark, Held: (*HeldMark)(h.Held), Reason: h.Reason}
		if h.Held != nil {
			t.Head = h.Held.Below
		}
		s.Held = append(s.Held, t)
	}
	slices.SortStableFunc(lagging, func(a, b engine.LaggingProjection) int { return cmp.Compare(b.Behind(), a.Behind()) })
	return s.addLagging(ctx, store, lagging[:min(engine.MaxSummarized, len(lagging))])
}

// addLagging adds lagging projections, from the summaries of their nodes and from their rows.
func (s *Summary) addLagging(ctx context.Context, store engine.Store, lagging []engine.LaggingProjection) error {
	filter := engine.ProjectionFilter{IDs: make([]ProjectionID, len(lagging))}
	for i, l := range lagging {
		filter.IDs[i] = l.ID
	}
	if len(lagging) == 0 {
		return nil
	}
	rows, err := store.Projections(ctx, filter)
	if err != nil {
		return err
	}
	for _, l := range lagging {
		at := slices.IndexFunc(rows, func(row engine.ProjectionRow) bool { return row.ID == l.ID })
		if at < 0 {
			continue // it is gone
		}
		p := projectionStatus(rows[at], actors.ProjectionEntry{}, false)
		p.State, p.Position, p.Head = State(l.State), max(l.Position, p.Checkpoint), l.Mark
		p.Behind = max(0, p.Head-p.Position)
		if l.Reason != "" {
			p.Reason = l.Reason
		}
		s.Lagging = append(s.Lagging, p)
	}
	return nil
}

func nodeStatus(n engine.NodeRow) NodeStatus {
	s := NodeStatus{ID: n.ID, Alive: n.Alive, Draining: n.Draining, Leases: n.Leases, Registered: n.Projections, Tenants: n.Tenants,
		Filters: make(map[string][]string), StartedAt: n.StartedAt, Silent: n.Silent}
	for name, filter := range n.Filters {
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
	s := SessionStatus{Connected: e.Connected, Pooled: e.Connected && e.Pooled, Since: e.Since, HeartbeatSent: e.HeartbeatSent, Reason: text(e.Err)}
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
