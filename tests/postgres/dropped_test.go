package postgres_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// removeTenantSQL is what docs/ownership.md gives to remove a tenant, here for the tenant acme.
func removeTenantSQL(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/ownership.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(raw), "## A tenant's schema is gone\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := sqlBlock.FindAllStringSubmatch(section, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d SQL blocks under \"A tenant's schema is gone\", want 1", len(blocks))
	}
	return blocks[0][1]
}

// stateOf is the status of the projection p of the tenant acme as a runtime sees it.
func (b *bundle) stateOf(rt *millrace.Runtime, tenant string) (p millrace.ProjectionStatus, t millrace.TenantStatus) {
	b.t.Helper()
	status, err := rt.Status(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
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
	acme, err := b.store.CreateTenant(b.ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	handle := func(context.Context, pgx.Tx, []event.Envelope) error { return nil }
	config := millrace.Config{PollInterval: 100 * time.Millisecond, ReconcileInterval: 100 * time.Millisecond}
	rt := b.runtime(config, millrace.Projection{Name: "p", Handler: pgstore.Batch(handle)})
	b.start(rt)
	elsewhere := b.another(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(handle)}) // does not run: it knows what the database knows
	id := millrace.ProjectionID{Tenant: "acme", Name: "p"}
	arrive := func() {
		t.Helper()
		r, err := acme.Append(b.ctx, "s", event.Any, event.Event{Type: "counted"})
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.WaitFor(b.ctx, id, r.Positions[0]); err != nil {
			t.Fatal(err)
		}
	}
	arrive()
	gone := func() {
		t.Helper()
		for what, rt := range map[string]*millrace.Runtime{"its own node": rt, "another process": elsewhere} {
			b.eventually(what+" names what happened", func() bool {
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
		if err := rt.WaitFor(b.ctx, id, 1<<40); !errors.Is(err, projection.ErrTenantDropped) {
			t.Errorf("WaitFor: %v", err)
		}
		if _, err := acme.Append(b.ctx, "s", event.Any, event.Event{Type: "counted"}); !errors.Is(err, projection.ErrTenantDropped) {
			t.Errorf("Append: %v", err)
		}
		for _, err := range acme.ReadAll(b.ctx, pgstore.ReadOptions{}) {
			if !errors.Is(err, projection.ErrTenantDropped) {
				t.Errorf("ReadAll: %v", err)
			}
		}
		if _, err := elsewhere.RunUntilIdle(b.ctx); !errors.Is(err, projection.ErrTenantDropped) {
			t.Errorf("RunUntilIdle: %v", err)
		}
		if _, err := b.store.CreateTenant(b.ctx, "acme"); !errors.Is(err, projection.ErrTenantDropped) {
			t.Errorf("CreateTenant: %v", err)
		}
		if err := b.store.Migrate(b.ctx); err != nil {
			t.Errorf("Migrate: %v", err)
		}
	}
	b.exec("alter schema millrace_acme rename to away")
	gone()
	b.exec("alter schema away rename to millrace_acme")
	for what, rt := range map[string]*millrace.Runtime{"its own node": rt, "another process": elsewhere} {
		b.eventually(what+" says that it is back", func() bool {
			p, tenant := b.stateOf(rt, "acme")
			return (p.State == millrace.StateLive || p.State == millrace.StateElsewhere) && p.Reason == "" && tenant.Reason == ""
		})
	}
	arrive()

	b.exec("drop schema millrace_acme cascade")
	gone()
	b.exec(removeTenantSQL(t))
	b.eventually("the tenant is gone from the status", func() bool {
		p, tenant := b.stateOf(rt, "acme")
		return p.ID.Name == "" && tenant.Tenant == ""
	})
	if _, err := acme.Append(b.ctx, "s", event.Any, event.Event{Type: "counted"}); !errors.Is(err, projection.ErrUnknownTenant) {
		t.Errorf("Append: %v", err)
	}
	b.eventually("the node gives its projection up", func() bool {
		return errors.Is(rt.WaitFor(b.ctx, id, 1<<40), projection.ErrUnknownTenant)
	})
	if _, err := b.store.CreateTenant(b.ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	arrive()
	if p, tenant := b.stateOf(rt, "acme"); p.State != millrace.StateLive || tenant.Reason != "" {
		t.Errorf("made anew: %+v, %+v", p, tenant)
	}
}
