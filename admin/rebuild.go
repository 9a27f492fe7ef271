package admin

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Rebuild lets a projection begin again in its tables. It waits until the projection stands still on all nodes. Then
// one transaction runs its hook millrace.Projection.Reset, sets all of its checkpoints to 0, and resolves its dead
// letters, since their events will be handled again. Then the projection continues from the first event. A reader sees
// the old rows until that transaction commits, and then the new rows as they are written. A paused projection is reset
// too, and stays paused. Rebuild returns after the transaction. ProjectionStatus.Rebuild has the progress from then on.
//
// A living node that registers the projection carries out the transaction. If that node dies, another node does. If ctx
// ends first, Rebuild returns projection.ErrOperationPending, and the rebuild continues without the caller:
// WaitOperation waits for its end, and CancelOperation cancels it. An error or panic of the hook ends the rebuild
// without effect. If its transaction meets an outage or a lock, it is tried again. A handler must not rebuild its own
// projection, since Rebuild would wait for the handler.
//
// Rebuild returns projection.ErrOperationOpen if the projection has an open operation, and projection.ErrNoHook if its
// code has no Reset. It returns projection.ErrDelivers if its handler delivers and ResetOptions.Redeliver is not set,
// and tenancy.ErrArchived for an archived tenant. The projections of a paused tenant are reset, and continue when it is
// resumed.
func (a *Admin) Rebuild(ctx context.Context, id projection.ID, opts ResetOptions) error {
	id = engine.FullID(id)
	if err := a.rebuild(ctx, id, opts); err != nil {
		return fmt.Errorf("rebuild %s: %w", id, err)
	}
	return nil
}

func (a *Admin) rebuild(ctx context.Context, id projection.ID, opts ResetOptions) error {
	if err := whole(id); err != nil {
		return err
	}
	if err := a.rebuildable(id); err != nil {
		return err
	}
	if err := a.mayRedeliver(ctx, id, opts); err != nil {
		return err
	}
	o, err := engine.NewOperation{ID: id, Kind: engine.OperationRebuild, Holds: []string{id.Name}}.
		Encode(engine.RebuildOptions{Redeliver: opts.Redeliver})
	if err != nil {
		return err
	}
	return a.operate(ctx, o)
}

// rebuildable returns projection.ErrNoHook if the Admin's runtime knows the projection, and its code has no Reset.
func (a *Admin) rebuildable(id projection.ID) error {
	if def := a.waiter.Definition(id); def != nil {
		return def.HasHook(engine.OperationRebuild)
	}
	return nil
}

// WaitOperation waits until the open operation of a projection has ended, and returns its error. If ctx ends first, the
// error wraps projection.ErrOperationPending. Without an open operation it returns projection.ErrOperationNotFound.
func (a *Admin) WaitOperation(ctx context.Context, id projection.ID) error {
	id = engine.FullID(id)
	if err := a.waitOperation(ctx, id); err != nil {
		return fmt.Errorf("wait for the operation of %s: %w", id, err)
	}
	return nil
}

func (a *Admin) waitOperation(ctx context.Context, id projection.ID) error {
	if err := whole(id); err != nil {
		return err
	}
	open, err := a.operations.findOpen(ctx, id)
	if err != nil {
		return err
	}
	return a.operations.wait(ctx, id.Tenant, open.Number)
}

// CancelOperation cancels the open operation of a projection, even if it has begun. Once it returns nil, the operation
// can have no effect any more, and its projections run again. It returns projection.ErrOperationNotFound without an
// open operation, for instance because the operation has just ended.
func (a *Admin) CancelOperation(ctx context.Context, id projection.ID) error {
	if err := whole(id); err != nil {
		return fmt.Errorf("cancel the operation of %s: %w", engine.FullID(id), err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return a.plane.CancelOperation(ctx, id)
}

// operate requests an operation and waits for its end. If this runtime knows the projection, but its rows do not exist
// yet, it inserts them first. If this runtime only carries out operations, and knows the projection, it carries out
// this one.
func (a *Admin) operate(ctx context.Context, o engine.NewOperation) error {
	o.By = a.operates(o.ID)
	var number int64
	err := a.existing(ctx, o.ID, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, a.timeout)
		defer cancel()
		number, err = a.plane.InsertOperation(ctx, o)
		return err
	})
	if err != nil {
		return err
	}
	return a.operations.wait(ctx, o.ID.Tenant, number)
}

// operates returns the id of this runtime's node if it only carries out operations, and knows the projection. Otherwise
// it returns an empty text.
func (a *Admin) operates(id projection.ID) string {
	if deps := a.waiter.Running(); deps != nil && deps.OnlyOperates() && a.waiter.Definition(id) != nil {
		return deps.Node.ID
	}
	return ""
}
