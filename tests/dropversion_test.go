package tests_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// rowsOf returns how many rows the table of a version has.
func rowsOf(b *kit.Bundle, version int) int64 {
	b.T.Helper()
	s, err := look(b.Ctx, b.Store, tableOf(version))
	b.Must(err)
	return s.Count
}

func TestDroppedVersionLeavesNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 3)
		v2 := modelVersion(b, 2)
		v2.Handler = b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if e.Position == 5 {
				return projection.ParkStream(kit.ErrOnPurpose)
			}
			return writeModel(ctx, tx, tableOf(2), []event.Envelope{e})
		})
		rt := b.Running(kit.Quick, modelVersion(b, 1), v2, modelVersion(b, 3))
		b.Append("a", 20)
		b.Reaches(rt, "model@2", b.Head())
		b.Must(rt.Pause(b.Ctx, modelID(2))) // also a paused one
		b.Must(rt.DropVersion(b.Ctx, modelID(2)))
		mustRun(b, projection.DefaultTenant, 1, 3)
		goesOn(b, rt)
		if n := rowsOf(b, 2); n != 0 {
			t.Errorf("the read model has %d rows", n)
		}
		for doing, err := range map[string]error{"drop again": rt.DropVersion(b.Ctx, modelID(2)),
			"wait": rt.WaitFor(b.Ctx, modelID(2), 1),
			"swap": rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{})} {
			if !errors.Is(err, projection.ErrRetired) || !strings.Contains(err.Error(), "forgotten") {
				t.Errorf("%s: %v", doing, err)
			}
		}
		// Nodes that register it do not begin it again.
		other := b.Another(kit.Quick, modelVersions(b, 2)...)
		b.Must(other.Register(b.Recorders("other")...))
		if b.Kind.Meets(kit.SeveralNodes) {
			b.Start(other)
			b.Reaches(other, "other", b.Head())
		}
		swap(b, rt, 3) // the dropped one is not between
		goesOn(b, rt)
		served(b, 3)
		if n := rowsOf(b, 2); n != 0 {
			t.Errorf("the read model has %d rows", n)
		}
		if err := rt.DropVersion(b.Ctx, modelID(3)); !errors.Is(err, projection.ErrVersionInUse) {
			t.Errorf("drop of a version in use: %v", err)
		}
		if err := rt.DropVersion(b.Ctx, modelID(1)); err == nil ||
			!strings.Contains(err.Error(), "a version from 2 on") {
			t.Errorf("drop of version 1: %v", err)
		}
	})
}

// A tenant that begins with version 2 never gets version 1, and its readers use version 2 from the beginning.
func TestTenantBeginsWithALaterVersion(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		b.Append("a", 10)
		rt := b.Runtime(kit.Quick, modelVersion(b, 2))
		stop := b.Start(rt)
		b.Reaches(rt, model, b.Head())
		served(b, 2) // the hook ran without a swap
		swap(b, rt, 2)
		mustRun(b, projection.DefaultTenant, 2)
		stop()
		both := b.Another(kit.Quick, append(modelVersions(b, 1, 2), b.Recorders("other")...)...)
		stop = b.Start(both)
		b.Append("b", 5)
		b.Reaches(both, "other", b.Head())
		b.Reaches(both, model, b.Head())
		mustRun(b, projection.DefaultTenant, 2)
		served(b, 2)
		if n := rowsOf(b, 1); n != 0 {
			t.Errorf("version 1 has %d rows", n)
		}
		// The next version is beside it, and the one after a drop, version 1 again.
		b.Must(both.DropVersion(b.Ctx, modelID(2)))
		b.Must(b.Store.InTx(b.Ctx, exchange(b, 1)))
		b.Reaches(both, model, b.AppendTo(b.Store, "b", 2))
		mustRun(b, projection.DefaultTenant, 1)
		served(b, 1)
		stop()
	})
}

// Swaps of many tenants are requested one by one, and Unswapped lists those that are left.
func TestTenantsAreSwappedOneByOne(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		tenants := b.Tenants(12)
		record := func(version int) millrace.Projection {
			return millrace.Projection{Name: model, Version: version, Handler: b.Store.Batch(kit.Nothing)}
		}
		b.Idle(record(1))
		rt := b.Running(kit.Quick, record(2))
		a, err := admin.New(b.Store)
		b.Must(err)
		left := func() []millrace.ProjectionID {
			left, err := a.Unswapped(b.Ctx, "model@2")
			b.Must(err)
			return left
		}
		for _, tenant := range tenants {
			b.ReachesOf(rt, tenant.Name(), "model@2", b.AppendTo(tenant, "a", 3))
		}
		b.Must(b.Store.ArchiveTenant(b.Ctx, "tenant3"))
		for i, id := range left() {
			if n := len(left()); n != len(tenants)-i && i <= 4 || id.Name != "model@2" {
				t.Errorf("%d tenants are left before %v, the %dth", n, id, i)
			}
			err := a.Swap(b.Ctx, id, admin.SwapOptions{})
			if archived := id.Tenant == "tenant3"; archived != errors.Is(err, tenancy.ErrArchived) ||
				!archived && err != nil {
				t.Errorf("swap of %s: %v", id.Tenant, err)
			}
		}
		if rest := left(); len(rest) != 1 || rest[0].Tenant != "tenant3" {
			t.Errorf("left: %v", rest)
		}
		for _, tenant := range tenants {
			if tenant.Name() != "tenant3" {
				b.ReachesOf(rt, tenant.Name(), model, b.AppendTo(tenant, "a", 1))
				mustRun(b, tenant.Name(), 2)
			}
		}
	})
}
