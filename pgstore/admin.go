package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Projections lists the projections of these tenants as the database knows them, sorted.
func (s port) Projections(ctx context.Context, tenants []string) ([]engine.ProjectionRow, error) {
	list, err := queryUncompiled(ctx, s.pool, func(row pgx.CollectableRow) (p engine.ProjectionRow, err error) {
		var oldest *time.Time
		var notOwned float64
		err = row.Scan(&p.ID.Tenant, &p.ID.Name, &p.ID.Partition, &p.Wanted, &p.Failed, &p.Halted, &p.Skipped, &p.FailingPosition, &p.Attempts, &p.MissingObject, &p.LastError,
			&p.Owner, &p.Epoch, &p.Checkpoint, &p.Parked, &oldest, &p.OwnerAlive, &notOwned)
		if !p.OwnerAlive {
			p.NotOwned = seconds(notOwned)
		}
		if oldest != nil {
			p.OldestParked = *oldest
		}
		return p, err
	}, s.control.sql("status"), tenants)
	return list, failed(err, "list projections")
}

// SetWanted says whether a projection is wanted to run, to pause or to stop, and tells its owner, wherever it is. To run
// clears its failure; if it had stopped at an event, the attempts at that event are counted anew. It returns ErrUnknownTenant
// or ErrUnknownProjection where there is none of that name.
func (s port) SetWanted(ctx context.Context, id projection.ID, wanted engine.DesiredState) error {
	id = engine.FullID(id)
	return s.durable(ctx, fmt.Sprintf("set the wanted state of %s", id), func(tx pgx.Tx) error {
		done, err := execOne(ctx, tx, s.control.sql("set_wanted"), id.Tenant, id.Name, id.Partition, wanted, s.control.controlChannel)
		if err == nil && !done {
			if err = s.unknown(ctx, tx, id); err == nil {
				err = projection.ErrUnknownProjection // it was made just now
			}
		}
		return err
	})
}

// unknown returns projection.ErrUnknownTenant or projection.ErrUnknownProjection where there is no such projection.
func (s *Store) unknown(ctx context.Context, q rowQuerier, id projection.ID) error {
	var tenant, found bool
	err := q.QueryRow(ctx, s.control.sql("known"), pgx.QueryExecModeExec, id.Tenant, id.Name, id.Partition).Scan(&tenant, &found)
	switch {
	case err != nil:
		return s.missing(err)
	case !tenant:
		return projection.ErrUnknownTenant
	case !found:
		return projection.ErrUnknownProjection
	}
	return nil
}

// Wanted tells of which of these leases' projections more is wanted than that they run.
func (s port) Wanted(ctx context.Context, rows []int32) (map[int32]engine.Orders, error) {
	found, _ := s.pool.Query(ctx, s.control.sql("wanted"), rows)
	states := make(map[int32]engine.Orders)
	var row int32
	var demand engine.Orders
	_, err := pgx.ForEachRow(found, []any{&row, &demand.Desired, &demand.HasCommands}, func() error {
		states[row] = demand
		return nil
	})
	return states, failed(err, "read wanted states")
}

// Nodes lists the nodes as the database knows them, the oldest first.
func (s port) Nodes(ctx context.Context) ([]engine.NodeRow, error) {
	rows, _ := s.pool.Query(ctx, s.control.sql("nodes"))
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n engine.NodeRow, err error) {
		var silent float64
		err = row.Scan(&n.ID, &n.Alive, &n.Leaving, &n.Projections, &n.Tenants, &n.StartedAt, &n.HeartbeatAt, &silent, &n.Leases)
		n.Silent = seconds(silent)
		return n, err
	})
	return list, failed(err, "list nodes")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Abandoned counts the handlers that did not return when they were cancelled and were left to themselves.
func (s port) Abandoned() int64 { return s.abandoned.Load() }
