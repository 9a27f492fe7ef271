package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
)

// SwapOptions are options of Admin.Swap. The zero value of each field means its default.
type SwapOptions struct {
	// CatchUp limits how long the swap waits for the version to catch up, from when the first node begins the swap.
	// Once the earlier version is held, it waits for at most 10 s, or CatchUp if that is shorter. From 1 ms to 365
	// days. Default 30 s.
	CatchUp time.Duration
	// AllowParked allows the swap although events of the new version are parked. Readers miss these events until they
	// are replayed. Default: Swap returns projection.ErrParkedEvents.
	AllowParked bool
}

// Swap replaces the earlier version of a projection by a new one: "totals" by "totals@2". See docs/changing.md.
//
// A living node that registers the new version carries out the swap. It waits until the new version is near the earlier
// one, and then holds the earlier version: its owners finish their batches and release their leases. When the new
// version has handled all events that the earlier version has handled, it is held as well. Then one transaction locks
// the leases of both and checks that nothing is missing. It runs the hook millrace.Projection.Swap, and deletes the
// checkpoints, leases and dead letters of the earlier version. So readers see each event that they have seen before.
// From then on, the earlier name is retired: WaitFor waits for the new version instead, other methods return
// projection.ErrRetired, and nodes of an older release do not run it.
//
// If that node dies, the earlier version runs again, and another node starts the swap again. If ctx ends first, Swap
// returns projection.ErrOperationPending, and the swap continues without the caller: WaitOperation waits for its end,
// and CancelOperation cancels it. If the new version has already replaced the earlier one, or the tenant began with it,
// Swap changes nothing and returns nil.
//
// Swap returns projection.ErrBehind if the new version does not catch up in time, and projection.ErrPaused or
// projection.ErrFailed if it does not run. It returns projection.ErrParkedEvents if events of it are parked, and
// projection.ErrSeveralVersions if there are several earlier versions. After these errors, and after an error of the
// hook, the earlier version runs again.
func (a *Admin) Swap(ctx context.Context, id projection.ID, opts SwapOptions) error {
	id = engine.FullID(id)
	if err := a.swap(ctx, id, opts); err != nil {
		return fmt.Errorf("swap %s: %w", id, err)
	}
	return nil
}

func (a *Admin) swap(ctx context.Context, id projection.ID, opts SwapOptions) error {
	opts.CatchUp = cmp.Or(opts.CatchUp, 30*time.Second)
	if opts.CatchUp < time.Millisecond {
		return fmt.Errorf("SwapOptions.CatchUp must be at least 1ms: %v", opts.CatchUp)
	}
	if err := cmp.Or(engine.ValidDuration("SwapOptions.CatchUp", opts.CatchUp), later(id)); err != nil {
		return err
	}
	state, err := a.versions(ctx, id)
	if err != nil || state.InUse() {
		return err
	}
	if err := state.Ready(opts.AllowParked); err != nil {
		return cmp.Or(inactive(ctx, a.store, a.timeout, id.Tenant), err)
	}
	o, err := engine.NewOperation{ID: id, Kind: engine.OperationSwap,
		Holds: versions.Names(id)}.Encode(engine.SwapOptions(opts))
	if err != nil {
		return err
	}
	return a.operate(ctx, o)
}

// later returns an error unless id names a whole projection in a version from 2 on.
func later(id projection.ID) error {
	if err := whole(id); err != nil {
		return err
	}
	if _, version := id.Version(); version < 2 {
		return fmt.Errorf("ProjectionID.Name must name a version from 2 on, such as %s: %s",
			excerpt.Quoted(projection.VersionName(id.Name, 2)), excerpt.Quoted(id.Name))
	}
	return nil
}

func (a *Admin) versions(ctx context.Context, id projection.ID) (state versions.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return a.plane.Versions(ctx, id, nil)
}

// Unswapped returns, in order, the tenants in which readers still use an earlier version of the projection. Each ID
// names the new version, for Admin.Swap. The result includes archived tenants, although they cannot be swapped.
func (a *Admin) Unswapped(ctx context.Context, name string) ([]projection.ID, error) {
	id := projection.ID{Name: name}
	if err := later(id); err != nil {
		return nil, fmt.Errorf("list tenants to swap: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	rows, err := a.plane.Projections(ctx, engine.ProjectionFilter{Names: versions.Earlier(id)})
	if err != nil {
		return nil, fmt.Errorf("list tenants to swap: %w", err)
	}
	list := make([]projection.ID, len(rows))
	for i, row := range rows {
		list[i] = projection.ID{Tenant: row.ID.Tenant, Name: name}
	}
	return slices.Compact(list), nil
}

// DropVersion removes a version of a projection that was not swapped in, such as "totals@2". When the version has
// stopped on all nodes, one transaction runs its hook millrace.Projection.Drop, and deletes its checkpoints, leases and
// dead letters. The earlier version is not affected. The name is retired, so that nodes that still register the version
// do not run it again. The next attempt needs another version. If the tenant began with the version, earlier versions
// may begin after DropVersion.
//
// A living node that registers the version carries out the operation, as for Rebuild. DropVersion returns
// projection.ErrVersionInUse if the version has replaced an earlier one.
func (a *Admin) DropVersion(ctx context.Context, id projection.ID) error {
	id = engine.FullID(id)
	if err := a.dropVersion(ctx, id); err != nil {
		return fmt.Errorf("drop %s: %w", id, err)
	}
	return nil
}

func (a *Admin) dropVersion(ctx context.Context, id projection.ID) error {
	if err := later(id); err != nil {
		return err
	}
	if err := a.droppable(ctx, id); err != nil {
		return err
	}
	return a.operate(ctx, engine.NewOperation{ID: id, Kind: engine.OperationDrop, Holds: []string{id.Name}})
}

// droppable returns projection.ErrVersionInUse if readers of the tenant have only this version.
func (a *Admin) droppable(ctx context.Context, id projection.ID) error {
	state, err := a.versions(ctx, id)
	switch {
	case errors.Is(err, projection.ErrSeveralVersions):
		return nil
	case err != nil:
		return err
	case state.Replaced:
		return projection.ErrVersionInUse
	case state.Earlier != "":
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	nodes, err := a.plane.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		for _, name := range versions.Earlier(id) {
			if n.Alive && n.Knows(id.Tenant, name) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: no node runs an earlier version", projection.ErrVersionInUse)
}
