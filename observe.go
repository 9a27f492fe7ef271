package millrace

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Status returns the state of the runtime and of the projections of its tenants.
func (r *Runtime) Status(ctx context.Context) (Status, error) {
	status, err := r.status(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	return status, nil
}

func (r *Runtime) status(ctx context.Context) (status Status, err error) {
	all, err := r.tenants(ctx)
	if err != nil {
		return status, err
	}
	tenants := make([]string, len(all))
	for i, t := range all {
		tenants[i] = t.Name
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.QueryTimeout)
	defer cancel()
	rows, err := r.store.Projections(ctx, tenants)
	if err != nil {
		return status, err
	}
	heads, err := r.store.Heads(ctx, tenants)
	if err != nil {
		return status, err
	}
	oldest, err := r.store.OldestSnapshot(ctx)
	if err != nil {
		return status, err
	}
	nodes, err := r.store.Nodes(ctx)
	if err != nil {
		return status, err
	}
	status.Nodes = nodesStatus(nodes)
	status.Abandoned, status.Pooled, status.OldestSnapshot = r.store.Abandoned(), r.store.Pooled(), SnapshotStatus(oldest)
	var local map[ProjectionID]actors.ProjectionEntry
	var feeds map[string]actors.FeedEntry
	if deps := r.running(); deps != nil {
		status.Node, status.Stuck = deps.Node.ID, int(deps.Registry.Stuck.Load())
		status.Session = sessionStatus(deps.Registry.Session())
		local, feeds = deps.Registry.All(), deps.Registry.Feeds()
	}
	for _, t := range all {
		s := r.tenantStatus(ctx, t.Name, feeds[t.Name], heads)
		s.State = t.State
		status.Tenants = append(status.Tenants, s)
	}
	for _, row := range rows {
		entry, here := local[row.ID]
		p := projectionStatus(row, heads.Positions[row.ID.Tenant], entry, here)
		if err := heads.Failed[row.ID.Tenant]; err != nil && p.State == StateLive {
			p.State, p.Reason = StateWaiting, err.Error()
		}
		if p.State == StateNotOwned {
			if !slices.ContainsFunc(nodes, func(n engine.NodeRow) bool { return n.Alive && n.Knows(row.ID.Tenant, row.ID.Name) }) {
				p.Reason = "no living node knows the projection"
			}
			if p.NotOwned > r.config.LeaseDuration {
				status.NotOwned++
			}
		}
		status.Projections = append(status.Projections, p)
	}
	return status, nil
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

func nodesStatus(rows []engine.NodeRow) []NodeStatus {
	nodes := make([]NodeStatus, len(rows))
	for i, n := range rows {
		nodes[i] = NodeStatus{ID: n.ID, Alive: n.Alive, Draining: n.Draining, Leases: n.Leases, Registered: n.Projections, Tenants: n.Tenants,
			Filters: make(map[string][]string), StartedAt: n.StartedAt, Silent: n.Silent}
		for name, filter := range n.Filters {
			nodes[i].Filters[name] = slices.Clone(filter.Entries())
		}
	}
	return nodes
}

func projectionStatus(row engine.ProjectionRow, head int64, entry actors.ProjectionEntry, here bool) ProjectionStatus {
	s := ProjectionStatus{
		ID: row.ID, Owner: row.Owner, Epoch: row.Epoch, Checkpoint: row.Checkpoint, Position: row.Checkpoint, Head: head,
		Parked: row.Parked, OldestParked: row.OldestParked, Skipped: row.Skipped, FailingPosition: row.FailingPosition, Attempts: row.Attempts,
		Applied: entry.Applied, Reason: row.LastError, Breaker: entry.Breaker,
	}
	if row.FailingPosition <= row.Checkpoint {
		// What failed last was handled or parked since.
		s.FailingPosition, s.Attempts, s.Reason = 0, 0, ""
	}
	failing := s.FailingPosition > 0
	if s.Attempts == 0 {
		s.FailingPosition = 0 // it waits there for what its handler depends on, and no event fails
	}
	switch {
	case here:
		s.State, s.Position = State(entry.Phase), max(entry.Position, row.Checkpoint)
		if entry.Reason != nil {
			s.Reason = entry.Reason.Error()
		}
	case !row.Desired.Runs():
		s.State = StatePaused
		if reason := asleep(row.Tenant); reason != "" {
			s.Reason = reason
		}
	case row.Halted:
		s.State, s.Reason, s.NotOwned = StateFailed, row.Failed, row.NotOwned
	case !row.OwnerAlive:
		s.State, s.NotOwned = StateNotOwned, row.NotOwned
	case row.Failed != "":
		s.State, s.Reason = StateFailed, row.Failed
	case failing && row.MissingObject:
		s.State = StateMissingObject
	case failing:
		s.State = StateWaiting
	default:
		s.State = StateElsewhere
	}
	s.Behind = max(0, head-s.Position)
	return s
}

// asleep returns why the projections of a tenant in that state do not run, or nothing if they do.
func asleep(state projection.TenantState) string {
	switch state {
	case projection.TenantPaused:
		return "the tenant is paused"
	case projection.TenantArchived:
		return projection.ErrTenantArchived.Error()
	case projection.TenantDropping:
		return projection.ErrTenantDropping.Error()
	}
	return ""
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

// withoutSession says what a session connection through a pooler in transaction mode cannot do.
const withoutSession = "the session connection goes through a pooler in transaction mode: new events and free leases are found by polling, " +
	"and the death of a node is noticed by its heartbeat alone; set pgstore.Options.SessionDSN to an address that bypasses the pooler"

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
