package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// orderTotals adds up the amounts of each stream.
var orderTotals = millrace.Projection{Name: "totals",
	Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		_, err := tx.Exec(ctx, `insert into totals values ($1, ($2::jsonb ->> 'amount')::numeric)
		on conflict (stream) do update set total = totals.total + excluded.total`, e.Stream, string(e.Body))
		return err
	})}

const createTotals = "create table totals (stream text primary key, total numeric)"

func (b *bundle) defaultTenant() *pgstore.Tenant {
	b.T.Helper()
	tenant, err := b.store.ForTenant(projection.DefaultTenant)
	b.Must(err)
	return tenant
}

// orderOf appends an order of a tenant, which it creates if necessary.
func (b *bundle) orderOf(name, amount string) *pgstore.Tenant {
	b.T.Helper()
	tenant, err := b.store.CreateTenant(b.Ctx, name)
	b.Must(err)
	if _, err := tenant.Append(b.Ctx, "order-1", event.Any,
		event.Event{Type: "ItemAdded", Body: []byte(`{"amount": ` + amount + `}`)}); err != nil {
		b.T.Fatal(err)
	}
	return tenant
}

// totalOf reads a tenant's read model as the host does.
func (b *bundle) totalOf(tenant *pgstore.Tenant) (total string) {
	b.T.Helper()
	err := tenant.InTx(b.Ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx,
			"select coalesce(sum(total), 0)::text from totals where stream = 'order-1'").Scan(&total)
	})
	if err != nil {
		b.T.Errorf("%s: %v", tenant.Name(), err)
	}
	return total
}

func TestOrdersOfTwoTenantsDoNotAddUp(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL(createTotals)}}, "pool_max_conns",
		"2")
	// A table of that name in public is the default tenant's, by its path, or the host's.
	if !value[bool](b, "select to_regclass('public.totals') is not null") {
		t.Fatal("there is no public.totals")
	}
	rt := b.Runtime(millrace.Config{}, orderTotals)
	want := map[*pgstore.Tenant]string{
		b.orderOf("acme", "30.00"): "30.00", b.orderOf("globex", "12.50"): "12.50", b.defaultTenant(): "0",
	}
	b.RunUntilIdle(rt)
	for tenant, total := range want {
		if got := b.totalOf(tenant); got != total {
			t.Errorf("%s has a total of %s, want %s", tenant.Name(), got, total)
		}
	}
}

// latency returns the median time from an append to its projection.
func (b *bundle) latency(rt *millrace.Runtime) time.Duration {
	b.T.Helper()
	var took []time.Duration
	for range 21 {
		began := time.Now()
		b.Must(rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p"}, b.Append("a", 1).Positions[0]))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func TestAppendsThatStayOpenDoNotSlowOtherTenants(t *testing.T) {
	const tenants, most = 30, 20
	b := setup(t, pgstore.Options{})
	rt := b.Runtime(millrace.Config{}, b.Recorders("p")...)
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("t%d", i)
		if _, err := b.store.CreateTenant(b.Ctx, names[i]); err != nil {
			t.Fatal(err)
		}
	}
	b.Start(rt)
	b.Eventually("all projections are started", func() bool {
		status, err := rt.Status(b.Ctx, admin.StatusFilter{})
		return err == nil && len(status.Projections) == tenants+1 &&
			!slices.ContainsFunc(status.Projections,
				func(p admin.ProjectionStatus) bool { return p.State != admin.StateLive })
	})
	without := b.latency(rt)

	// One transaction holds an append of each tenant open. After it each tenant has an event that cannot be settled.
	conn, err := pgx.Connect(b.Ctx, b.dsn)
	b.Must(err)
	defer func() { _ = conn.Close(b.Ctx) }()
	if _, err := conn.Exec(b.Ctx, "begin"); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		tenant, err := b.store.ForTenant(name)
		b.Must(err)
		_, err = conn.Exec(b.Ctx, "insert into millrace_"+name+
			".events (stream_id, stream_version, type, body) values ('x', 1, 'x', '1')")
		b.Must(err)
		_, err = tenant.Append(b.Ctx, "a", event.Any, event.Event{Type: "counted"})
		b.Must(err)
	}
	b.Eventually("all are held back", func() bool {
		status, err := rt.Status(b.Ctx, admin.StatusFilter{})
		held := 0
		for _, tenant := range status.Tenants {
			if tenant.Held != nil {
				held++
			}
		}
		return err == nil && held == tenants
	})
	with := b.latency(rt)
	t.Logf("%v without appends that stay open, %v with %d of them", without, with, tenants)
	if with > most*without {
		t.Errorf("the latency grew from %v to %v", without, with)
	}
}

// stateOf is the status of the projection p of a tenant, and of the tenant, as a runtime sees them.
func (b *bundle) stateOf(rt *millrace.Runtime, tenant string) (p admin.ProjectionStatus, t admin.TenantStatus) {
	b.T.Helper()
	status, err := rt.Status(b.Ctx, admin.StatusFilter{Tenants: []string{tenant}})
	b.Must(err)
	return status.Projection(millrace.ProjectionID{Tenant: tenant, Name: "p"}), status.Tenants[0]
}

// TestTenantWhoseSchemaIsGoneIsNamedUntilItIsBack takes a tenant's schema away by hand while its projection is live and
// idle, gives it back, drops it for good, and removes the rest of the tenant.
func TestTenantWhoseSchemaIsGoneIsNamedUntilItIsBack(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	acme, err := b.store.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	config := millrace.Config{
		Store: tuning.Settings{Reconcile: 100 * time.Millisecond}, PollInterval: 100 * time.Millisecond,
	}
	rt := b.Running(config, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	// does not run: it knows what the database knows
	elsewhere := b.Another(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
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
					return strings.Contains(reason, `schema "millrace_acme" of tenant "acme" is gone`) &&
						strings.Contains(reason, "restore it, or remove the tenant")
				}
				return p.State == admin.StateFailed && named(p.Reason) && named(tenant.Reason)
			})
		}
		if p, tenant := b.stateOf(rt, "default"); p.State == admin.StateFailed || tenant.Reason != "" {
			t.Errorf("the other tenant: %+v, %+v", p, tenant)
		}
		if err := rt.WaitFor(b.Ctx, id, 1<<40); !errors.Is(err, tenancy.ErrDropped) {
			t.Errorf("WaitFor: %v", err)
		}
		if _, err := acme.Append(b.Ctx, "s", event.Any, event.Event{Type: "counted"}); !errors.Is(err,
			tenancy.ErrDropped) {
			t.Errorf("Append: %v", err)
		}
		for _, err := range acme.ReadAll(b.Ctx, event.ReadOptions{}) {
			if !errors.Is(err, tenancy.ErrDropped) {
				t.Errorf("ReadAll: %v", err)
			}
		}
		if _, err := elsewhere.RunUntilIdle(b.Ctx); !errors.Is(err, tenancy.ErrDropped) {
			t.Errorf("RunUntilIdle: %v", err)
		}
		if _, err := b.store.CreateTenant(b.Ctx, "acme"); !errors.Is(err, tenancy.ErrDropped) {
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
			return p.State == admin.StateLive && p.Reason == "" && tenant.Reason == ""
		})
	}
	arrive()

	b.exec("drop schema millrace_acme cascade")
	gone()
	b.Must(b.store.DropTenant(b.Ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
	b.Eventually("the tenant is gone from the status", func() bool {
		p, tenant := b.stateOf(rt, "acme")
		return p.ID.Name == "" && strings.Contains(tenant.Reason, tenancy.ErrUnknown.Error())
	})
	if _, err := acme.Append(b.Ctx, "s", event.Any, event.Event{Type: "counted"}); !errors.Is(err, tenancy.ErrUnknown) {
		t.Errorf("Append: %v", err)
	}
	b.Eventually("the node gives its projection up", func() bool {
		return errors.Is(rt.WaitFor(b.Ctx, id, 1<<40), tenancy.ErrUnknown)
	})
	if _, err := b.store.CreateTenant(b.Ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	arrive()
	b.Eventually("the tenant that was made anew is live", func() bool {
		p, tenant := b.stateOf(rt, "acme")
		return p.State == admin.StateLive && tenant.Reason == ""
	})
}
