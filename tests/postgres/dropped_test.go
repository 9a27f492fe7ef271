package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// stateOf is the status of the projection p of the tenant acme as a runtime sees it.
func (b *bundle) stateOf(rt *millrace.Runtime, tenant string) (p millrace.ProjectionStatus, t millrace.TenantStatus) {
	b.T.Helper()
	status, err := rt.Status(b.Ctx)
	b.Must(err)
	for _, s := range status.Projections {
		if s.ID == (millrace.ProjectionID{Tenant: tenant, Name: "p"}) {
			p = s
		}
	}
	for _, s := range status.Tenants {
		if s.Tenant == tenant {
			t = s
		}
	}
	return p, t
}

// TestTenantWhoseSchemaIsGoneIsNamedUntilItIsBack takes a tenant's schema away by hand while its projection is live and
// idle, gives it back, drops it for good, and removes the tenant as the runbook says.
func TestTenantWhoseSchemaIsGoneIsNamedUntilItIsBack(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	acme, err := b.store.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	config := millrace.Config{PollInterval: 100 * time.Millisecond, ReconcileInterval: 100 * time.Millisecond}
	rt := b.Running(config, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	elsewhere := b.Another(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)}) // does not run: it knows what the database knows
	id := millrace.ProjectionID{Tenant: "acme", Name: "p"}
	arrive := func() {
		t.Helper()
		r, err := acme.Append(b.Ctx, "s", event.Any, event.Event{Type: "counted"})
		b.Must(err)
		b.ReachesOf(rt, "acme", "p", r.Positions[0])
	}
	arrive()
	gone := func() {
		t.Helper()
		for what, rt := range map[string]*millrace.Runtime{"its own node": rt, "another process": elsewhere} {
			b.Eventually(what+" names what happened", func() bool {
				p, tenant := b.stateOf(rt, "acme")
				named := func(reason string) bool {
					return strings.Contains(reason, `schema "millrace_acme" of tenant "acme" is gone`) && strings.Contains(reason, "restore it, or remove the tenant")
				}
				return p.State == millrace.StateFailed && named(p.Reason) && named(tenant.Reason)
			})
		}
		if p, tenant := b.stateOf(rt, "default"); p.State == millrace.StateFailed || tenant.Reason != "" {
			t.Errorf("the other tenant: %+v, %+v", p, tenant)
		}
		if err := rt.WaitFor(b.Ctx, id, 1<<40); !errors.Is(err, projection.ErrTenantDropped) {
			t.Errorf("WaitFor: %v", err)
		}
		if _, err := acme.Append(b.Ctx, "s", event.Any, event.Event{Type: "counted"}); !errors.Is(err, projection.ErrTenantDropped) {
			t.Errorf("Append: %v", err)
		}
		for _, err := range acme.ReadAll(b.Ctx, pgstore.ReadOptions{}) {
			if !errors.Is(err, projection.ErrTenantDropped) {
				t.Errorf("ReadAll: %v", err)
			}
		}
		if _, err := elsewhere.RunUntilIdle(b.Ctx); !errors.Is(err, projection.ErrTenantDropped) {
			t.Errorf("RunUntilIdle: %v", err)
		}
		if _, err := b.store.CreateTenant(b.Ctx, "acme"); !errors.Is(err, projection.ErrTenantDropped) {
			t.Errorf("CreateTenant: %v", err)
		}
		if err := b.store.Migrate(b.Ctx); err != nil {
			t.Errorf("Migrate: %v", err)
		}
	}
	b.exec("alter schema millrace_acme rename to away")
	gone()
	b.exec("alter schema away rename to millrace_acme")
	for what, rt := range map[string]*millrace.Runtime{"its own node": rt, "another process": elsewhere} {
		b.Eventually(what+" says that it is back", func() bool {
			p, tenant := b.stateOf(rt, "acme")
			return (p.State == millrace.StateLive || p.State == millrace.StateElsewhere) && p.Reason == "" && tenant.Reason == ""
		})
	}
	arrive()

	b.exec("drop schema millrace_acme cascade")
	gone()
	b.exec(removeTenantSQL(t))
	b.Eventually("the tenant is gone from the status", func() bool {
		p, tenant := b.stateOf(rt, "acme")
		return p.ID.Name == "" && tenant.Tenant == ""
	})
	if _, err := acme.Append(b.Ctx, "s", event.Any, event.Event{Type: "counted"}); !errors.Is(err, projection.ErrUnknownTenant) {
		t.Errorf("Append: %v", err)
	}
	b.Eventually("the node gives its projection up", func() bool {
		return errors.Is(rt.WaitFor(b.Ctx, id, 1<<40), projection.ErrUnknownTenant)
	})
	if _, err := b.store.CreateTenant(b.Ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	arrive()
	if p, tenant := b.stateOf(rt, "acme"); p.State != millrace.StateLive || tenant.Reason != "" {
		t.Errorf("made anew: %+v, %+v", p, tenant)
	}
}

// removeTenantSQL is what docs/ownership.md gives to remove a tenant, here for the tenant acme.
func removeTenantSQL(t *testing.T) string {
	t.Helper()
	return sqlOf(t, "ownership.md", "## A tenant's schema is gone", 1)[0]
}
