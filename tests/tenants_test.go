package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// unpolled is a configuration of a node that notices nothing by polling while a test runs.
var unpolled = millrace.Config{Store: tuning.Settings{Reconcile: 10 * time.Minute}, PollInterval: 10 * time.Minute}

// doNothing are projections that do nothing.
func doNothing(b *kit.Bundle, names ...string) (list []millrace.Projection) {
	for _, name := range names {
		list = append(list, millrace.Projection{Name: name, Handler: b.Store.Batch(kit.Nothing)})
	}
	return list
}

// fleet runs nodes with these projections, each with a store of its own, until all leases have owners.
func fleet(b *kit.Bundle, nodes int, config millrace.Config,
	projections ...millrace.Projection) (all []*millrace.Runtime) {
	b.T.Helper()
	for range nodes {
		rt := b.Another(config, projections...)
		b.Start(rt)
		all = append(all, rt)
	}
	b.Share(all[0], b.Kind.Sharing(nodes))
	return all
}

// TestNewTenantRunsAtOnceOnEveryNode creates tenants one by one and many at once, each right after the other. Nodes
// that waited for a poll would need 10 minutes.
func TestNewTenantRunsAtOnceOnEveryNode(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const single, many = 10, 100
		nodes := fleet(b, 3, unpolled, doNothing(b, "p", "q", "r")...)
		creator := b.Again()
		run := func(tenants int) {
			t.Helper()
			b.Eventually(fmt.Sprintf("the projections of %d tenants run", tenants), func() bool {
				all := b.StatusOf(nodes[0]).Projections
				return len(all) == 3*tenants && !slices.ContainsFunc(all,
					func(p admin.ProjectionStatus) bool { return p.Owner == "" })
			})
		}
		for i := range single {
			name := fmt.Sprint("single", i)
			tenant, err := creator.CreateTenant(b.Ctx, name)
			b.Must(err)
			run(2 + i)
			b.ReachesOf(nodes[i%len(nodes)], name, "p", b.AppendTo(tenant, "s", 1))
		}
		names := make([]string, many)
		for i := range names {
			names[i] = fmt.Sprint("many", i)
		}
		_, err := creator.CreateTenants(b.Ctx, names)
		b.Must(err)
		run(1 + single + many)
	})
}

// A projection of a tenant that was created just now is known to a runtime that registered it, whether or not it runs.
func TestProjectionOfANewTenantIsKnownAtOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		p := doNothing(b, "p")
		idle, running := b.Runtime(unpolled, p...), b.Running(unpolled, p...)
		for i, rt := range []*millrace.Runtime{idle, running, idle, running} {
			id := millrace.ProjectionID{Tenant: fmt.Sprint("t", i), Name: "p"}
			tenant, err := b.Store.CreateTenant(b.Ctx, id.Tenant)
			b.Must(err)
			b.Must(rt.Pause(b.Ctx, id))
			if err := rt.WaitFor(b.Ctx, id, 1); !errors.Is(err, projection.ErrPaused) {
				t.Errorf("WaitFor: %v", err)
			}
			b.Must(rt.Resume(b.Ctx, id))
			b.ReachesOf(rt, id.Tenant, "p", b.AppendTo(tenant, "s", 1))
		}
		for _, id := range []millrace.ProjectionID{{Tenant: "t0", Name: "other"}, {Name: "other"}} {
			if err := idle.Pause(b.Ctx, id); !errors.Is(err, projection.ErrUnknownProjection) {
				t.Errorf("Pause of a projection that is not registered: %v", err)
			}
		}
		for _, of := range []func(context.Context, millrace.ProjectionID) error{idle.Pause, idle.Resume} {
			if err := of(b.Ctx, millrace.ProjectionID{Tenant: "none", Name: "p"}); !errors.Is(err, tenancy.ErrUnknown) {
				t.Errorf("a tenant that does not exist: %v", err)
			}
		}
	})
}

// A projection of a new tenant can be split before a node runs it, and while one begins to.
func TestProjectionOfANewTenantCanBeSplitAtOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		p := millrace.Projection{Name: "p", Partitions: 2, Handler: b.Store.Batch(kit.Nothing)}
		for i, rt := range []*millrace.Runtime{b.Runtime(unpolled, p), b.Running(unpolled, p)} {
			id := millrace.ProjectionID{Tenant: fmt.Sprint("t", i), Name: "p"}
			if err := rt.Repartition(b.Ctx, id, 4); !errors.Is(err, tenancy.ErrUnknown) {
				t.Errorf("before the tenant exists: %v", err)
			}
			_, err := b.Store.CreateTenant(b.Ctx, id.Tenant)
			b.Must(err)
			b.Must(rt.Repartition(b.Ctx, id, 4))
			status, err := rt.Status(b.Ctx, admin.StatusFilter{Tenants: []string{id.Tenant}})
			b.Must(err)
			if n := len(status.Projections); n != 4 {
				t.Errorf("%d partitions, want 4", n)
			}
			other := id
			other.Name = "other"
			if err := rt.Repartition(b.Ctx, other, 4); !errors.Is(err, projection.ErrUnknownProjection) {
				t.Errorf("a projection that is not registered: %v", err)
			}
		}
	})
}

// TestPauseOfATenantIsIndependentOfItsProjections pauses a tenant on several nodes while events arrive.
func TestPauseOfATenantIsIndependentOfItsProjections(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme := b.Tenants(2)[1]
		list := doNothing(b, "p", "q")
		nodes := fleet(b, 2, unpolled, list...)
		control := b.Runtime(millrace.Config{}, list...)
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
				if s.State != admin.StatePaused || s.Reason != reason || s.Owner != "" || s.Checkpoint == head {
					t.Errorf("%s: %+v, want it paused with reason %q", name, s, reason)
				}
				if err := nodes[1].WaitFor(b.Ctx, id(name), head); !errors.Is(err, projection.ErrPaused) ||
					!strings.Contains(err.Error(), reason) {
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
		if b.Kind.Meets(kit.SeveralNodes) {
			// A node that starts, with a projection that is new, follows.
			late := b.Another(unpolled, append(list, doNothing(b, "r")...)...)
			stop := b.Start(late)
			b.Reaches(late, "r", b.Append("s", 1).Positions[0])
			rests("the tenant is paused", "p", "q", "r")
			stop()
		}
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
			for _, name := range []string{"none", "no\nname"} { // no tenant can have the second one
				if err := of(b.Ctx, name); !errors.Is(err, tenancy.ErrUnknown) {
					t.Errorf("a tenant %q that does not exist: %v", name, err)
				}
			}
		}
	})
}

// appendWays are the ways in which events are appended to a tenant.
var appendWays = map[string]func(b *kit.Bundle, tenant kit.Tenant) error{
	"Append": func(b *kit.Bundle, tenant kit.Tenant) error {
		_, err := tenant.Append(b.Ctx, "s", event.Any, kit.SomeEvents(2)...)
		return err
	},
	"Append to a new stream": func(b *kit.Bundle, tenant kit.Tenant) error {
		_, err := tenant.Append(b.Ctx, "new", event.NoStream, kit.SomeEvents(1)...)
		return err
	},
	"Append of a version": func(b *kit.Bundle, tenant kit.Tenant) error {
		_, err := tenant.Append(b.Ctx, "t", event.Exact(1), kit.SomeEvents(1)...)
		return err
	},
	"Append with a key": func(b *kit.Bundle, tenant kit.Tenant) error {
		_, err := tenant.Append(b.Ctx, "s", event.Any.WithKey("k2"), kit.SomeEvents(1)...)
		return err
	},
	"AppendTx": func(b *kit.Bundle, tenant kit.Tenant) error {
		return b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			if err := tx.Record(ctx, "half written", event.Envelope{Position: 1}); err != nil {
				return err
			}
			_, err := tenant.AppendTx(ctx, tx, "s", event.Any, kit.SomeEvents(1)...)
			return err
		})
	},
	"AppendTx with a key": func(b *kit.Bundle, tenant kit.Tenant) error {
		return b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			_, err := tenant.AppendTx(ctx, tx, "s", event.Any.WithKey("k3"), kit.SomeEvents(1)...)
			return err
		})
	},
}

func TestArchivedTenantRefusesAppends(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme {state} $1")
		b.Must(err)
		b.AppendTo(acme, "s", 3)
		b.AppendTo(acme, "t", 1)
		is := func(want tenancy.State) {
			t.Helper()
			if state, err := acme.State(b.Ctx); state != want || err != nil {
				t.Errorf("the tenant is %s, %v, want %s", state, err, want)
			}
		}
		for range 2 {
			for range 2 {
				b.Must(b.Store.ArchiveTenant(b.Ctx, acme.Name()))
				is(tenancy.Archived)
			}
			for way, append := range appendWays {
				if err := append(b, acme); !errors.Is(err, tenancy.ErrArchived) {
					t.Errorf("%s: error %v", way, err)
				}
			}
			if all, stream := b.All(acme), b.Collect(acme.ReadStream(b.Ctx, "s", 1)); len(all) != 4 ||
				len(stream) != 3 {
				t.Errorf("read %d events, %d of a stream", len(all), len(stream))
			}
			if half := b.Positions("half written"); len(half) != 0 {
				t.Errorf("half of a transaction was written: %v", half)
			}
			_, err := b.Store.CreateTenant(b.Ctx, acme.Name())
			b.Must(err)
			b.Must(b.Store.Migrate(b.Ctx))
			is(tenancy.Archived)
			b.Append("s", 1) // to another tenant
			for range 2 {
				b.Must(b.Store.UnarchiveTenant(b.Ctx, acme.Name()))
				is(tenancy.Active)
			}
		}
		for way, append := range appendWays {
			if err := append(b, acme); err != nil {
				t.Errorf("%s to a tenant that was brought back: %v", way, err)
			}
		}
		if last := b.All(acme); last[len(last)-1].Position != int64(len(last)) {
			t.Errorf("appends that were refused drew positions: %+v", last)
		}
		for doing, err := range map[string]error{"archive": b.Store.ArchiveTenant(b.Ctx, "none"),
			"unarchive": b.Store.UnarchiveTenant(b.Ctx, "none")} {
			if !errors.Is(err, tenancy.ErrUnknown) {
				t.Errorf("%s a tenant that does not exist: %v", doing, err)
			}
		}
	})
}

// The projections of an archived tenant do not run, and continue when it is back.
func TestProjectionsOfAnArchivedTenantWait(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme := b.Tenants(2)[1]
		rt := b.Running(unpolled, doNothing(b, "p")...)
		last := b.AppendTo(acme, "s", 5)
		b.ReachesOf(rt, acme.Name(), "p", last)
		b.Must(b.Store.ArchiveTenant(b.Ctx, acme.Name()))
		id := millrace.ProjectionID{Tenant: acme.Name(), Name: "p"}
		if s := b.StatusOf(rt).Projection(id); s.State != admin.StatePaused || s.Owner != "" || s.Checkpoint != last {
			t.Errorf("%+v", s)
		}
		b.Reaches(rt, "p", b.Append("s", 1).Positions[0]) // another tenant
		b.Must(b.Store.UnarchiveTenant(b.Ctx, acme.Name()))
		b.ReachesOf(rt, acme.Name(), "p", b.AppendTo(acme, "s", 1))
	})
}

// A handler that appends to an archived tenant waits until the tenant is back. The event is not parked, and other
// projections of its tenant continue.
func TestHandlerThatAppendsToAnArchivedTenantWaits(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		target, err := b.Store.CreateTenant(b.Ctx, "target")
		b.Must(err)
		forward := b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			_, err := target.AppendTx(ctx, tx, e.Stream, event.Any, event.Event{Type: "forwarded"})
			return err
		})
		rt := b.Running(millrace.Config{Tenants: []string{projection.DefaultTenant}},
			append(doNothing(b, "other"), millrace.Projection{Name: "forward", Handler: forward})...)
		b.Must(b.Store.ArchiveTenant(b.Ctx, "target"))
		last := b.Append("s", 3).Positions[2]
		if s := b.Is(rt, "forward", admin.StateMissingObject); !strings.Contains(s.Reason,
			tenancy.ErrArchived.Error()) || s.Parked != 0 || s.Attempts != 0 {
			t.Errorf("status %+v", s)
		}
		b.Reaches(rt, "other", last)
		b.Must(b.Store.UnarchiveTenant(b.Ctx, "target"))
		b.Reaches(rt, "forward", last)
		if n := len(b.All(target)); n != 3 {
			t.Errorf("%d events were forwarded, want 3", n)
		}
	})
}

// A node that serves a single tenant keeps running when the tenant is dropped, and serves it when it is created again.
func TestNodeOfADroppedTenantServesItWhenItIsCreatedAgain(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		config := unpolled
		config.Tenants = []string{"acme"}
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		rt := b.Running(config, doNothing(b, "p")...)
		for range 3 {
			if r := b.MustAppend(acme, "s", event.NoStream.WithKey("k"), kit.SomeEvents(1)...); r.Repeated ||
				r.Positions[0] != 1 {
				t.Errorf("the first append: %+v", r)
			}
			b.ReachesOf(rt, "acme", "p", 1)
			b.Must(b.Store.DropTenant(b.Ctx, "acme"))
			if n := len(b.StatusOf(rt).Projections); n != 0 {
				t.Errorf("%d projections are left", n)
			}
			if _, err := acme.Append(b.Ctx, "s", event.Any, kit.SomeEvents(1)...); !errors.Is(err, tenancy.ErrUnknown) {
				t.Errorf("append to a dropped tenant: %v", err)
			}
			_, err = b.Store.CreateTenant(b.Ctx, "acme")
			b.Must(err)
		}
		b.ReachesOf(rt, "acme", "p", b.AppendTo(acme, "s", 1))
	})
}
