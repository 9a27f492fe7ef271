package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// RestoredTenant is a tenant after its events were restored from a backup, or deleted, while its checkpoints stayed.
type RestoredTenant struct {
	Tenant string
	// Head is the position of the last event.
	Head int64
	// End is the position of the last restored event. Events after it were appended since the restore, at positions
	// that other events had before. EndTime is when the event at End was appended, zero if there is none.
	End     int64
	EndTime time.Time
	// Tables are the tables in the tenant's schema that are not the store's. A restore of the schema restored their
	// rows too. A store in a file has none.
	Tables []string
	// Projections are the tenant's projections, sorted by name.
	Projections []RestoredProjection
}

// RestoredProjection is a projection of a restored tenant.
type RestoredProjection struct {
	ID projection.ID
	// Running means that a node runs it. Otherwise it is paused, no node runs it, or it has stopped because of Reason.
	Running bool
	Reason  string
	// Checkpoint is the lowest of its partitions, and Highest the highest position that one of them has handled. Events
	// that are gone are in its read model if Highest is above RestoredTenant.End, unless the read model was restored
	// too.
	Checkpoint, Highest int64
	// Parked counts its parked events that are gone.
	Parked int64
	// Delivers means that it delivers: see millrace.Deliver.
	Delivers bool
}

// RecoverOptions say how each projection of a restored tenant continues. Each is named once, in Continue, Reset or
// Rebuild. Those that deliver may be left out: they continue.
type RecoverOptions struct {
	// End is the position of the last restored event. Default: where the events ended when a projection noticed the
	// restore first, or the last event there is if none has noticed it. Set it if events were appended since the
	// restore. projection.None means that the backup had no events.
	End int64
	// Continue names projections whose checkpoint is lowered to End if it is higher. They handle no event again, and
	// handle all events that were or will be appended since the restore.
	Continue []string
	// Reset has positions from 0 to End, to which checkpoints are set as by Admin.Reset: those that read models had
	// that were restored too.
	Reset map[string]int64
	// Rebuild names projections that are rebuilt as by Admin.Rebuild. Until then they stay stopped.
	Rebuild []string
	// Redeliver allows to reset and rebuild projections whose handlers deliver. Default: projection.ErrDelivers.
	Redeliver bool
}

// RecoverResult is what a recovery of a tenant did.
type RecoverResult struct {
	// End is the position of the last restored event.
	End int64
	// Projections are sorted by name.
	Projections []RecoveredProjection
}

// RecoveredProjection is what a recovery did with a projection.
type RecoveredProjection struct {
	ID projection.ID
	// Rebuild means that a rebuild was requested, and Unchanged that the projection runs, and was left as it is.
	Rebuild, Unchanged bool
	// From is the checkpoint before, and Position the one now, of the partition with the lowest one.
	From, Position int64
	// Removed counts parked events that are gone, and whose dead letters were deleted. Resolved counts the dead letters
	// that were resolved, because the projection handles their events again.
	Removed, Resolved int64
}

// RestoredTenant returns what RecoverTenant needs to know about a tenant. end is RecoverOptions.End. It changes
// nothing.
func (a *Admin) RestoredTenant(ctx context.Context, tenant string, end int64) (RestoredTenant, error) {
	tenant = engine.FullTenant(tenant)
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	r, err := a.restored(ctx, tenant, end)
	if err != nil {
		return RestoredTenant{}, fmt.Errorf("read the restored tenant %q: %w", tenant, err)
	}
	return r, nil
}

// RecoverTenant lets the projections of a tenant continue after its events were restored from a backup, or deleted.
// Before that they have stopped with tenancy.ErrRestored, or are paused with their tenant. RestoredTenant shows what to
// decide:
//
//   - A read model elsewhere is rebuilt, so that it has no effects of events that are gone.
//   - A read model that was restored with the events continues if it had handled all of them. If it lagged when the
//     backup was made, it is reset to the checkpoint that it had then.
//   - A projection that delivers continues: what it delivered stays delivered, and is not repeated.
//
// All checkpoints change in one transaction, which also requests the rebuilds. So after an error or a crash either
// nothing has happened, or the rebuilds are open operations: see WaitOperation. Dead letters of events that are gone
// are deleted, since other events get their positions. The others stay, as after Reset. RecoverTenant waits for the
// ends of the rebuilds. A projection whose rebuild fails stays stopped until Rebuild or Resume.
//
// It returns projection.ErrRunning if a projection runs that may have handled events that are gone: pause the tenant
// first. A projection that continues, and runs already, is left as it is. It returns projection.ErrNotSettled if
// appends in progress may still get positions up to End, projection.ErrDelivers, and projection.ErrOperationOpen, all
// before anything was changed.
func (a *Admin) RecoverTenant(ctx context.Context, tenant string, opts RecoverOptions) (RecoverResult, error) {
	tenant = engine.FullTenant(tenant)
	result, err := a.recoverTenant(ctx, tenant, opts)
	if err != nil {
		return result, fmt.Errorf("recover tenant %q: %w", tenant, err)
	}
	return result, nil
}

func (a *Admin) recoverTenant(ctx context.Context, tenant string,
	opts RecoverOptions) (result RecoverResult, err error) {
	actions, err := a.recoverActions(tenant, opts)
	if err != nil {
		return result, err
	}
	restored, err := a.RestoredTenant(ctx, tenant, opts.End)
	if err != nil {
		return result, errors.Unwrap(err)
	}
	request := engine.Recover{Tenant: tenant, End: restored.End, Actions: actions, Redeliver: opts.Redeliver}
	if request.End > 0 {
		request.Incarnation, err = a.marks.requireRestored(ctx, tenant, request.End)
		if err != nil {
			return result, err
		}
	}
	done, err := a.plane.Recover(ctx, request)
	if err != nil {
		return result, errors.Unwrap(err)
	}
	result.End = request.End
	for _, d := range done {
		id := projection.ID{Tenant: tenant, Name: d.Name}
		if deps := a.waiter.Running(); deps != nil && d.Epoch > 0 {
			deps.Registry.Outdate(id, d.Epoch)
		}
		result.Projections = append(result.Projections,
			RecoveredProjection{ID: id, Rebuild: d.Operation > 0, Unchanged: d.Epoch == 0,
				From: d.From, Position: d.Position, Removed: d.Removed, Resolved: d.Reset.Resolved})
	}
	var failed []error
	for _, d := range done {
		if d.Operation == 0 {
			continue
		}
		if err := a.operations.wait(ctx, tenant, d.Operation); err != nil {
			failed = append(failed, fmt.Errorf("rebuild %s: %w", projection.ID{Tenant: tenant, Name: d.Name}, err))
		}
	}
	return result, errors.Join(failed...)
}

// recoverActions returns what is done with each projection that the options name.
func (a *Admin) recoverActions(tenant string, opts RecoverOptions) (map[string]engine.RecoverAction, error) {
	actions := make(map[string]engine.RecoverAction)
	for _, name := range opts.Continue {
		actions[name] = engine.RecoverAction{Kind: engine.RecoverContinue}
	}
	for name, position := range opts.Reset {
		actions[name] = engine.RecoverAction{Kind: engine.RecoverReset, Position: position}
	}
	for _, name := range opts.Rebuild {
		id := projection.ID{Tenant: tenant, Name: name}
		if err := a.rebuildable(id); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		actions[name] = engine.RecoverAction{Kind: engine.RecoverRebuild, By: a.operates(id)}
	}
	if len(actions) < len(opts.Continue)+len(opts.Reset)+len(opts.Rebuild) {
		return nil, errors.New("RecoverOptions must name each projection at most once")
	}
	return actions, nil
}

func (a *Admin) restored(ctx context.Context, tenant string, end int64) (r RestoredTenant, err error) {
	r = RestoredTenant{Tenant: tenant, End: max(end, 0)}
	heads, err := a.store.Heads(ctx, []string{tenant})
	if err != nil {
		return r, err
	}
	head, found := heads.Positions[tenant]
	if !found {
		return r, cmp.Or(heads.Failed[tenant], a.store.Absent(ctx, tenant), tenancy.ErrUnknown)
	}
	r.Head = head
	partitions, tables, err := a.plane.Restored(ctx, tenant)
	if err != nil {
		return r, err
	}
	r.Tables = tables
	if end == 0 {
		r.End = endOf(partitions, head)
	}
	if r.End > head {
		return r, fmt.Errorf("the end of the restored events, %d, is above the last event, %d", r.End, head)
	}
	if r.End > 0 {
		page, err := a.store.Read(ctx, tenant, engine.ReadRange{After: r.End - 1,
			UpTo: r.End, Limit: 1, MaxBytes: 1 << 20})
		if err != nil {
			return r, err
		}
		for _, e := range page.Events {
			r.EndTime = e.Time.UTC()
		}
	}
	err = r.add(ctx, a.plane, partitions)
	return r, err
}

// endOf returns where the events of a tenant ended when a projection noticed the restore first: at the head if none has
// noticed it.
func endOf(partitions []engine.RestoredPartition, head int64) int64 {
	end := head
	for _, p := range partitions {
		if noticed, restored := engine.RestoredEnd(p.Reason); restored && p.Halted {
			end = min(end, noticed)
		}
	}
	return end
}

// add adds the projections that have these partitions, which are sorted by name.
func (r *RestoredTenant) add(ctx context.Context, plane control.Plane, partitions []engine.RestoredPartition) error {
	for len(partitions) > 0 {
		first := partitions[0]
		p := RestoredProjection{ID: projection.ID{Tenant: r.Tenant, Name: first.Name}, Checkpoint: first.Checkpoint}
		var rows []int32
		for len(partitions) > 0 && partitions[0].Name == first.Name {
			part := partitions[0]
			rows, partitions = append(rows, part.Row), partitions[1:]
			p.Running, p.Delivers = p.Running || part.Owned && !part.Halted && !part.Paused, p.Delivers || part.Delivers
			p.Checkpoint, p.Highest = min(p.Checkpoint, part.Checkpoint), max(p.Highest, part.Highest)
			if part.Halted {
				p.Reason = part.Reason
			}
		}
		parked, err := plane.ParkedAbove(ctx, rows, r.End)
		if err != nil {
			return err
		}
		p.Parked = parked
		r.Projections = append(r.Projections, p)
	}
	return nil
}
