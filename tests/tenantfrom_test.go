package tests_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// tenantFrom notes the tenant that a function finds in its context.
func (j *journal) tenantFrom(ctx context.Context, where string) {
	tenant, ok := millrace.TenantFrom(ctx)
	if !ok {
		tenant = "none"
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Contains(j.lines[where], tenant) {
		j.lines[where] = append(j.lines[where], tenant)
	}
}

// namesTenant are projections of each shape, whose functions note their tenant. Each has its events fail once.
func (j *journal) namesTenant(b *kit.Bundle) (list []millrace.Projection) {
	typed := kit.Typed[kit.Counted]{Store: b.Store}
	handlers := map[string]millrace.Handler{
		"each": b.Store.Each(func(ctx context.Context, _ kit.Tx, _ event.Envelope) error {
			j.tenantFrom(ctx, "each")
			return kit.ErrOnPurpose
		}),
		"batch": b.Store.Batch(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
			j.tenantFrom(ctx, "batch")
			return kit.ErrOnPurpose
		}),
		"on": kit.Route(typed.On(func(ctx context.Context, _ kit.Tx, _ event.Of[kit.Counted]) error {
			j.tenantFrom(ctx, "on")
			return kit.ErrOnPurpose
		})),
		"queued": b.Store.Queued(func(ctx context.Context, _ kit.Queue, _ []event.Envelope) error {
			j.tenantFrom(ctx, "queued")
			return kit.ErrOnPurpose
		}),
		"on queued": typed.OnQueued(func(ctx context.Context, _ kit.Queue, _ event.Of[kit.Counted]) error {
			j.tenantFrom(ctx, "on queued")
			return kit.ErrOnPurpose
		}),
		"deliver": millrace.Deliver(func(ctx context.Context, _ *millrace.Delivery) error {
			j.tenantFrom(ctx, "deliver")
			return kit.ErrOnPurpose
		}),
		"deliver each": millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
			j.tenantFrom(ctx, "deliver each")
			return kit.ErrOnPurpose
		}),
	}
	for name, h := range handlers {
		list = append(list, millrace.Projection{Name: name, Handler: h,
			FailureHandler: func(ctx context.Context, _ projection.Failure) projection.Action {
				j.tenantFrom(ctx, name+": failure")
				return projection.ActionPark
			},
			Middleware: []millrace.Middleware{func(next millrace.HandleFunc) millrace.HandleFunc {
				return func(ctx context.Context, events []event.Envelope) error {
					j.tenantFrom(ctx, name+": middleware")
					return next(ctx, events)
				}
			}}})
	}
	return list
}

// A handler of every shape, its middleware, its FailureHandler and its hooks learn their tenant from the context,
// whatever tenants the store has.
func TestTenantIsInEachContext(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		for _, tenant := range []kit.Tenant{b.Store, acme} {
			b.AppendTo(tenant, "s", 1)
			_, err := tenant.Append(b.Ctx, "s", event.Any, event.New(kit.Counted{I: 1}))
			b.Must(err)
		}
		j := newJournal()
		hook := func(name string) millrace.Hook {
			return b.Store.Hook(func(ctx context.Context, _ kit.Tx) error { j.tenantFrom(ctx, name); return nil })
		}
		projections := j.namesTenant(b)
		nothing := b.Store.Batch(kit.Nothing)
		projections = append(projections,
			millrace.Projection{Name: "hooks", Handler: nothing, Reset: hook("reset")},
			millrace.Projection{Name: "hooks", Version: 2, Handler: nothing, Swap: hook("swap"), Drop: hook("drop")},
			millrace.Projection{Name: "hooks", Version: 3, Handler: nothing, Drop: hook("drop")},
			millrace.Projection{Name: "new", Version: 2, Handler: nothing, Swap: hook("first swap")})
		rt := b.Running(millrace.Config{}, projections...)
		for _, tenant := range []string{projection.DefaultTenant, "acme"} {
			b.Must(rt.Rebuild(b.Ctx, millrace.ProjectionID{Tenant: tenant, Name: "hooks"}, admin.ResetOptions{}))
			b.ReachesOf(rt, tenant, "hooks@2", 2) // its node has registered it
			b.Must(rt.Swap(b.Ctx, millrace.ProjectionID{Tenant: tenant, Name: "hooks@2"}, admin.SwapOptions{}))
			b.Must(rt.DropVersion(b.Ctx, millrace.ProjectionID{Tenant: tenant, Name: "hooks@3"}))
			for _, p := range projections[:len(projections)-4] {
				b.ReachesOf(rt, tenant, p.Name, 2)
			}
			b.ReachesOf(rt, tenant, "new@2", 2)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		places := slices.Sorted(maps.Keys(j.lines))
		if len(places) != 3*7+4 {
			t.Errorf("only these functions were called: %q", places)
		}
		for place, tenants := range j.lines {
			slices.Sort(tenants)
			if !slices.Equal(tenants, []string{"acme", projection.DefaultTenant}) {
				t.Errorf("%s: tenants %q", place, tenants)
			}
		}
		if tenant, ok := millrace.TenantFrom(b.Ctx); ok || tenant != "" {
			t.Errorf("another context has tenant %q", tenant)
		}
	})
}
