package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/lifecycle"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// Pause stops a projection, with all its partitions and on whatever nodes it runs, until it is resumed. Pause returns
// when nothing of the projection runs any more: its node has finished the batch in progress and released the lease. The
// lease of a dead node is taken away. A pause outlives restarts.
//
// If ctx ends first, Pause returns ctx's error, and the projection is paused nevertheless. If the projection is resumed
// first, Pause returns projection.ErrResumed. A handler must not pause its own projection, since Pause would wait for
// the handler.
func (a *Admin) Pause(ctx context.Context, id projection.ID) error {
	if err := whole(id); err != nil {
		return fmt.Errorf("pause %s: %w", engine.FullID(id), err)
	}
	if err := a.setDesiredState(ctx, id, engine.WantPause); err != nil {
		return err
	}
	if err := lifecycle.Stopped(ctx, a.plane, func() (free bool,
		err error) {
		return a.plane.PauseEnded(ctx, id)
	}); err != nil {
		return fmt.Errorf("wait for the pause of %s: %w", engine.FullID(id), err)
	}
	return nil
}

// whole returns an error if id names a partition.
func whole(id projection.ID) error {
	if id.Partition != 0 {
		return fmt.Errorf("ProjectionID.Partition must be 0, since partitions run and pause together: %d", id.Partition)
	}
	return nil
}

func (a *Admin) setDesiredState(ctx context.Context, id projection.ID, desired engine.DesiredState) error {
	return a.existing(ctx, id, func() error { return a.plane.SetDesiredState(ctx, engine.FullID(id), desired) })
}

// existing calls change. If this runtime knows the projection, but its rows do not exist yet since the tenant is new,
// existing inserts them and calls change again.
func (a *Admin) existing(ctx context.Context, id projection.ID, change func() error) error {
	id = engine.FullID(id)
	err := change()
	def := a.waiter.Definition(id)
	if !errors.Is(err, projection.ErrUnknownProjection) || def == nil {
		return err
	}
	if _, err := a.plane.Ensure(ctx, []engine.NewProjection{def.New(id)}); err != nil {
		return err
	}
	if err := a.waiter.Awake(ctx, id.Tenant); err != nil {
		return err // its rows were not made
	}
	return change()
}

// Resume ends a pause: a node claims the lease, and the projection continues. A projection that waits, for its next
// attempt or for a repair, tries at once. A projection that stopped at an event tries that event again, and its
// attempts are counted anew.
func (a *Admin) Resume(ctx context.Context, id projection.ID) error {
	if err := whole(id); err != nil {
		return fmt.Errorf("resume %s: %w", engine.FullID(id), err)
	}
	return a.setDesiredState(ctx, id, engine.WantRun)
}

// WaitFor returns when the projection has handled, parked or skipped all events up to position that it selects, on
// whatever node it runs. If id names a partition, WaitFor waits for that partition, otherwise for all of them. With
// event.Appended.Last of an append it waits until the read model has the appended events. It returns early with
// projection.ErrPaused, with projection.ErrFailed and the reason (on the node where it failed, errors.Is and errors.As
// find the error of its handler as soon as the node knows it, while that is one of the last 16 there), with
// projection.ErrUnknownProjection, projection.ErrRetired or tenancy.ErrUnknown, or with ctx's error. If another version
// has replaced the projection, WaitFor waits for that version.
//
// For a queued handler that runs in another process, it may return some milliseconds before the batch is durable: see
// pgstore.Options.SyncEachCommit.
//
// After a crash or a failover that lost commits, positions are assigned again. Until this node has noticed that,
// usually well under a second later, WaitFor may return for such a position although the new event was not handled. The
// same holds after a Reset by another process, until its notification arrives, usually within milliseconds. A Reset by
// this runtime is known at once.
func (a *Admin) WaitFor(ctx context.Context, id projection.ID, position int64) error {
	id = engine.FullID(id)
	err := engine.Storable(id)
	if err == nil {
		err = a.waiter.For(ctx, id, position)
	}
	if err != nil {
		return fmt.Errorf("wait for %s to reach %d: %w", id, position, usercode.ForCaller(err))
	}
	return nil
}
