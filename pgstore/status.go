package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Projections(ctx context.Context, filter engine.ProjectionFilter) ([]engine.ProjectionRow, error) {
	list, err := queryPlanned(ctx, s.Store, func(row pgx.CollectableRow) (p engine.ProjectionRow, err error) {
		var notOwned, rebuilt float64
		o := &p.Operation
		err = row.Scan(&p.ID.Tenant, &p.ID.Name, &p.ID.Partition, &p.Partitions, &p.State, &p.Desired, &p.Tenant, &p.Failed, &p.Halted, &p.Skipped, &p.FailingPosition,
			&p.Attempts, &p.LastError, orZero{&p.LastErrorAt}, orZero{&p.NextAttempt}, &p.Owner, &p.OwnerName, &p.Epoch, &p.Checkpoint, &p.Parked, orZero{&p.OldestParked}, &p.OwnerAlive, &notOwned,
			orZero{&p.RebuildSince}, &rebuilt, &p.RebuildFrom, &p.RebuildTo, &o.Number, &o.Kind, &o.Node, orZero{&o.RequestedAt}, orZero{&o.StartedAt}, &o.Error, &p.Held)
		p.RebuildFor = seconds(rebuilt)
		if !p.OwnerAlive {
			p.NotOwned = seconds(notOwned)
		}
		return p, err
	}, "projections", projectionFilterArgs(filter)...)
	return list, failed(s.missing(err), "list projections")
}

// projectionFilterArgs returns the arguments of the statement projections, in which null means any.
func projectionFilterArgs(f engine.ProjectionFilter) []any {
	var tenants, names []string
	var partitions []int
	for _, id := range f.IDs {
		tenants, names, partitions = append(tenants, id.Tenant), append(names, id.Name), append(partitions, id.Partition)
	}
	args := []any{anyOf(f.Tenants), anyOf(f.Names), tenants, names, partitions, anyOf(f.States), store.OrNull(f.Owner), store.OrNull(f.NotOwner), f.Parked, nil, nil, nil, store.OrNull(f.Limit)}
	if f.After != (projection.ID{}) {
		args[9], args[10], args[11] = f.After.Tenant, f.After.Name, f.After.Partition
	}
	return args
}

// anyOf returns items, or null if there are none.
func anyOf(items []string) any {
	if len(items) == 0 {
		return nil
	}
	return items
}

func (s port) Nodes(ctx context.Context) ([]engine.NodeRow, error) {
	rows, _ := s.pool.Query(ctx, s.control.sql("nodes"))
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n engine.NodeRow, err error) {
		var silent float64
		var summary []byte
		var filtered, filters []string
		err = row.Scan(&n.ID, &n.Name, &n.Alive, &n.Draining, &n.Projections, &n.Tenants, &filtered, &filters, &n.StartedAt, &n.HeartbeatAt, &silent, &n.Leases, &summary)
		n.Filters, n.Silent, n.Summary = engine.FiltersOf(filtered, filters), seconds(silent), engine.DecodeSummary(summary)
		return n, err
	})
	return list, failed(s.missing(err), "list nodes")
}

func (s port) Overview(ctx context.Context, patience time.Duration, byTenant []string) (engine.Overview, error) {
	found, err := queryPlanned(ctx, s.Store, func(row pgx.CollectableRow) (o engine.Overview, err error) {
		in := &o.OldestParkedIn
		var states []projection.TenantState
		var counts, notOwned, overdue []int
		var names, tenants []string
		err = row.Scan(&states, &counts, &o.Paused, &o.Halted, &names, &tenants, &notOwned, &overdue, &o.Parked, orZero{&o.OldestParked}, &in.Tenant, &in.Name, &in.Partition)
		o.Tenants = make(map[projection.TenantState]int)
		for i, state := range states {
			o.Tenants[state] = counts[i]
		}
		for i, name := range names {
			o.NotOwned = append(o.NotOwned, engine.NotOwned{Name: name, Tenant: tenants[i], Count: notOwned[i], Overdue: overdue[i]})
		}
		return o, err
	}, "overview", patience.Seconds(), nonNil(byTenant))
	if err != nil {
		return engine.Overview{}, failed(s.missing(err), "read the overview")
	}
	return found[0], nil
}

// OldestSnapshot implements engine.Lists. It leaves out its own session.
func (s port) OldestSnapshot(ctx context.Context) (snapshot engine.Snapshot, err error) {
	var age float64
	err = s.pool.QueryRow(ctx, s.control.sql("oldest_snapshot"), pgx.QueryExecModeExec).Scan(&snapshot.PID, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return engine.Snapshot{}, nil
	}
	snapshot.Age = seconds(age)
	return snapshot, failed(err, "find the oldest snapshot")
}
