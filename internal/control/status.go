package control

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Projections lists the rows that a filter selects, sorted. It reads no tenant's tables.
func (p Reads) Projections(ctx context.Context, filter engine.ProjectionFilter) (found []engine.ProjectionRow,
	err error) {
	err = p.db.View(ctx, func(v store.View) error {
		found = nil
		var r engine.ProjectionRow
		o := &r.Operation
		row := []any{&r.ID.Tenant, &r.ID.Name, &r.ID.Partition, &r.Partitions, &r.State, &r.Desired, &r.Tenant,
			&r.Failed, &r.Halted, &r.Skipped,
			&r.FailingPosition, &r.Attempts, &r.LastError, &r.LastErrorAt, &r.NextAttempt, &r.Owner, &r.OwnerName,
			&r.Epoch, &r.Checkpoint,
			&r.Parked, &r.OldestParked, &r.OwnerAlive, &r.NotOwned, &r.RebuildSince, &r.RebuildFor, &r.RebuildFrom,
			&r.RebuildTo,
			&o.Number, &o.Kind, &o.Node, &o.RequestedAt, &o.StartedAt, &o.Error, &r.Held}
		return v.Each("projections", ProjectionArgs(filter), row, func() error {
			r.NotOwned = max(0, r.NotOwned)
			if r.OwnerAlive {
				r.NotOwned = 0
			}
			r.RebuildFor = max(0, r.RebuildFor)
			found = append(found, r)
			return nil
		})
	})
	return found, p.wrap(err, "list projections")
}

// ProjectionArgs returns the arguments of the statement projections, in which null means any. The first page begins
// after a name that sorts before all others.
func ProjectionArgs(f engine.ProjectionFilter) []any {
	tenants := f.Tenants
	var ids []string
	for _, id := range f.IDs {
		ids = append(ids, jsonArray([]any{id.Tenant, id.Name, id.Partition}))
		if len(f.Tenants) == 0 {
			tenants = append(tenants, id.Tenant) // the projections of other tenants are not read
		}
	}
	after := projection.ID{Partition: -1}
	if f.After != (projection.ID{}) {
		after = f.After
	}
	return []any{orAny(tenants), orAny(f.Names), ids, orAny(f.States), store.OrNull(f.Owner), store.OrNull(f.NotOwner),
		f.Parked,
		after.Tenant, after.Name, after.Partition, store.OrNull(f.Limit)}
}

// Lags lists the rows that a filter selects, those furthest behind first. It reads no tenant's tables.
func (p Reads) Lags(ctx context.Context, filter engine.LagFilter) (found []engine.LagRow, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		found = nil
		var r engine.LagRow
		row := []any{&r.ID.Tenant, &r.ID.Name, &r.ID.Partition, &r.Checkpoint, &r.Behind, &r.State, &r.Owner}
		return v.Each("lags", LagArgs(filter), row, func() error {
			found = append(found, r)
			return nil
		})
	})
	return found, p.wrap(err, "list lags")
}

// LagArgs returns the arguments of the statement lags, in which null means any.
func LagArgs(f engine.LagFilter) []any {
	type head struct {
		Tenant string `json:"tenant"`
		Head   int64  `json:"head"`
	}
	heads := make([]head, 0, len(f.Heads))
	for _, tenant := range slices.Sorted(maps.Keys(f.Heads)) {
		heads = append(heads, head{tenant, f.Heads[tenant]})
	}
	var behind any
	var after projection.ID
	if f.After != nil {
		behind, after = f.After.Behind, f.After.ID
	}
	return []any{jsonArray(heads), orAny(f.Names), orAny(f.States), store.OrNull(f.Owner), store.OrNull(f.Owned),
		jsonArray(append([]projection.ID{}, f.Reported...)), f.Parked,
		behind, after.Tenant, after.Name, after.Partition, f.Limit, f.Least}
}

// orAny returns items, or null if there are none.
func orAny(items []string) []string {
	if len(items) == 0 {
		return nil
	}
	return items
}

// Nodes lists the rows of the nodes, the oldest first. Nodes of a file that stand by have no row.
func (p Reads) Nodes(ctx context.Context) (nodes []engine.NodeRow, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		nodes = nil
		var n engine.NodeRow
		var filtered, filters []string
		var summary []byte
		row := []any{&n.ID, &n.Name, &n.Alive, &n.Draining, &n.Projections, &n.Tenants, &filtered, &filters,
			&n.StartedAt, &n.HeartbeatAt,
			&n.Silent, &n.Leases, &summary}
		return v.Each("nodes", nil, row, func() error {
			n.Filters, n.Summary = engine.FiltersOf(filtered, filters), engine.DecodeSummary(summary)
			nodes = append(nodes, n)
			return nil
		})
	})
	return nodes, p.wrap(err, "list nodes")
}

// Overview returns the figures that no node counts. patience is how long a projection may have no living owner. Those
// of the names in byTenant are counted for each tenant. It reads no tenant's tables.
func (p Reads) Overview(ctx context.Context, patience time.Duration, byTenant []string) (o engine.Overview, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		o = engine.Overview{Tenants: make(map[tenancy.State]int)}
		in := &o.OldestParkedIn
		var states, names, tenants []string
		var ofStates, notOwned, overdue []int64
		_, err := v.One("overview", []any{patience, byTenant}, &states, &ofStates, &o.Paused, &o.Halted, &names,
			&tenants, &notOwned, &overdue,
			&o.Parked, &o.OldestParked, &in.Tenant, &in.Name, &in.Partition)
		for i, state := range states {
			o.Tenants[tenancy.State(state)] = int(ofStates[i])
		}
		for i, name := range names {
			o.NotOwned = append(o.NotOwned, engine.NotOwned{Name: name,
				Tenant: tenants[i], Count: int(notOwned[i]), Overdue: int(overdue[i])})
		}
		return err
	})
	if err != nil {
		return engine.Overview{}, p.wrap(err, "read the overview")
	}
	return o, nil
}
