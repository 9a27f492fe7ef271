package millrace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/tenancy"
)

// RunUntilIdle runs the registered projections until each has handled, parked or skipped every event that was visible
// when it was called, and ends like Run. It is for tests, jobs and scripts. It returns the status at the end, which has
// the numbers of events that were applied, parked and skipped.
//
// RunUntilIdle returns an error if a projection cannot become idle because it is paused or has failed, or if ctx ends
// first. It returns when all others are idle. A projection that was resumed by then is waited for too. The error is
// about the first by tenant and name. The status then shows which projections are not idle, if it could still be read.
func (r *Runtime) RunUntilIdle(ctx context.Context) (status admin.Status, err error) {
	ids, err := r.projections(ctx)
	if err != nil {
		return admin.Status{}, fmt.Errorf("run until idle: %w", err)
	}
	heads, err := r.waiter.Heads(ctx, ids)
	if err != nil {
		return admin.Status{}, fmt.Errorf("run until idle: %w", err)
	}
	tenants := slices.Sorted(maps.Keys(heads))
	err = r.run(ctx, nil, func(ctx context.Context) (err error) {
		if err := r.waiter.Idle(ctx, ids, heads); err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			status, _ = r.wholeStatus(ctx, tenants, statusPage)
			return err
		}
		status, err = r.wholeStatus(ctx, tenants, statusPage)
		return err
	})
	if err != nil {
		err = fmt.Errorf("run until idle: %w", err)
	}
	return status, err
}

// statusPage is how many projections wholeStatus reads at once.
const statusPage = 10_000

// wholeStatus returns the status of the registered projections of these tenants, which it reads in pages.
func (r *Runtime) wholeStatus(ctx context.Context, tenants []string, limit int) (admin.Status, error) {
	filter := admin.StatusFilter{Tenants: tenants, Names: slices.Sorted(maps.Keys(r.definitions)), Limit: limit}
	whole := admin.Status{Projections: []admin.ProjectionStatus{}}
	for {
		page, err := r.Status(ctx, filter)
		if err != nil {
			return whole, err
		}
		all := append(whole.Projections, page.Projections...)
		whole = page
		whole.Projections = all
		if len(page.Projections) < limit {
			return whole, nil
		}
		filter.After = all[len(all)-1].ID
	}
}

// projections returns the projections that the runtime runs, for the tenants that are not archived. The projections of
// a tenant are adjacent.
func (r *Runtime) projections(ctx context.Context) (ids []ProjectionID, err error) {
	tenants, err := r.tenants(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tenant := range tenants {
		if tenant.State != tenancy.Active && tenant.State != tenancy.Paused {
			continue
		}
		for name, def := range r.definitions {
			if def.Tenants.Matches(tenant.Name) {
				ids = append(ids, ProjectionID{Tenant: tenant.Name, Name: name})
			}
		}
	}
	return ids, nil
}
