package admin

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/lifecycle"
)

// PauseTenant stops all projections of a tenant, on whatever nodes they run, until ResumeTenant is called. It returns
// when no projection of the tenant runs any more, as Pause does for one projection. An empty name means
// projection.DefaultTenant. Appends to the tenant still work.
//
// The pause of a tenant is independent of the pauses of its projections: each of them runs again when neither it nor
// its tenant is paused. Projections that are registered later are paused too. A pause outlives restarts.
//
// If ctx ends first, PauseTenant returns ctx's error, and the tenant is paused nevertheless. If the tenant is resumed
// first, it returns projection.ErrResumed. A handler must not pause its own tenant, since PauseTenant would wait for
// the handler.
func (a *Admin) PauseTenant(ctx context.Context, tenant string) error {
	tenant = engine.FullTenant(tenant)
	if err := a.plane.SetTenantDesired(ctx, tenant, engine.WantPause); err != nil {
		return err
	}
	if err := lifecycle.Stopped(ctx, a.plane, func() (bool,
		error) {
		return a.plane.SuspensionEnded(ctx, tenant)
	}); err != nil {
		return fmt.Errorf("wait for the pause of tenant %q: %w", tenant, err)
	}
	return nil
}

// ResumeTenant ends the pause of a tenant. Projections that are paused themselves stay paused, and those of an archived
// tenant do not run.
func (a *Admin) ResumeTenant(ctx context.Context, tenant string) error {
	return a.plane.SetTenantDesired(ctx, engine.FullTenant(tenant), engine.WantRun)
}
