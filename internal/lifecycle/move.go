package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/tenancy"
)

var errSameStore = errors.New("both stores are the same")

// moving lets one move of this process run at a time. Two moves between files in opposite directions would wait for
// each other's writers.
var moving = make(chan struct{}, 1)

// Move moves a tenant to another store. In the source it is archived first, and stays archived. If nothing was moved, a
// tenant that was active is unarchived there. mayLeave gets the names of the projections, and returns an error if the
// tenant must not move. moved reports whether an earlier call has moved the tenant.
func Move(ctx context.Context, from, to store.Driver, m *control.Move,
	mayLeave func(projections []string) error) (moved bool, err error) {
	// A function of the tenant that waits for another move would never end, and that move waits for it.
	err = cmp.Or(from.NotWithin(ctx), to.NotWithin(ctx), control.NotOfTenant(ctx, m.Tenant, "move it"))
	if err != nil {
		return false, err
	}
	select {
	case moving <- struct{}{}:
		defer func() { <-moving }()
	case <-ctx.Done():
		return false, fmt.Errorf("wait for another move: %w", context.Cause(ctx))
	}
	source, target := control.On(from), control.On(to)
	active, err := leaving(ctx, from, to, m, mayLeave)
	if err != nil {
		return false, err
	}
	exists, err := to.Tenants(ctx, []string{m.Tenant})
	if err != nil {
		return false, err
	}
	moved, err = source.Prepare(ctx, target, m, active, len(exists) > 0)
	if moved || err != nil {
		return moved, err
	}
	moved, err = leave(ctx, from, target, m)
	switch {
	case err == nil:
		return moved, nil
	case m.Ended:
		return false, fmt.Errorf("%w; the tenant may have moved: it stays archived in the source, repeat the move", err)
	case !m.Begun:
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	if failed := from.DecideState(ctx, m.Tenant, m.Return); failed != nil {
		err = fmt.Errorf("%w; the tenant may stay archived in the source: %w", err, failed)
	}
	return false, err
}

// leave archives the tenant in the source, and moves it.
func leave(ctx context.Context, from store.Driver, target control.Plane, m *control.Move) (moved bool, err error) {
	if err := Archive(ctx, from, m.Tenant, m.Leave); err != nil {
		return false, err
	}
	return control.On(from).Move(ctx, target, m)
}

// leaving reports whether the tenant is active in the source, and returns an error if it must not move.
func leaving(ctx context.Context, from, to store.Driver, m *control.Move,
	mayLeave func(projections []string) error) (active bool, err error) {
	same, err := from.IsSame(ctx, to)
	switch {
	case err != nil:
		return false, err
	case same:
		return false, errSameStore
	}
	tenants, err := from.Tenants(ctx, []string{m.Tenant})
	switch {
	case err != nil:
		return false, err
	case len(tenants) == 0:
		return false, tenancy.ErrUnknown
	}
	names, err := control.On(from).CanLeave(ctx, m.Tenant)
	if err != nil {
		return false, err
	}
	return tenants[0].State != tenancy.Archived, mayLeave(names)
}

// AbandonMove forgets the move of a tenant to a store of that name, for a caller who knows that the store does not have
// the tenant.
func AbandonMove(ctx context.Context, from store.Driver, tenant, target string) error {
	if err := from.NotWithin(ctx); err != nil {
		return err
	}
	decide, err := control.On(from).Abandon(ctx, tenant, target)
	if err != nil {
		return err
	}
	return from.DecideState(ctx, tenant, decide)
}
