package tests_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestProjectionsBeginWhereTheyStart(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := b.Tenants(2)
		for _, tenant := range tenants {
			b.AppendTo(tenant, "a", 4)
			b.AppendTo(tenant, "b", 4)
		}
		begun := time.Now()
		for _, tenant := range tenants {
			b.AppendTo(tenant, "a", 2) // 9 and 10
		}
		events := b.All(b.Store)
		all := kit.PositionsOf(events)
		starts := map[string]struct {
			start projection.Start
			want  []int64
		}{
			"zero":           {projection.Start{}, append(slices.Clone(all), 11, 12)},
			"end":            {projection.Start{End: true}, []int64{11, 12}},
			"position 1":     {projection.Start{Position: 1}, append(slices.Clone(all), 11, 12)},
			"position 7":     {projection.Start{Position: 7}, []int64{7, 8, 9, 10, 11, 12}},
			"position 10":    {projection.Start{Position: 10}, []int64{10, 11, 12}},
			"position ahead": {projection.Start{Position: 500}, []int64{11, 12}},
			"time":           {projection.Start{Time: events[8].Time}, []int64{9, 10, 11, 12}},
			"time before":    {projection.Start{Time: begun.Add(-time.Hour)}, append(slices.Clone(all), 11, 12)},
			"time ahead":     {projection.Start{Time: begun.Add(time.Hour)}, []int64{11, 12}},
		}
		var list []millrace.Projection
		for name, s := range starts {
			list = append(list, millrace.Projection{Name: name,
				Start: s.start, Partitions: 1 + len(name)%3, Handler: b.Store.Batch(kit.Record(name))})
		}
		b.Idle(list...)
		// It applies only once: at the next start the projections continue.
		for _, tenant := range tenants {
			b.AppendTo(tenant, "c", 1)
		}
		b.Idle(list...)
		for _, tenant := range tenants {
			b.AppendTo(tenant, "d", 1)
		}
		// A new tenant has no events that were settled before.
		later, err := b.Store.CreateTenant(b.Ctx, "later")
		b.Must(err)
		b.Idle(list...)
		b.AppendTo(later, "e", 1)
		b.Idle(list...)
		for name, s := range starts {
			var positions []int64
			applied, err := b.Store.Applied(b.Ctx, name)
			b.Must(err)
			for _, a := range applied {
				if a.Stream != "e" {
					positions = append(positions, a.Position)
				}
			}
			slices.Sort(positions)
			want := append(slices.Clone(s.want), s.want...) // of two tenants
			slices.Sort(want)
			if !slices.Equal(positions, want) || len(applied) != len(want)+1 {
				t.Errorf("%s: %v, want %v, and one of the new tenant", name, applied, want)
			}
		}
	})
}

// Nodes create the projection at once, while events are appended. It handles what is appended after one position, and
// nothing else.
func TestProjectionFromTheEndHandlesEveryLaterEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("before", 50)
		stop := b.AppendThrough(6)
		var shape = millrace.Projection{
			Name: "p", Partitions: 3, Start: projection.Start{End: true}, Handler: b.Store.Batch(kit.Record("p")),
		}
		nodes := make([]*millrace.Runtime, 3)
		b.Must(kit.Together(len(nodes), func(i int) error {
			nodes[i] = b.Another(kit.Quick, shape)
			b.Start(nodes[i])
			return nil
		}))
		b.Eventually("it handles events", func() bool {
			applied, err := b.Store.Applied(b.Ctx, "p")
			return err == nil && len(applied) > 20
		})
		stop()
		b.Reaches(nodes[0], "p", b.Append("last", 1).Positions[0])
		applied, err := b.Store.Applied(b.Ctx, "p")
		b.Must(err)
		first := applied[0].Position
		for _, a := range applied {
			first = min(first, a.Position)
		}
		if err := exact(applied, len(applied)); err != nil {
			t.Error(err)
		}
		want := 0
		for _, e := range b.All(b.Store) {
			if e.Position >= first {
				want++
			}
		}
		if first <= 50 || len(applied) != want {
			t.Errorf("%d events from %d on were applied, of %d", len(applied), first, want)
		}
	})
}

// Of an archived tenant nothing is created, whether the name is free or not.
func TestCreateInAnArchivedTenantIsRefusedFirst(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Idle(b.Recorders("p")...)
		b.Must(b.Store.ArchiveTenant(b.Ctx, projection.DefaultTenant))
		for _, name := range []string{"p", "free"} {
			if err := newAdmin(b).Create(b.Ctx, id(name), projection.Start{}); !errors.Is(err, tenancy.ErrArchived) ||
				errors.Is(err, projection.ErrExists) {
				t.Errorf("create %s: %v", name, err)
			}
		}
		b.Must(b.Store.UnarchiveTenant(b.Ctx, projection.DefaultTenant))
		if err := newAdmin(b).Create(b.Ctx, id("p"), projection.Start{}); !errors.Is(err, projection.ErrExists) {
			t.Errorf("create what exists: %v", err)
		}
	})
}

func TestCreateBringsARetiredNameBack(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 4)
		b.Idle(b.Recorders("p", "kept")...)
		a := newAdmin(b)
		if err := a.Create(b.Ctx, id("p"), projection.Start{}); !errors.Is(err, projection.ErrExists) {
			t.Errorf("create what exists: %v", err)
		}
		b.Must(a.Forget(b.Ctx, id("p")))
		rt := b.Running(kit.Quick, b.Recorders("p", "kept")...)
		b.Reaches(rt, "kept", b.Append("s", 2).Positions[1])
		b.Must(a.Create(b.Ctx, id("p"), projection.Start{Position: 6}))
		b.Reaches(rt, "p", b.Append("s", 1).Positions[0])
		if positions := b.Positions("p"); !slices.Equal(positions, []int64{1, 2, 3, 4, 6, 7}) {
			t.Errorf("applied %v", positions)
		}
		// The old name of a renamed projection becomes a projection of its own.
		b.Must(a.Rename(b.Ctx, id("kept"), "new"))
		b.Must(a.Create(b.Ctx, id("kept"), projection.Start{End: true}))
		if names := existing(b); !slices.Equal(names, []string{"kept", "new", "p"}) {
			t.Errorf("%q exist", names)
		}
		for says, err := range map[string]error{
			"ProjectionID.Partition": a.Create(b.Ctx, millrace.ProjectionID{Name: "q", Partition: 1},
				projection.Start{}),
			"must be set":          a.Create(b.Ctx, id(""), projection.Start{}),
			"at most one of":       a.Create(b.Ctx, id("q"), projection.Start{End: true, Position: 3}),
			"must not be negative": a.Create(b.Ctx, id("q"), projection.Start{Position: -3}),
			"unknown tenant": a.Create(b.Ctx, millrace.ProjectionID{Tenant: "none", Name: "q"},
				projection.Start{}),
		} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
	})
}

// around is a driver that calls before and after the beginnings of new projections are found.
type around struct {
	store.Driver
	before, after func()
}

func (a around) Begins(ctx context.Context, projections []engine.NewProjection) (store.Begins, error) {
	a.before()
	defer a.after()
	return a.Driver.Begins(ctx, projections)
}

// A projection that begins at the end never begins at the first event, whatever becomes of its tenant while the end is
// found.
func TestBeginningIsFoundAgainIfTheTenantChangesMeanwhile(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenant := b.Tenants(2)[1].Name()
		appends := func() int64 {
			t.Helper()
			of, err := b.Store.ForTenant(tenant)
			b.Must(err)
			return b.AppendTo(of, "s", 3)
		}
		nothing := func() {}
		for name, change := range map[string]around{
			"archived": {
				nil, func() { b.Must(b.Store.ArchiveTenant(b.Ctx, tenant)) },
				func() { b.Must(b.Store.UnarchiveTenant(b.Ctx, tenant)) },
			},
			"dropped": {nil, nothing, func() {
				b.Must(b.Store.DropTenant(b.Ctx, tenant))
				_, err := b.Store.CreateTenant(b.Ctx, tenant)
				b.Must(err)
			}},
		} {
			last := appends()
			change.Driver = b.Store.Engine()
			fresh := engine.NewProjection{Tenant: tenant, Name: name, Partitions: 1, Start: projection.Start{End: true}}
			_, err := control.On(change).Ensure(b.Ctx, []engine.NewProjection{fresh})
			b.Must(err)
			if name == "dropped" {
				last = appends()
			}
			_, err = b.Plane().Ensure(b.Ctx, []engine.NewProjection{fresh})
			b.Must(err)
			rows, err := b.Plane().Projections(b.Ctx, engine.ProjectionFilter{Names: []string{name}})
			b.Must(err)
			if len(rows) != 1 || rows[0].Checkpoint != last {
				t.Errorf("%s: %+v, want it to begin at %d", name, rows, last)
			}
		}
	})
}
