package admin

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// ResetOptions are options of Admin.Reset and Admin.Rebuild. The zero value means the defaults.
type ResetOptions struct {
	// Redeliver allows the reset of a projection whose handler delivers (see millrace.Deliver). The projection then
	// delivers the events again, with the same tokens. Default: the reset of such a projection returns
	// projection.ErrDelivers.
	Redeliver bool
}

// ResetResult is what a reset changed.
type ResetResult struct {
	// From is the checkpoint before. If the projection has partitions, it is the lowest one.
	From int64
	// Position is the checkpoint now, of all partitions. If it is above From, the events from From+1 to Position are
	// skipped: the projection never handles them, except those that a partition had handled.
	Position int64
	// Resolved counts the dead letters that were resolved, because the projection handles their events again.
	Resolved int64
}

// Reset sets the checkpoint of a projection, with all its partitions, to a position from 0 to the settled mark, back or
// forward. The projection continues with the event after it. Reset runs no code of the projection and needs no node.
// Before Reset, the caller deletes what the handler wrote for events that are handled again. Rebuild does both in one
// transaction.
//
// Reset is one transaction. A batch in progress is rolled back, since it cannot commit any more, and a delivery in
// progress is cancelled. Failures, attempts, and a stop at an event are forgotten. Dead letters above the position are
// resolved, and those at or below it stay parked. Open commands on dead letters continue with those that are left. A
// paused projection stays paused.
//
// Reset waits for commits in progress until ctx ends, but not for handlers. It returns projection.ErrNotSettled for a
// position above the settled mark, projection.ErrDelivers if the handler delivers and ResetOptions.Redeliver is not
// set, and projection.ErrOperationOpen during a rebuild. While a checkpoint of another projection is above the last
// event, because the tenant was restored, all its projections stay stopped: RecoverTenant sets all checkpoints at once.
func (a *Admin) Reset(ctx context.Context, id projection.ID, position int64, opts ResetOptions) (ResetResult, error) {
	id = engine.FullID(id)
	result, err := a.reset(ctx, id, position, opts)
	if err != nil {
		return ResetResult{}, fmt.Errorf("reset %s to %d: %w", id, position, err)
	}
	return result, nil
}

func (a *Admin) reset(ctx context.Context, id projection.ID, position int64, opts ResetOptions) (ResetResult, error) {
	if err := whole(id); err != nil {
		return ResetResult{}, err
	}
	if position < 0 {
		return ResetResult{}, fmt.Errorf("the position must not be negative: %d", position)
	}
	request := engine.Reset{ID: id, Position: position, Redeliver: opts.Redeliver}
	if position > 0 {
		var err error
		request.Incarnation, err = a.marks.require(ctx, id.Tenant, position)
		if err != nil {
			return ResetResult{}, err
		}
	}
	var done engine.ResetResult
	err := a.existing(ctx, id, func() (err error) {
		done, err = a.plane.Reset(ctx, request)
		return err
	})
	if err != nil {
		return ResetResult{}, err
	}
	if deps := a.waiter.Running(); deps != nil {
		deps.Registry.Outdate(id, done.Epoch)
	}
	return ResetResult{From: done.Lowest, Position: position, Resolved: done.Resolved}, nil
}

// mayRedeliver returns projection.ErrDelivers if the projection delivers and the options do not allow to deliver again.
func (a *Admin) mayRedeliver(ctx context.Context, id projection.ID, opts ResetOptions) error {
	if opts.Redeliver {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	delivers, err := a.plane.Delivers(ctx, id)
	if err == nil && delivers {
		err = projection.ErrDelivers
	}
	return err
}
