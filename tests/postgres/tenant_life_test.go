package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// slow is a configuration of a node that notices nothing by polling while a test runs.
var slow = millrace.Config{PollInterval: 10 * time.Minute, ReconcileInterval: 10 * time.Minute}

// fleet runs nodes with these projections, each with a store of its own, until all leases have owners.
func (b *bundle) fleet(nodes int, config millrace.Config, projections ...millrace.Projection) (all []*millrace.Runtime) {
	b.T.Helper()
	for range nodes {
		rt := b.Another(config, projections...)
		b.Start(rt)
		all = append(all, rt)
	}
	b.Share(all[0], nodes)
	return all
}

// TestNewTenantRunsAtOnceOnEveryNode creates tenants one by one and many at once, each right after the other. Nodes that waited
// for a poll would need 10 minutes.
func TestNewTenantRunsAtOnceOnEveryNode(t *testing.T) {
	const single, many = 30, 100
	b := setup(t, pgstore.Options{})
	list := []millrace.Projection{
		{Name: "p", Handler: b.Store.Batch(kit.Nothing)}, {Name: "q", Handler: b.Store.Batch(kit.Nothing)}, {Name: "r", Handler: b.Store.Batch(kit.Nothing)}}
	nodes := b.fleet(3, slow, list...)
	creator := b.elsewhere(pgstore.Options{})
	unowned := func() int { return value[int](b, "select count(*) from millrace.leases where owner is null") }
	leases := func() int { return value[int](b, "select count(*) from millrace.leases") }
	var took []time.Duration
	for i := range single {
		name := fmt.Sprint("single", i)
		tenant, err := creator.CreateTenant(b.Ctx, name)
		b.Must(err)
		began := time.Now()
		for leases() < (i+2)*len(list) || unowned() > 0 {
			b.Must(b.Ctx.Err())
		}
		took = append(took, time.Since(began))
		r, err := tenant.Append(b.Ctx, "s", event.Any, event.Event{Type: "counted"})
		b.Must(err)
		b.ReachesOf(nodes[i%len(nodes)], name, "p", r.Positions[0])
	}
	slices.Sort(took)
	t.Logf("from the return of CreateTenant until all leases have owners: %v in the middle, %v at most", took[len(took)/2], took[len(took)-1])
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprint("many", i)
	}
	b.Must(creator.CreateTenants(b.Ctx, names...))
	began := time.Now()
	b.Eventually("all run", func() bool { return leases() == (1+single+many)*len(list) && unowned() == 0 })
	t.Logf("%d tenants: %v after the return of CreateTenants", many, time.Since(began))
}

// A projection of a tenant that was created just now is known to a runtime that registered it, whether or not it runs.
func TestProjectionOfANewTenantIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)}
	idle, running := b.Runtime(slow, p), b.Running(slow, p)
	for i, rt := range []*millrace.Runtime{idle, running, idle, running} {
		id := millrace.ProjectionID{Tenant: fmt.Sprint("t", i), Name: "p"}
		tenant, err := b.store.CreateTenant(b.Ctx, id.Tenant)
		b.Must(err)
		b.Must(rt.Pause(b.Ctx, id))
		if err := rt.WaitFor(b.Ctx, id, 1); !errors.Is(err, projection.ErrPaused) {
			t.Errorf("WaitFor: %v", err)
		}
		b.Must(rt.Resume(b.Ctx, id))
		r, err := tenant.Append(b.Ctx, "s", event.Any, event.Event{Type: "counted"})
		b.Must(err)
		b.ReachesOf(rt, id.Tenant, "p", r.Positions[0])
	}
	for _, id := range []millrace.ProjectionID{{Tenant: "t0", Name: "other"}, {Name: "other"}} {
		if err := idle.Pause(b.Ctx, id); !errors.Is(err, projection.ErrUnknownProjection) {
			t.Errorf("Pause of a projection that is not registered: %v", err)
		}
	}
	for _, of := range []func(context.Context, millrace.ProjectionID) error{idle.Pause, idle.Resume} {
		if err := of(b.Ctx, millrace.ProjectionID{Tenant: "none", Name: "p"}); !errors.Is(err, projection.ErrUnknownTenant) {
			t.Errorf("a tenant that does not exist: %v", err)
		}
	}
}

// A projection of a new tenant can be split before a node runs it, and while one begins to.
func TestProjectionOfANewTenantCanBeSplitAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	p := millrace.Projection{Name: "p", Partitions: 2, Handler: b.Store.Batch(kit.Nothing)}
	for i, rt := range []*millrace.Runtime{b.Runtime(slow, p), b.Running(slow, p)} {
		id := millrace.ProjectionID{Tenant: fmt.Sprint("t", i), Name: "p"}
		if err := rt.Repartition(b.Ctx, id, 4); !errors.Is(err, projection.ErrUnknownTenant) {
			t.Errorf("before the tenant exists: %v", err)
		}
		_, err := b.store.CreateTenant(b.Ctx, id.Tenant)
		b.Must(err)
		b.Must(rt.Repartition(b.Ctx, id, 4))
		if n := value[int](b, "select count(*) from millrace.projections where tenant = $1", id.Tenant); n != 4 {
			t.Errorf("%d partitions, want 4", n)
		}
		other := id
		other.Name = "other"
		if err := rt.Repartition(b.Ctx, other, 4); !errors.Is(err, projection.ErrUnknownProjection) {
			t.Errorf("a projection that is not registered: %v", err)
		}
	}
}

// TestPauseOfATenantIsIndependentOfItsProjections pauses a tenant on several nodes while events arrive.
func TestPauseOfATenantIsIndependentOfItsProjections(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	acme := b.Tenants(2)[1]
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)}
	q := millrace.Projection{Name: "q", Handler: b.Store.Batch(kit.Nothing)}
	nodes := b.fleet(2, slow, p, q)
	control := b.Runtime(millrace.Config{}, p, q)
	id := func(name string) millrace.ProjectionID { return millrace.ProjectionID{Tenant: acme.Name(), Name: name} }
	reach := func(name string) {
		t.Helper()
		b.ReachesOf(nodes[0], acme.Name(), name, b.AppendTo(acme, "s", 1))
	}
	rests := func(reason string, names ...string) {
		t.Helper()
		head := b.AppendTo(acme, "s", 1)
		b.Reaches(nodes[0], "p", b.Append("s", 1).Positions[0]) // the other tenant runs
		for _, name := range names {
			s := b.StatusOf(control).Projection(id(name))
			if s.State != millrace.StatePaused || s.Reason != reason || s.Owner != "" || s.Checkpoint == head {
				t.Errorf("%s: %+v, want it paused with reason %q", name, s, reason)
			}
			if err := nodes[1].WaitFor(b.Ctx, id(name), head); !errors.Is(err, projection.ErrPaused) || !strings.Contains(err.Error(), reason) {
				t.Errorf("WaitFor: %v", err)
			}
		}
	}
	reach("p")
	b.Must(control.PauseTenant(b.Ctx, acme.Name()))
	rests("the tenant is paused", "p", "q")
	// Resuming a projection does not run it, and pausing one outlasts the tenant's pause.
	b.Must(control.Resume(b.Ctx, id("p")))
	b.Must(control.Pause(b.Ctx, id("q")))
	rests("the tenant is paused", "p", "q")
	// A node that starts, with a projection that is new, follows.
	late := b.Another(slow, p, q, millrace.Projection{Name: "r", Handler: b.Store.Batch(kit.Nothing)})
	stop := b.Start(late)
	b.Reaches(late, "r", b.Append("s", 1).Positions[0])
	rests("the tenant is paused", "p", "q", "r")
	stop()
	b.Must(control.ResumeTenant(b.Ctx, acme.Name()))
	reach("p")
	rests("", "q")
	b.Must(control.Resume(b.Ctx, id("q")))
	reach("q")
	// A pause of the tenant leaves the pause of a projection.
	b.Must(control.Pause(b.Ctx, id("q")))
	b.Must(control.PauseTenant(b.Ctx, acme.Name()))
	b.Must(control.PauseTenant(b.Ctx, acme.Name()))
	b.Must(control.ResumeTenant(b.Ctx, acme.Name()))
	reach("p")
	rests("", "q")
	for _, of := range []func(context.Context, string) error{control.PauseTenant, control.ResumeTenant} {
		if err := of(b.Ctx, "none"); !errors.Is(err, projection.ErrUnknownTenant) {
			t.Errorf("a tenant that does not exist: %v", err)
		}
	}
}
