package sqlitestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Projections(ctx context.Context, filter engine.ProjectionFilter) (found []engine.ProjectionRow, err error) {
	living, seen, err := s.lastOwner(ctx, s.readers)
	if err != nil {
		return nil, failed(err, "list projections")
	}
	now := time.Now()
	var p engine.ProjectionRow
	var since time.Time
	o := &p.Operation
	results := []any{&p.ID.Tenant, &p.ID.Name, &p.ID.Partition, &p.Partitions, &p.State, &p.Desired, &p.Tenant, &p.Failed, &p.Halted, &p.Skipped,
		&p.FailingPosition, &p.Attempts, &p.LastError, micros{&p.LastErrorAt}, micros{&p.NextAttempt}, &p.Owner, &p.OwnerName, &p.Epoch, &p.Checkpoint, &p.Parked, micros{&p.OldestParked}, &p.OwnerAlive, micros{&since},
		micros{&p.RebuildSince}, &p.RebuildFrom, &p.RebuildTo, &o.Number, &o.Kind, &o.Node, micros{&o.RequestedAt}, micros{&o.StartedAt}, &o.Error, &p.Held}
	err = each(ctx, s.readers, "projections", append(projectionFilterArgs(filter), living, seen.UnixMicro()), results, func() error {
		row := p
		if !row.RebuildSince.IsZero() {
			row.RebuildFor = max(0, now.Sub(row.RebuildSince))
		}
		if !row.OwnerAlive && !since.IsZero() {
			row.NotOwned = max(0, now.Sub(since))
		}
		found = append(found, row)
		return nil
	})
	return found, failed(s.missing(ctx, err), "list projections")
}

// projectionFilterArgs returns the first arguments of the statement projections.
func projectionFilterArgs(f engine.ProjectionFilter) []any {
	after := []any{"", "", -1}
	if f.After != (projection.ID{}) {
		after = []any{f.After.Tenant, f.After.Name, f.After.Partition}
	}
	tenants := f.Tenants
	var ids any
	if len(f.IDs) > 0 {
		rows := make([][]any, len(f.IDs))
		ofIDs := make([]string, len(f.IDs))
		for i, id := range f.IDs {
			rows[i], ofIDs[i] = []any{id.Tenant, id.Name, id.Partition}, id.Tenant
		}
		ids = list(rows)
		if len(tenants) == 0 {
			tenants = ofIDs // the projections of other tenants are not read
		}
	}
	limit := f.Limit
	if limit == 0 {
		limit = -1
	}
	args := []any{anyOf(tenants), anyOf(f.Names), ids, anyOf(f.States), store.OrNull(f.Owner), store.OrNull(f.NotOwner), f.Parked}
	return append(append(args, after...), limit)
}

// anyOf returns items as a JSON array, or null if there are none.
func anyOf(items []string) any {
	if len(items) == 0 {
		return nil
	}
	return list(items)
}

// missing returns ErrNotMigrated if err is about a file without tables. Other errors are returned unchanged.
func (s *Store) missing(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if not := s.ready(ctx); errors.Is(not, ErrNotMigrated) {
		return not
	}
	return err
}

// Nodes implements engine.Lists. Nodes that stand by have no row.
func (s port) Nodes(ctx context.Context) (nodes []engine.NodeRow, err error) {
	living, seen, err := s.lastOwner(ctx, s.readers)
	if err != nil {
		return nil, failed(s.missing(ctx, err), "list nodes")
	}
	var n engine.NodeRow
	var projections, tenants, filters, summary []byte
	results := []any{&n.ID, &n.Name, &n.Draining, &projections, &tenants, &filters, micros{&n.StartedAt}, &n.Leases, &summary}
	err = each(ctx, s.readers, "nodes", nil, results, func() error {
		row := n
		row.Alive, row.HeartbeatAt, row.Silent = n.ID == living, seen, max(0, time.Since(seen))
		var entries map[string][]string
		if err := errors.Join(json.Unmarshal(projections, &row.Projections), json.Unmarshal(tenants, &row.Tenants), json.Unmarshal(filters, &entries)); err != nil {
			return fmt.Errorf("node %s: %w", n.ID, err)
		}
		row.Filters, row.Summary = filtersFrom(entries), engine.DecodeSummary(summary)
		nodes = append(nodes, row)
		return nil
	})
	return nodes, failed(s.missing(ctx, err), "list nodes")
}

// filterEntries returns the entries of filters, as the column filters of nodes has them.
func filterEntries(filters map[string]engine.TenantFilter) map[string][]string {
	entries := make(map[string][]string, len(filters))
	for name, filter := range filters {
		entries[name] = filter.Entries()
	}
	return entries
}

// filtersFrom returns the filters with these entries. It returns nil if there are none.
func filtersFrom(entries map[string][]string) map[string]engine.TenantFilter {
	var filters map[string]engine.TenantFilter
	for name, of := range entries {
		if filters == nil {
			filters = make(map[string]engine.TenantFilter)
		}
		filters[name] = engine.NewTenantFilter(of)
	}
	return filters
}

func (s port) Overview(ctx context.Context, patience time.Duration, byTenant []string) (o engine.Overview, err error) {
	living, seen, err := s.lastOwner(ctx, s.readers)
	if err == nil {
		in := &o.OldestParkedIn
		_, err = runOne(ctx, s.readers, "overview", []any{living}, &o.Paused, &o.Halted, &o.Parked, micros{&o.OldestParked}, &in.Tenant, &in.Name, &in.Partition)
	}
	if err == nil {
		var n engine.NotOwned
		args := []any{living, seen.UnixMicro(), time.Now().Add(-patience).UnixMicro(), list(byTenant)}
		err = each(ctx, s.readers, "not_owned", args, []any{&n.Name, &n.Tenant, &n.Count, &n.Overdue}, func() error {
			o.NotOwned = append(o.NotOwned, n)
			return nil
		})
	}
	if err == nil {
		o.Tenants = make(map[projection.TenantState]int)
		var state projection.TenantState
		var n int
		err = each(ctx, s.readers, "count_tenants", nil, []any{&state, &n}, func() error {
			o.Tenants[state] = n
			return nil
		})
	}
	if err != nil {
		return engine.Overview{}, failed(s.missing(ctx, err), "read the overview")
	}
	return o, nil
}

// OldestSnapshot implements engine.Lists. A file has no list of its transactions.
func (s port) OldestSnapshot(context.Context) (engine.Snapshot, error) {
	return engine.Snapshot{}, nil
}
