package tests_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// quick lets nodes find new tenants and dead nodes soon.
func quick() millrace.Config {
	c := kit.Tuned(kit.Quick, func(s *tuning.Settings) { s.Heartbeat = 500 * time.Millisecond })
	c.LeaseDuration = 2 * time.Second
	return c
}

// recorderFor returns a recorder that runs for some tenants.
func recorderFor(b *kit.Bundle, name string, tenants ...string) millrace.Projection {
	p := b.Recorders(name)[0]
	p.Tenants = tenants
	return p
}

// named makes tenants beside the default one, and returns them by name, that one included.
func named(b *kit.Bundle, names ...string) map[string]kit.Tenant {
	b.T.Helper()
	made, err := b.Store.CreateTenants(b.Ctx, names)
	b.Must(err)
	all := map[string]kit.Tenant{projection.DefaultTenant: b.Store}
	for _, tenant := range made {
		all[tenant.Name()] = tenant
	}
	return all
}

// feed appends events to a stream of each tenant, which has the tenant's name, and returns each one's last position.
func feed(b *kit.Bundle, tenants map[string]kit.Tenant, n int) map[string]int64 {
	b.T.Helper()
	last := make(map[string]int64)
	for name, tenant := range tenants {
		last[name] = b.AppendTo(tenant, name, n)
	}
	return last
}

// appliedOnce checks that a projection applied events of exactly these tenants: each event once, in order, and the
// number of each tenant's events that is given.
func appliedOnce(b *kit.Bundle, name string, want map[string]int) {
	b.T.Helper()
	applied, err := b.Store.Applied(b.Ctx, name)
	b.Must(err)
	got := make(map[string]int)
	for _, a := range applied {
		got[a.Stream]++
		if int64(got[a.Stream]) != a.Version {
			b.T.Errorf("%s applied %+v as event %d of %s", name, a, got[a.Stream], a.Stream)
		}
	}
	if !maps.Equal(got, want) {
		b.T.Errorf("%s applied %v, want %v", name, got, want)
	}
}

// pairsOf returns the projections that exist as "tenant/name", sorted.
func pairsOf(b *kit.Bundle, rt *millrace.Runtime) (pairs []string) {
	b.T.Helper()
	for _, p := range b.StatusOf(rt).Projections {
		pairs = append(pairs, p.ID.Tenant+"/"+p.ID.Name)
	}
	return pairs
}

// ownersOf returns the nodes that own a projection's leases, by tenant.
func ownersOf(b *kit.Bundle, rt *millrace.Runtime, name string) map[string]string {
	b.T.Helper()
	owners := make(map[string]string)
	for _, p := range b.StatusOf(rt).Projections {
		if p.ID.Name == name {
			owners[p.ID.Tenant] = p.Owner
		}
	}
	return owners
}

func TestProjectionRunsForTheTenantsThatItsFilterMatches(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := named(b, "eu-a", "eu-b", "us-a", "x*y", "xzy")
		feed(b, tenants, 10)
		rt := b.Runtime(millrace.Config{}, recorderFor(b, "eu", "eu-*"),
			recorderFor(b, "one", millrace.ExactTenant("x*y"), "us-a"), recorderFor(b, "none", "not-yet"))
		b.RunUntilIdle(rt)
		appliedOnce(b, "eu", map[string]int{"eu-a": 10, "eu-b": 10})
		appliedOnce(b, "one", map[string]int{"x*y": 10, "us-a": 10})
		appliedOnce(b, "none", map[string]int{})
		exist := []string{"eu-a/eu", "eu-b/eu", "us-a/one", "x*y/one"}
		if pairs := pairsOf(b, rt); !slices.Equal(pairs, exist) {
			t.Errorf("the projections are %v", pairs)
		}

		// A projection that the filter leaves out is unknown, also to the runtime that has its name registered.
		b.Start(rt)
		out := millrace.ProjectionID{Tenant: "us-a", Name: "eu"}
		ctx, cancel := context.WithTimeout(b.Ctx, 30*time.Second)
		defer cancel()
		for what, err := range map[string]error{
			"Pause": rt.Pause(ctx, out), "Resume": rt.Resume(ctx, out), "WaitFor": rt.WaitFor(ctx, out, 1),
		} {
			if !errors.Is(err, projection.ErrUnknownProjection) {
				t.Errorf("%s of a projection that the filter leaves out: %v", what, err)
			}
		}
		if pairs := pairsOf(b, rt); !slices.Equal(pairs, exist) {
			t.Errorf("the projections are %v after operations on one that is unknown", pairs)
		}
		// A tenant that no projection wants costs nothing: the node has no feed, and so no settled mark.
		b.ReachesOf(rt, "eu-a", "eu", 10)
		for _, tenant := range b.StatusOf(rt).Tenants {
			if unwanted := tenant.Tenant == "xzy" ||
				tenant.Tenant == projection.DefaultTenant; unwanted && tenant.Mark != 0 {
				t.Errorf("%+v of a tenant that no projection wants", tenant)
			}
		}
	})
}

func TestTenantsOfRuntimeAndProjectionAreIntersected(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := named(b, "a1", "a2", "b1")
		last := feed(b, tenants, 5)
		rt := b.Runtime(millrace.Config{Tenants: []string{"a2", "b1"}}, recorderFor(b, "p", "a*"),
			recorderFor(b, "all"))
		b.RunUntilIdle(rt)
		appliedOnce(b, "p", map[string]int{"a2": 5})
		appliedOnce(b, "all", map[string]int{"a2": 5, "b1": 5})
		b.Start(rt)
		ctx, cancel := context.WithTimeout(b.Ctx, 30*time.Second)
		defer cancel()
		for _, out := range []string{"a1", "b1"} {
			id := millrace.ProjectionID{Tenant: out, Name: "p"}
			if err := rt.WaitFor(ctx, id, last[out]); !errors.Is(err, projection.ErrUnknownProjection) {
				t.Errorf("waiting for %s: %v", id, err)
			}
		}
		var nodes []admin.NodeStatus
		b.Eventually("the node is registered", func() bool {
			nodes = b.Summary(rt).Nodes
			return len(nodes) == 1
		})
		if !maps.EqualFunc(nodes[0].Filters, map[string][]string{"p": {"a*"}}, slices.Equal) ||
			!slices.Equal(nodes[0].Tenants, []string{"a2", "b1"}) {
			t.Errorf("the status of the nodes is %+v", nodes)
		}
	})
}

func TestTenantThatIsCreatedLaterRunsIfItMatches(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(quick(), recorderFor(b, "p", "a*", "later"), recorderFor(b, "all"))
		b.Reaches(rt, "all", b.Append("default", 1).Positions[0])
		tenants := named(b, "a1", "b1", "later")
		last := feed(b, tenants, 3)
		for _, id := range []millrace.ProjectionID{{Tenant: "a1", Name: "p"}, {Tenant: "later", Name: "p"},
			{Tenant: "a1", Name: "all"}, {Tenant: "b1", Name: "all"}} {
			b.ReachesOf(rt, id.Tenant, id.Name, last[id.Tenant])
		}
		appliedOnce(b, "p", map[string]int{"a1": 3, "later": 3})
		if owners := ownersOf(b, rt, "p"); len(owners) != 2 {
			t.Errorf("the filtered projection exists for %v", owners)
		}
	})
}

func TestNodesWithDifferentFiltersShareWhatTheyHaveInCommon(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var names []string
		for i := range 8 {
			names = append(names, fmt.Sprint("a", i), fmt.Sprint("b", i))
		}
		tenants := named(b, names...)
		// The first node runs p for a*, the second for b*, the third for all. So a* has two nodes, b* has two, and the
		// default tenant one.
		nodes := []*millrace.Runtime{
			b.Another(quick(), recorderFor(b, "p", "a*")), b.Another(quick(), recorderFor(b, "p", "b*")),
			b.Another(quick(), recorderFor(b, "p")),
		}
		stops := make([]func(), len(nodes))
		for i, node := range nodes {
			stops[i] = b.Start(node)
		}
		ids := make([]string, len(nodes))
		b.Eventually("all nodes run", func() bool {
			for i, node := range nodes {
				ids[i] = b.StatusOf(node).Node
			}
			return !slices.Contains(ids, "")
		})
		// shares counts each node's leases of a* and b*.
		shares := func() map[string]int {
			counts := make(map[string]int)
			for tenant, owner := range ownersOf(b, nodes[2], "p") {
				counts[fmt.Sprint(slices.Index(ids, owner), " ", tenant[:1])]++
			}
			return counts
		}
		b.Eventually("each shares what it knows", func() bool {
			return maps.Equal(shares(), map[string]int{"0 a": 4, "1 b": 4, "2 a": 4, "2 b": 4, "2 d": 1})
		})
		last := feed(b, tenants, 5)
		stops[2]()
		rt := nodes[0]
		for name, position := range last {
			if name != projection.DefaultTenant {
				b.ReachesOf(rt, name, "p", position)
			}
		}
		b.Eventually("the tenant that no node wants is named", func() bool {
			p := b.Status(rt, "p")
			return p.State == admin.StateUnregistered && p.Reason == "no node registers the projection for its tenant"
		})
		b.Eventually("the others run what they know", func() bool {
			return maps.Equal(shares(), map[string]int{"0 a": 8, "1 b": 8, "-1 d": 1})
		})
	}, kit.SeveralNodes)
}

// A release widens the filter, the next one narrows it again. What no node wants is left as it is, and continues later.
func TestRollingDeploymentsChangeTheFilter(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := named(b, "a1", "a2", "b1")
		delete(tenants, projection.DefaultTenant)
		release := func(entries ...string) (rt *millrace.Runtime, stop func()) {
			rt = b.Another(quick(), recorderFor(b, "p", entries...))
			return rt, b.Start(rt)
		}
		reaches := func(rt *millrace.Runtime, last map[string]int64, names ...string) {
			t.Helper()
			for _, name := range names {
				b.ReachesOf(rt, name, "p", last[name])
			}
		}
		old, stopOld := release("a*")
		reaches(old, feed(b, tenants, 10), "a1", "a2")
		appliedOnce(b, "p", map[string]int{"a1": 10, "a2": 10})

		wide, stopWide := release("a*", "b*")
		reaches(wide, feed(b, tenants, 10), "a1", "a2", "b1")
		b.Eventually("the old node runs a share of what it knows", func() bool { return leasesOf(b, old) == 1 })
		if owner := ownersOf(b, wide, "p")["b1"]; owner != b.StatusOf(wide).Node {
			t.Errorf("%q owns what only the new release knows", owner)
		}
		stopOld()
		reaches(wide, feed(b, tenants, 10), "a1", "a2", "b1")
		appliedOnce(b, "p", map[string]int{"a1": 30, "a2": 30, "b1": 30})

		narrow, stopNarrow := release("a2")
		stopWide()
		last := feed(b, tenants, 10)
		reaches(narrow, last, "a2")
		b.Eventually("the others are not registered, and status says so", func() bool {
			status := b.StatusOf(narrow)
			return b.Summary(narrow).Unregistered == 2 &&
				!slices.ContainsFunc([]string{"a1", "b1"}, func(tenant string) bool {
					p := status.Projection(millrace.ProjectionID{Tenant: tenant, Name: "p"})
					return p.State != admin.StateUnregistered ||
						p.Reason != "no node registers the projection for its tenant" || p.Checkpoint != last[tenant]-10
				})
		})
		// Whoever waits for an alarm to end can pause them.
		b.Must(narrow.Pause(b.Ctx, millrace.ProjectionID{Tenant: "a1", Name: "p"}))
		if summary := b.Summary(narrow); summary.Unregistered != 1 || summary.NotOwned != 0 {
			t.Errorf("after one was paused, %d are not registered and %d not owned", summary.Unregistered,
				summary.NotOwned)
		}
		stopNarrow()

		again, _ := release()
		b.Must(again.Resume(b.Ctx, millrace.ProjectionID{Tenant: "a1", Name: "p"}))
		reaches(again, last, "a1", "a2", "b1")
		appliedOnce(b, "p", map[string]int{"a1": 40, "a2": 40, "b1": 40})
	}, kit.SeveralNodes)
}
