package tests_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// A version may select other types and have other partitions than the earlier one. It replaces that one when it has
// handled the events of its own types, whether the earlier version selects them or not.
func TestSwapToAVersionWithOtherTypesAndPartitions(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 3)
		for i := range 30 {
			b.MustAppend(b.Store, string(rune('a'+i%7)), event.Any,
				event.Event{Type: []string{"counted", "other", "third"}[i%3]})
		}
		shape := func(version, partitions int, types ...string) millrace.Projection {
			p := modelVersion(b, version)
			p.Types, p.Partitions = types, partitions
			return p
		}
		var sound atomic.Bool
		v2 := shape(2, 3, "counted", "other")
		v2.Handler = b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if e.Type == "other" && e.Position > 20 && !sound.Load() {
				return kit.ErrOnPurpose
			}
			return writeModel(ctx, tx, tableOf(2), []event.Envelope{e})
		})
		v2.Retry = projection.RetryPolicy{MaxAttempts: 1000, Base: time.Hour, Cap: time.Hour}
		rt := b.Running(kit.Quick, shape(1, 1, "counted"), v2, shape(3, 2, "third"))
		b.Reaches(rt, model, 30)
		rows := func(version int, want ...int64) {
			t.Helper()
			s, err := look(b.Ctx, b.Store, tableOf(version))
			b.Must(err)
			if got := []int64{s.Count, s.Highest}; !slices.Equal(got, want) {
				t.Errorf("version %d has %v rows up to a position, want %v", version, got, want)
			}
		}
		rows(1, 10, 28)
		if err := rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{CatchUp: 200 * time.Millisecond}); !errors.Is(err,
			projection.ErrBehind) {
			t.Errorf("a swap to a version without events that only it selects: %v", err)
		}
		sound.Store(true)
		b.Must(rt.Resume(b.Ctx, modelID(2)))
		swap(b, rt, 2)
		rows(2, 20, 29)
		b.Reaches(rt, "model@3", 30)
		swap(b, rt, 3) // version 3 selects none of the types of version 2
		b.MustAppend(b.Store, "a", event.Any, event.Event{Type: "counted"}, event.Event{Type: "third"})
		b.Reaches(rt, model, 32)
		rows(3, 11, 32)
		mustRun(b, projection.DefaultTenant, 3)
	})
}

// The versions may select different tenants. A tenant of which only the new version is registered begins with that one,
// and a tenant of which only the earlier one is registered keeps it.
func TestVersionsSelectDifferentTenants(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := b.Tenants(4)[1:]
		var begun atomic.Int64
		record := func(version int, tenants ...string) millrace.Projection {
			p := millrace.Projection{
				Name: model, Version: version, Tenants: tenants, Handler: b.Store.Batch(kit.Nothing),
			}
			if version > 1 {
				p.Swap = b.Store.Hook(func(ctx context.Context, _ kit.Tx) error {
					id, _ := millrace.ProjectionFrom(ctx)
					if id.Tenant == "tenant2" {
						begun.Add(1)
					}
					return nil
				})
			}
			return p
		}
		rt := b.Running(kit.Quick, record(1, "tenant0", "tenant1"), record(2, "tenant1", "tenant2"))
		for i, tenant := range tenants {
			b.ReachesOf(rt, tenant.Name(), modelID(1+i/2).Name, b.AppendTo(tenant, "a", 3))
		}
		b.ReachesOf(rt, "tenant1", "model@2", 3)
		mustRun(b, "tenant0", 1)
		mustRun(b, "tenant1", 1, 2)
		mustRun(b, "tenant2", 2)
		if begun.Load() != 1 {
			t.Errorf("the hook of the tenant that begins with version 2 ran %d times", begun.Load())
		}
		swap := func(tenant string) error {
			return rt.Swap(b.Ctx, millrace.ProjectionID{Tenant: tenant, Name: "model@2"}, admin.SwapOptions{})
		}
		if err := swap("tenant0"); !errors.Is(err, projection.ErrUnknownProjection) {
			t.Errorf("a swap where version 2 is not registered: %v", err)
		}
		b.Must(swap("tenant1"))
		b.Must(swap("tenant2")) // changes nothing
		mustRun(b, "tenant1", 2)
		mustRun(b, "tenant0", 1)
		left, err := rt.Unswapped(b.Ctx, "model@2")
		b.Must(err)
		if len(left) != 1 || left[0].Tenant != "tenant0" {
			t.Errorf("left: %v", left)
		}
		b.ReachesOf(rt, "tenant0", model, b.AppendTo(tenants[0], "a", 1))
	})
}
