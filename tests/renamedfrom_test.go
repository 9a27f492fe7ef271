package tests_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// release returns a projection that writes to the read model "model".
func release(b *kit.Bundle, name, renamedFrom string) millrace.Projection {
	return millrace.Projection{
		Name: name, RenamedFrom: renamedFrom, Partitions: 2, Handler: b.Store.Batch(kit.Record("model")),
	}
}

// namesByTenant returns the names of the projections of each tenant.
func namesByTenant(b *kit.Bundle) map[string][]string {
	b.T.Helper()
	status, err := newAdmin(b).Status(b.Ctx, admin.StatusFilter{Limit: 10_000})
	b.Must(err)
	names := make(map[string][]string)
	for _, p := range status.Projections {
		if list := names[p.ID.Tenant]; !slices.Contains(list, p.ID.Name) {
			names[p.ID.Tenant] = append(list, p.ID.Name)
		}
	}
	return names
}

// mustHaveApplied checks that the events of streams, whose names differ between tenants, were applied once and in
// order.
func mustHaveApplied(b *kit.Bundle, versions map[string]int64) {
	b.T.Helper()
	var applied []kit.Applied
	var err error
	last := make(map[string]int64)
	b.Eventually("all events are applied", func() bool {
		applied, err = b.Store.Applied(b.Ctx, "model")
		clear(last)
		for _, a := range applied {
			last[a.Stream] = max(last[a.Stream], a.Version)
		}
		for stream, version := range versions {
			if last[stream] < version {
				return false
			}
		}
		return err == nil
	})
	clear(last)
	for _, a := range applied {
		if a.Version != last[a.Stream]+1 {
			b.T.Errorf("%+v was applied after version %d", a, last[a.Stream])
		}
		last[a.Stream] = a.Version
	}
}

// A node of the next release starts while the old one serves. The old node serves until it ends, also new tenants of
// its own.
func TestNextReleaseTakesARenamedProjectionOver(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := b.Tenants(12)
		versions := make(map[string]int64)
		appendAll := func() {
			for _, tenant := range tenants {
				stream := "of " + tenant.Name()
				b.AppendTo(tenant, stream, 3)
				versions[stream] += 3
			}
		}
		appendAll()
		old := b.Another(kit.Quick, release(b, "totals", ""))
		stopOld := b.Start(old)
		mustHaveApplied(b, versions)
		log, logs := kit.Logs()
		config := kit.Quick
		config.Logger = log
		next := b.Another(config, release(b, "sums", "totals"))
		b.Start(next)
		waits := func() int {
			return logs.FilterMessageSnippet("waits").FilterField(zap.String("projection", "sums")).Len()
		}
		if b.Kind.Meets(kit.SeveralNodes) {
			b.Eventually("the next release waits", func() bool { return waits() == 1 })
		}
		appendAll()
		mustHaveApplied(b, versions)
		for tenant, names := range namesByTenant(b) {
			if !slices.Equal(names, []string{"totals"}) {
				t.Errorf("%s has %q while the old release runs", tenant, names)
			}
		}
		stopOld()
		appendAll()
		for _, tenant := range tenants {
			b.ReachesOf(next, tenant.Name(), "sums", 9)
		}
		mustHaveApplied(b, versions)
		if n := waits(); n > 1 {
			t.Errorf("%d entries in the log that it waits, want one for all tenants", n)
		}

		// The old release comes back, by mistake.
		log, logs = kit.Logs()
		config.Logger = log
		again := b.Another(config, release(b, "totals", ""))
		b.Start(again)
		if b.Kind.Meets(kit.SeveralNodes) {
			b.Eventually("it says why it runs nothing", func() bool {
				entries := logs.FilterMessageSnippet("retired").All()
				return len(entries) == 1 && strings.Contains(fmt.Sprint(entries[0].ContextMap()), `renamed to "sums"`)
			})
		}
		appendAll()
		mustHaveApplied(b, versions)
		for tenant, names := range namesByTenant(b) {
			if !slices.Equal(names, []string{"sums"}) {
				t.Errorf("%s has %q after the rename", tenant, names)
			}
		}
	})
}

// Nodes of both releases start at once, before there are any rows, while tenants are created. In each tenant one of
// them runs the projection.
func TestReleasesThatStartTogetherNeverRunBoth(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		versions := make(map[string]int64)
		var names []string
		for i := range 60 {
			names = append(names, fmt.Sprint("t", i))
		}
		create := func(names []string) {
			tenants, err := b.Store.CreateTenants(b.Ctx, names)
			b.Must(err)
			for _, tenant := range tenants {
				b.AppendTo(tenant, "of "+tenant.Name(), 2)
				versions["of "+tenant.Name()] = 2
			}
		}
		create(names[:30])
		old := b.Another(kit.Quick, release(b, "totals", ""))
		next := b.Another(kit.Quick, release(b, "sums", "totals"))
		stops := make([]func(), 4)
		b.Must(kit.Together(4, func(i int) error {
			rt := []*millrace.Runtime{old, next}[i%2]
			if i > 1 {
				rt = b.Another(kit.Quick, release(b, []string{"totals", "sums"}[i%2], []string{"", "totals"}[i%2]))
			}
			stops[i] = b.Start(rt)
			return nil
		}))
		for i := 30; i < 60; i += 3 {
			create(names[i : i+3])
		}
		mustHaveApplied(b, versions)
		for tenant, list := range namesByTenant(b) {
			if len(list) != 1 {
				t.Errorf("%s has %q", tenant, list)
			}
		}
		stops[0]()
		stops[2]()
		for _, name := range names {
			b.ReachesOf(next, name, "sums", 2)
		}
		mustHaveApplied(b, versions)
	})
}

// The node of the old release disappears without releasing its leases, and later tries to commit.
func TestNextReleaseTakesOverFromADeadNode(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		h.Refresh()
		b.Append("s", 2)
		rt := b.Another(kit.Quick, millrace.Projection{Name: "q",
			RenamedFrom: "p", Handler: b.Store.Batch(kit.Record("p"))})
		b.Start(rt)
		if b.Kind.Meets(kit.SeveralNodes) {
			b.Eventually("it knows the other node", func() bool { return len(b.Summary(rt).Nodes) == 2 })
			if names := existing(b); !slices.Equal(names, []string{"p"}) {
				t.Errorf("%q exist while the old node lives", names)
			}
		}
		b.Must(h.Session.Close(b.Ctx))
		b.Reaches(rt, "q", 5)
		if err := h.Apply(kit.Record("p"), engine.ApplyOptions{}); !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("the zombie commits: %v", err)
		}
		b.Verify("p")
	})
}

func TestWaitingProjectionMayBeRenamedByHand(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		old := b.Another(kit.Quick, release(b, "totals", ""))
		b.Start(old)
		b.Reaches(old, "totals", 3)
		next := b.Another(kit.Quick, release(b, "sums", "totals"))
		b.Start(next)
		b.Must(newAdmin(b).Rename(b.Ctx, id("totals"), "sums"))
		b.Append("s", 3)
		b.Reaches(next, "sums", 6)
		mustHaveApplied(b, map[string]int64{"s": 6})
	}, kit.SeveralNodes)
}

// Releases follow each other: each renames the projection, and the last one gives it its first name back.
func TestReleasesRenameOneAfterTheOther(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		versions := make(map[string]int64)
		for i, step := range [][2]string{{"a", ""}, {"b", "a"}, {"b", "a"}, {"c", "b"}, {"a", "c"}, {"b", "a"}} {
			b.Append("s", 2)
			versions["s"] += 2
			tenant, err := b.Store.CreateTenant(b.Ctx, fmt.Sprint("t", i))
			b.Must(err)
			b.AppendTo(tenant, "of "+tenant.Name(), 1)
			versions["of "+tenant.Name()] = 1
			b.Idle(release(b, step[0], step[1]))
			mustHaveApplied(b, versions)
			for tenant, names := range namesByTenant(b) {
				if !slices.Equal(names, step[:1]) {
					t.Errorf("step %d: %s has %q", i, tenant, names)
				}
			}
		}
		// In a tenant that was created meanwhile, the old release runs nothing either.
		_, err := b.Runtime(millrace.Config{}, release(b, "a", "")).RunUntilIdle(b.Ctx)
		if !errors.Is(err, projection.ErrRetired) {
			t.Errorf("%v", err)
		}
		mustHaveApplied(b, versions)
	})
}

// A person renamed the projection, and the release gives it a different name. The release must not begin at the first
// event.
func TestReleaseWhoseProjectionWasRenamedElsewhereRunsNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		b.Idle(release(b, "totals1", ""))
		b.Must(newAdmin(b).Rename(b.Ctx, id("totals1"), "totals2"))
		log, logs := kit.Logs()
		config := kit.Quick
		config.Logger = log
		b.Start(b.Runtime(config, append(b.Recorders("other"), release(b, "totals3", "totals1"))...))
		b.Eventually("it says why", func() bool {
			entries := logs.FilterMessageSnippet("retired").FilterField(zap.String("projection", "totals3")).All()
			return len(entries) == 1 && strings.Contains(fmt.Sprint(entries[0].ContextMap()), `renamed to "totals2"`)
		})
		if names := existing(b); !slices.Equal(names, []string{"other", "totals2"}) {
			t.Errorf("%q exist", names)
		}
		mustHaveApplied(b, map[string]int64{"s": 3})
	})
}

// Version 2 of the new name is no reason to build version 1 anew.
func TestReleaseWithVersionsRenamesAllOfThem(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		versions := func(name, from string) (list []millrace.Projection) {
			for v, model := range []string{"first", "second"} {
				list = append(list, millrace.Projection{Name: name,
					Version: v + 1, RenamedFrom: from, Handler: b.Store.Batch(kit.Record(model))})
			}
			return list
		}
		b.Idle(versions("totals", "")...)
		b.Append("s", 2)
		b.Idle(versions("sums", "totals")...)
		later, err := b.Store.CreateTenant(b.Ctx, "later")
		b.Must(err)
		b.AppendTo(later, "l", 1)
		b.Idle(versions("sums", "totals")...)
		for tenant, names := range namesByTenant(b) {
			if !slices.Equal(names, []string{"sums", "sums@2"}) {
				t.Errorf("%s has %q", tenant, names)
			}
		}
		for _, old := range []string{"totals", "totals@2"} {
			if err := newAdmin(b).Resume(b.Ctx, millrace.ProjectionID{Tenant: "later", Name: old}); !errors.Is(err,
				projection.ErrRetired) {
				t.Errorf("%s of a new tenant: %v", old, err)
			}
		}
		for _, model := range []string{"first", "second"} {
			if applied, err := b.Store.Applied(b.Ctx, model); err != nil || len(applied) != 6 {
				t.Errorf("%s: %v, %v", model, applied, err)
			}
		}
	})
}
