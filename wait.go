package millrace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/tenancy"
	"github.com/millrace-go/millrace/projection"
)

// Pause stops a projection, with all its partitions and on whatever nodes it runs, until it is resumed. Pause returns when nothing of the projection runs any
// more: its node has finished the batch in progress and released the lease. The lease of a dead node is taken away. A pause
// outlives restarts.
//
// If ctx ends first, Pause returns ctx's error, and the projection is paused nevertheless. If the projection is resumed first,
// Pause returns projection.ErrResumed. A handler must not pause its own projection, since Pause would wait for the handler.
func (r *Runtime) Pause(ctx context.Context, id ProjectionID) error {
	if err := whole(id); err != nil {
		return fmt.Errorf("pause %s: %w", engine.FullID(id), err)
	}
	if err := r.setDesiredState(ctx, id, engine.WantPause); err != nil {
		return err
	}
	if err := tenancy.Stopped(ctx, r.store, func() (free bool, err error) { return r.store.PauseEnded(ctx, id) }); err != nil {
		return fmt.Errorf("wait for the pause of %s: %w", engine.FullID(id), err)
	}
	return nil
}

// whole returns an error if id names a partition.
func whole(id ProjectionID) error {
	if id.Partition != 0 {
		return fmt.Errorf("ProjectionID.Partition must be 0, since partitions run and pause together: %d", id.Partition)
	}
	return nil
}

func (r *Runtime) setDesiredState(ctx context.Context, id ProjectionID, desired engine.DesiredState) error {
	return r.existing(ctx, id, func() error { return r.store.SetDesiredState(ctx, engine.FullID(id), desired) })
}

// existing calls change. If this runtime knows the projection, but its rows do not exist yet since the tenant is new, existing
// inserts them and calls change again.
func (r *Runtime) existing(ctx context.Context, id ProjectionID, change func() error) error {
	id = engine.FullID(id)
	err := change()
	if !errors.Is(err, projection.ErrUnknownProjection) || !r.knows(id) {
		return err
	}
	missing := engine.NewProjection{Tenant: id.Tenant, Name: id.Name, Partitions: r.definitions[id.Name].Partitions}
	if err := r.store.Ensure(ctx, []engine.NewProjection{missing}); err != nil {
		return err
	}
	if err := r.awake(ctx, id.Tenant); err != nil {
		return err // its rows were not made
	}
	return change()
}

// Resume ends a pause: a node claims the lease, and the projection continues. A projection that waits, for its next attempt or for
// a repair, tries at once. A projection that stopped at an event tries that event again, and its attempts are counted anew.
func (r *Runtime) Resume(ctx context.Context, id ProjectionID) error {
	if err := whole(id); err != nil {
		return fmt.Errorf("resume %s: %w", engine.FullID(id), err)
	}
	return r.setDesiredState(ctx, id, engine.WantRun)
}

// WaitFor returns when the projection has handled, parked or skipped all events up to position that it selects, on whatever node
// it runs. If id names a partition, WaitFor waits for that partition, otherwise for all of them. After an append it waits until
// the read model has the appended events. It returns early with projection.ErrPaused, with projection.ErrFailed and the reason,
// with projection.ErrUnknownProjection or projection.ErrUnknownTenant, or with ctx's error.
//
// After a crash or a failover that lost commits, positions are assigned again. Until this node has noticed that, usually well
// under a second later, WaitFor may return for such a position although the new event was not handled.
func (r *Runtime) WaitFor(ctx context.Context, id ProjectionID, position int64) error {
	id = engine.FullID(id)
	err := r.waitFor(ctx, id, position)
	if err != nil {
		return fmt.Errorf("wait for %s to reach %d: %w", id, position, err)
	}
	return nil
}

func (r *Runtime) waitFor(ctx context.Context, id ProjectionID, position int64) error {
	for delays := backoff.New(10*time.Millisecond, 250*time.Millisecond); ; {
		if deps := r.running(); deps != nil {
			if err := deps.Registry.WaitFor(ctx, id, position); !errors.Is(err, actors.ErrNotHere) && !r.resumed(ctx, deps, id, err) {
				return err
			}
		}
		// It runs elsewhere, or nowhere yet.
		rows, err := r.rows(ctx, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil && r.store.Classify(err).Class != engine.Infrastructure:
			return err
		case err == nil && len(rows) == 0:
			// Its rows are about to be made, if the tenant exists and is not archived.
			if err := r.awake(ctx, id.Tenant); err != nil {
				return err
			}
		case err == nil:
			if done, err := r.reached(rows, position); done || err != nil {
				return err
			}
		}
		if err := delays.Wait(ctx); err != nil {
			return err
		}
	}
}

// resumed reports whether a projection that has stopped at an event on this node was resumed, and the notification has yet to arrive.
func (r *Runtime) resumed(ctx context.Context, deps *actors.Deps, id ProjectionID, answer error) bool {
	if !errors.Is(answer, projection.ErrFailed) || !deps.Registry.Halted(id) {
		return false
	}
	rows, err := r.rows(ctx, id)
	return err == nil && !slices.ContainsFunc(rows, func(row engine.ProjectionRow) bool { return !row.Desired.Runs() || row.Halted })
}

// awake returns an error if a tenant does not exist or its projections do not run. An outage is not an error.
func (r *Runtime) awake(ctx context.Context, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.QueryTimeout)
	defer cancel()
	tenants, err := r.store.Tenants(ctx, []string{tenant})
	switch {
	case err != nil:
		return nil
	case len(tenants) == 0:
		return projection.ErrUnknownTenant
	case tenants[0].State != projection.TenantActive && tenants[0].State != projection.TenantPaused:
		return pausedBecause(tenants[0].State)
	}
	return nil
}

// pausedBecause returns projection.ErrPaused, with the state of the tenant if that is the reason.
func pausedBecause(state projection.TenantState) error {
	if reason := asleep(state); reason != "" {
		return fmt.Errorf("%w: %s", projection.ErrPaused, reason)
	}
	return projection.ErrPaused
}

// reached reports whether all partitions have reached a position, by their rows or on this node. It returns an error if a
// partition cannot reach it.
func (r *Runtime) reached(rows []engine.ProjectionRow, position int64) (done bool, err error) {
	done = true
	deps := r.running()
	for _, row := range rows {
		switch {
		case row.Checkpoint >= position:
		case !row.Desired.Runs():
			return false, pausedBecause(row.Tenant)
		case row.Failed != "" && (row.OwnerAlive || row.Halted):
			return false, fmt.Errorf("%w: %s", projection.ErrFailed, row.Failed)
		default:
			done = done && reachedHere(deps, row, position)
		}
	}
	return done, nil
}

// reachedHere reports whether a partition runs on this node and has reached a position. Its checkpoint may lag behind it.
func reachedHere(deps *actors.Deps, row engine.ProjectionRow, position int64) bool {
	return deps != nil && deps.Registry.ReachedBy(row.ID, row.Partitions, position)
}

// knows reports whether this runtime can run the projection.
func (r *Runtime) knows(id ProjectionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	def, tenant := r.definitions[id.Name], engine.FullID(id).Tenant
	return def != nil && def.Tenants.Matches(tenant) && (len(r.config.Tenants) == 0 || slices.Contains(r.config.Tenants, tenant))
}

// rows returns the partitions of a projection as the database has them, or the one that id names. It returns no rows if they are
// about to be made, and projection.ErrUnknownProjection if there are none and this runtime does not know the projection.
func (r *Runtime) rows(ctx context.Context, id ProjectionID) ([]engine.ProjectionRow, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.QueryTimeout)
	defer cancel()
	rows, err := r.store.Projections(ctx, engine.ProjectionFilter{Tenants: []string{id.Tenant}, Names: []string{id.Name}})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 && r.knows(id) {
		return nil, nil
	}
	if id.Partition != 0 {
		rows = slices.DeleteFunc(rows, func(row engine.ProjectionRow) bool { return row.ID != id })
	}
	if len(rows) == 0 {
		return nil, projection.ErrUnknownProjection
	}
	return rows, nil
}
