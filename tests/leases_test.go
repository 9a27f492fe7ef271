package tests_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestCountsAreSeparateForNamedTenants(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		port := b.Store.Engine()
		_, err := b.Store.CreateTenants(b.Ctx, []string{"a", "b"})
		b.Must(err)
		for _, tenant := range []string{projection.DefaultTenant, "a", "b"} {
			b.Ensure(engine.NewProjection{Tenant: tenant, Name: "p", Partitions: 1},
				engine.NewProjection{Tenant: tenant, Name: "q", Partitions: 1})
		}
		b.Must(b.Plane().SetDesiredState(b.Ctx, projection.ID{Tenant: "a", Name: "q"}, engine.WantPause))
		b.Must(b.Plane().SetDesiredState(b.Ctx, projection.ID{Tenant: "b", Name: "p"}, engine.WantPause))
		for _, test := range []struct {
			named, filtered []string
			want            map[engine.Want]bool
		}{
			{nil, nil, map[engine.Want]bool{{Name: "p", Leases: 2}: true, {Name: "q", Leases: 2}: true}},
			{
				[]string{"a", "none"}, nil, map[engine.Want]bool{{Tenant: "a", Name: "p", Leases: 1}: true,
					{Name: "p", Leases: 1}: true, {Name: "q", Leases: 2}: true},
			},
			{
				nil, []string{"q", "none"}, map[engine.Want]bool{{Name: "p", Leases: 2}: true,
					{Tenant: "b", Name: "q", Leases: 1}: true, {Tenant: "default", Name: "q", Leases: 1}: true},
			},
		} {
			counts, err := port.Counts(b.Ctx, test.named, test.filtered)
			got := make(map[engine.Want]bool)
			for _, c := range counts {
				got[c] = true
			}
			if err != nil || len(got) != len(counts) || !maps.Equal(got, test.want) {
				t.Errorf("%v, %v: %v, %v; want %v", test.named, test.filtered, counts, err, test.want)
			}
		}
		b.Ensure(engine.NewProjection{Tenant: "b", Name: "split", Partitions: 2})
		counts, err := port.Counts(b.Ctx, nil, nil)
		b.Must(err)
		if want := (engine.Want{Tenant: "b", Name: "split", Leases: 2}); !slices.Contains(counts, want) ||
			len(counts) != 3 {
			t.Errorf("with a split projection: %v, want %v among them", counts, want)
		}
	})
}
