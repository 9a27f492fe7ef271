package tenancy

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

var (
	errSameStore = errors.New("both stores are the same")
	errMeanwhile = errors.New("the tenant was archived meanwhile, perhaps by another move, and stays archived")
)

// moving lets one move of this process run at a time. Two moves between files in opposite directions would wait for each other's writers.
var moving = make(chan struct{}, 1)

// Move moves a tenant to another store. In the source it is archived first, and stays archived. If nothing was moved, a tenant that was
// active is unarchived there. mayLeave gets the names of the projections, and returns an error if the tenant must not move. moved reports
// whether an earlier call has moved the tenant.
func Move(ctx context.Context, from, to store.Driver, m *control.Move, mayLeave func(projections []string) error) (moved bool, err error) {
	select {
	case moving <- struct{}{}:
		defer func() { <-moving }()
	case <-ctx.Done():
		return false, fmt.Errorf("wait for another move: %w", context.Cause(ctx))
	}
	source, target := control.On(from), control.On(to)
	wasActive, err := leaving(ctx, from, to, m, mayLeave)
	if err != nil {
		return false, err
	}
	exists, err := to.Tenants(ctx, []string{m.Tenant})
	if err != nil {
		return false, err
	}
	switch {
	case len(exists) == 0:
	case wasActive: // no earlier call has moved it, at most one of the target
		err = target.Empty(ctx, m.Tenant)
	default:
		moved, err = target.Has(ctx, source, m.Tenant)
	}
	if err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	archived, err := from.Archive(ctx, m.Tenant)
	if err == nil && wasActive && !archived {
		err = errMeanwhile
	}
	if err == nil && !moved {
		err = source.Move(ctx, target, m)
	}
	switch {
	case err == nil:
		return moved, nil
	case m.Ended:
		return false, fmt.Errorf("%w; the tenant may have moved: it stays archived in the source, repeat the move", err)
	case !archived:
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	moved, failed := target.HasByNow(ctx, source, m.Tenant)
	if moved {
		return true, nil
	}
	if failed == nil {
		failed = from.UnarchiveTenant(ctx, m.Tenant)
	}
	if failed != nil {
		err = fmt.Errorf("%w; the tenant stays archived in the source: %w", err, failed)
	}
	return false, err
}

// leaving reports whether the tenant is active in the source, and returns an error if it must not move.
func leaving(ctx context.Context, from, to store.Driver, m *control.Move, mayLeave func(projections []string) error) (active bool, err error) {
	if err := control.NotOfTenant(ctx, m.Tenant, "move it"); err != nil {
		return false, err
	}
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
		return false, projection.ErrUnknownTenant
	}
	names, err := control.On(from).CanLeave(ctx, m.Tenant)
	if err == nil {
		err = mayLeave(names)
	}
	active = tenants[0].State != projection.TenantArchived
	if active {
		m.State = projection.TenantActive
	}
	return active, err
}
