package millrace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/tenancy"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// Pause stops a projection, with all its partitions and on whatever nodes it runs, until it is resumed. Pause returns when nothing of the projection runs any
// more: its node has finished the batch in progress and released the lease. The lease of a dead node is taken away. A pause
// outlives restarts.
//
// If ctx ends first, Pause returns ctx's error, and the projection is paused nevertheless. If the projection is resumed first,
// Pause returns projection.ErrResumed. A handler must not pause its own projection, since Pause would wait for the handler.
func (a *Admin) Pause(ctx context.Context, id ProjectionID) error {
	if err := whole(id); err != nil {
		return fmt.Errorf("pause %s: %w", engine.FullID(id), err)
	}
	if err := a.setDesiredState(ctx, id, engine.WantPause); err != nil {
		return err
	}
	if err := tenancy.Stopped(ctx, a.plane, func() (free bool, err error) { return a.plane.PauseEnded(ctx, id) }); err != nil {
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

func (a *Admin) setDesiredState(ctx context.Context, id ProjectionID, desired engine.DesiredState) error {
	return a.existing(ctx, id, func() error { return a.plane.SetDesiredState(ctx, engine.FullID(id), desired) })
}

// existing calls change. If this runtime knows the projection, but its rows do not exist yet since the tenant is new, existing
// inserts them and calls change again.
func (a *Admin) existing(ctx context.Context, id ProjectionID, change func() error) error {
	id = engine.FullID(id)
	err := change()
	if !errors.Is(err, projection.ErrUnknownProjection) || !a.knows(id) {
		return err
	}
	missing := a.runtime.definitions[id.Name].New(id)
	if _, err := a.plane.Ensure(ctx, []engine.NewProjection{missing}); err != nil {
		return err
	}
	if err := a.awake(ctx, id.Tenant); err != nil {
		return err // its rows were not made
	}
	return change()
}

// Resume ends a pause: a node claims the lease, and the projection continues. A projection that waits, for its next attempt or for
// a repair, tries at once. A projection that stopped at an event tries that event again, and its attempts are counted anew.
func (a *Admin) Resume(ctx context.Context, id ProjectionID) error {
	if err := whole(id); err != nil {
		return fmt.Errorf("resume %s: %w", engine.FullID(id), err)
	}
	return a.setDesiredState(ctx, id, engine.WantRun)
}

// WaitFor returns when the projection has handled, parked or skipped all events up to position that it selects, on whatever node
// it runs. If id names a partition, WaitFor waits for that partition, otherwise for all of them. With
// event.Appended.Last of an append it waits until the read model has the appended events. It returns early with projection.ErrPaused, with
// projection.ErrFailed and the reason (on the node where it failed, errors.Is and errors.As find the error of its handler as soon as the
// node knows it), with projection.ErrUnknownProjection, projection.ErrRetired or projection.ErrUnknownTenant, or with ctx's error. If
// another version has replaced the projection, WaitFor waits for that version.
//
// For a queued handler that runs in another process, it may return some milliseconds before the batch is durable: see
// pgstore.Options.SyncEachCommit.
//
// After a crash or a failover that lost commits, positions are assigned again. Until this node has noticed that, usually well
// under a second later, WaitFor may return for such a position although the new event was not handled. The same holds after a
// Reset by another process, until its notification arrives, usually within milliseconds. A Reset by this runtime is known at once.
func (a *Admin) WaitFor(ctx context.Context, id ProjectionID, position int64) error {
	id = engine.FullID(id)
	err := a.waitFor(ctx, id, position)
	if err != nil {
		return fmt.Errorf("wait for %s to reach %d: %w", id, position, usercode.ForCaller(err))
	}
	return nil
}

func (a *Admin) waitFor(ctx context.Context, id ProjectionID, position int64) error {
	for delays := backoff.New(10*time.Millisecond, 250*time.Millisecond); ; {
		if deps := a.running(); deps != nil {
			if err := deps.Registry.WaitFor(ctx, id, position); !errors.Is(err, actors.ErrNotHere) && !a.resumed(ctx, deps, id, position, err) {
				return err
			}
		}
		// It runs elsewhere, or nowhere yet.
		rows, err := a.rows(ctx, id)
		var retired *engine.Retired
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &retired) && retired.ByVersion():
			id.Name = retired.Successor
			continue
		case err != nil && a.plane.Classify(err).Class != engine.Infrastructure:
			return err
		case err == nil && len(rows) == 0:
			// Its rows are about to be made, if the tenant exists and is not archived.
			if err := a.awake(ctx, id.Tenant); err != nil {
				return err
			}
		case err == nil:
			if done, err := a.reached(rows, position); done || err != nil {
				return err
			}
		}
		if err := delays.Wait(ctx); err != nil {
			return err
		}
	}
}

// resumed reports whether a projection that had stopped at an event on this node was resumed. answer is the error that WaitFor
// returned. The notification of the resume may have arrived after that error, or may still be on its way.
func (a *Admin) resumed(ctx context.Context, deps *actors.Deps, id ProjectionID, position int64, answer error) bool {
	if !errors.Is(answer, projection.ErrFailed) {
		return false
	}
	if !deps.Registry.Halted(id) {
		now, _ := deps.Registry.Reached(id, position)
		return !errors.Is(now, projection.ErrFailed) // the notification arrived after the answer
	}
	rows, err := a.rows(ctx, id)
	return err == nil && !slices.ContainsFunc(rows, func(row engine.ProjectionRow) bool { return !row.Desired.Runs() || row.Halted })
}

// awake returns an error if a tenant does not exist or its projections do not run. An outage is not an error.
func (a *Admin) awake(ctx context.Context, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	tenants, err := a.store.Tenants(ctx, []string{tenant})
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
func (a *Admin) reached(rows []engine.ProjectionRow, position int64) (done bool, err error) {
	done = true
	deps := a.running()
	for _, row := range rows {
		switch {
		case row.Checkpoint >= position:
		case !row.Desired.Runs():
			return false, pausedBecause(row.Tenant)
		case row.Failed != "" && (row.OwnerAlive || row.Halted):
			return false, failure(row.Failed)
		default:
			done = done && reachedHere(deps, row, position)
		}
	}
	return done, nil
}

// failure returns projection.ErrFailed with the reason, which rows hold as text. The error wraps projection.ErrRestored if the text
// ends with it.
func failure(reason string) error {
	if what, restored := strings.CutSuffix(reason, projection.ErrRestored.Error()); restored {
		return fmt.Errorf("%w: %s%w", projection.ErrFailed, what, projection.ErrRestored)
	}
	return fmt.Errorf("%w: %s", projection.ErrFailed, reason)
}

// reachedHere reports whether a partition runs on this node and has reached a position. Its checkpoint may lag behind it.
func reachedHere(deps *actors.Deps, row engine.ProjectionRow, position int64) bool {
	return deps != nil && deps.Registry.ReachedBy(row.ID, row.Partitions, position)
}

// rows returns the rows of a projection's partitions in the database, or the row of the partition that id names. If there are
// none, it returns an *engine.Retired for a retired name, and projection.ErrUnknownProjection if this runtime does not know
// the projection. It returns no rows and no error if the runtime is about to create them.
func (a *Admin) rows(ctx context.Context, id ProjectionID) ([]engine.ProjectionRow, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	rows, err := a.plane.Projections(ctx, engine.ProjectionFilter{Tenants: []string{id.Tenant}, Names: []string{id.Name}})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		retired, err := a.retired(ctx, []string{id.Tenant}, []string{id.Name})
		switch {
		case err != nil:
			return nil, err
		case len(retired) > 0:
			return nil, retired[0]
		case a.knows(id) || a.knowsLater(id):
			return nil, nil
		}
	}
	if id.Partition != 0 {
		rows = slices.DeleteFunc(rows, func(row engine.ProjectionRow) bool { return row.ID != id })
	}
	if len(rows) == 0 {
		return nil, projection.ErrUnknownProjection
	}
	return rows, nil
}
