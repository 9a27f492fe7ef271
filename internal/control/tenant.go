package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// SetTenantDesired pauses a tenant, or resumes it, and notifies the nodes. The desired states of its projections do not
// change. It returns tenancy.ErrDropping or tenancy.ErrCopying while the tenant is being dropped or copied. The
// structural lock orders it with other changes of the tenant's state.
func (p Tenants) SetTenantDesired(ctx context.Context, tenant string, desired engine.DesiredState) error {
	err := p.db.Tx(ctx, func(tx store.Tx) error {
		_, state, err := LockTenant(tx, tenant)
		if err != nil {
			return err
		}
		if err := Changing(state); err != nil {
			return err
		}
		SetPaused(tx, tenant, !desired.Runs())
		return nil
	})
	return p.wrap(err, "set the desired state of tenant %q", tenant)
}

// DecideState sets the state of a tenant without a schema of its own, and returns the tenant's row.
// The structural lock orders it with other changes.
func (p Tenants) DecideState(ctx context.Context, tenant string, decide store.Decision) (row int32, err error) {
	err = p.db.Tx(ctx, func(tx store.Tx) error {
		var from tenancy.State
		row, from, err = LockTenant(tx, tenant)
		if err != nil {
			return err
		}
		to, err := decide(tx, from)
		if err != nil {
			return err
		}
		changes, err := Becomes(from, to)
		if changes {
			SetState(tx, tenant, to)
		}
		return err
	})
	return row, err
}

// LockTenant takes the structural lock of a tenant, and returns its row and its state, which is never tenancy.Paused.
func LockTenant(tx store.Tx, tenant string) (row int32, state tenancy.State, err error) {
	tx.Lock(tenant)
	found, err := tx.One("state_of_tenant", []any{tenant}, &row, &state)
	if err == nil && !found {
		err = tenancy.ErrUnknown
	}
	return row, state, err
}

// NotOfTenant returns an error if ctx is that of a function of one of the tenant's projections: it would wait for its
// own end. do is what the caller does.
func NotOfTenant(ctx context.Context, tenant, do string) error {
	if caller, within := handler.ProjectionFrom(ctx); within && caller.Tenant == tenant {
		return fmt.Errorf("a function of projection %s of the same tenant would wait for its own end: %s elsewhere",
			caller, do)
	}
	return nil
}

// Active takes the structural lock of a tenant, and returns an error if the tenant is archived, being dropped or being
// copied. A paused tenant is active.
func Active(tx store.Tx, tenant string) error {
	_, state, err := LockTenant(tx, tenant)
	if err != nil {
		return err
	}
	return closed[state]
}

// closed are the errors for tenants that are not active.
var closed = map[tenancy.State]error{
	tenancy.Archived: tenancy.ErrArchived,
	tenancy.Dropping: tenancy.ErrDropping,
	tenancy.Copying:  tenancy.ErrCopying,
}

// Changing returns an error if a tenant in that state is being dropped or copied, so that nothing of it must change.
func Changing(state tenancy.State) error {
	if state == tenancy.Archived {
		return nil
	}
	return closed[state]
}

// Becomes reports whether the state of a tenant changes from one to another. Any tenant may be dropped.
func Becomes(from, to tenancy.State) (changes bool, err error) {
	if from == to {
		return false, nil
	}
	if to != tenancy.Dropping {
		err = Changing(from)
	}
	return err == nil, err
}

// To is the decision for a state.
func To(state tenancy.State) store.Decision {
	return func(store.Tx, tenancy.State) (tenancy.State, error) { return state, nil }
}

// SetPaused sets whether a tenant is paused. The caller holds the tenant's structural lock.
func SetPaused(tx store.Tx, tenant string, paused bool) {
	tx.Exec("set_tenant_paused", tenant, paused)
	suspend(tx, tenant)
}

// SetState sets the state of a tenant. The caller holds the tenant's structural lock.
func SetState(tx store.Tx, tenant string, state tenancy.State) {
	tx.Exec("set_tenant_state", tenant, string(state))
	suspend(tx, tenant)
}

// Restore sets the state of a tenant, and whether it is paused. The caller holds the tenant's structural lock.
func Restore(tx store.Tx, tenant string, state tenancy.State, paused bool) {
	tx.Exec("set_tenant_paused", tenant, paused)
	SetState(tx, tenant, state)
}

// suspend suspends the projections of a tenant or ends their suspension, after its state has changed, and notifies the
// nodes.
func suspend(tx store.Tx, tenant string) {
	tx.Exec("suspend_projections", tenant)
	tx.Notify(engine.Notice{Control: true, Tenant: tenant})
}

// SuspensionEnded reports whether all leases of a tenant that is paused, archived or being dropped are free. It frees
// the leases of dead owners. It returns projection.ErrResumed if the tenant's projections may run again. As in
// PauseEnded, an expired heartbeat alone takes a lease away. While only living nodes have leases, it writes nothing.
// Before it reports that all leases are free, it locks them and so waits for claims in progress: later ones see that
// the projections are suspended, which the structural lock keeps so until the commit.
func (p Tenants) SuspensionEnded(ctx context.Context, tenant string) (free bool, err error) {
	var living, dead bool
	err = p.db.View(ctx, func(v store.View) error {
		living, dead, err = suspension(v, tenant)
		return err
	})
	if err == nil && (!living || dead) {
		free, err = p.freeSuspended(ctx, tenant)
	}
	if errors.Is(err, tenancy.ErrUnknown) || errors.Is(err, projection.ErrResumed) {
		return false, err // not a fault of the store, which the caller would retry
	}
	return free, p.wrap(err, "free the leases of tenant %q", tenant)
}

// freeSuspended frees the leases of dead owners of a suspended tenant, and reports whether all of its leases are free.
func (p Tenants) freeSuspended(ctx context.Context, tenant string) (free bool, err error) {
	err = p.db.Tx(ctx, func(tx store.Tx) error {
		tx.Lock(tenant)
		taken, err := column[int32](tx, "free_suspended", tenant)
		if err != nil {
			return err
		}
		living, dead, err := suspension(tx, tenant)
		free = err == nil && !living && !dead
		if free {
			tx.Exec("let_leases_sleep", tenant)
		}
		if len(taken) > 0 {
			tx.EndBatches(taken...)
		}
		return err
	})
	return free && err == nil, err
}

// suspension reports whether living and dead nodes have leases of a tenant. It returns projection.ErrResumed unless the
// tenant is suspended.
func suspension(v store.View, tenant string) (living, dead bool, err error) {
	var suspended bool
	found, err := v.One("suspension", []any{tenant}, &suspended, &living, &dead)
	switch {
	case err != nil:
		return false, false, err
	case !found:
		return false, false, tenancy.ErrUnknown
	case !suspended:
		return false, false, projection.ErrResumed
	}
	return living, dead, nil
}
