package actors

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

func TestRegistryComparesBeforeItCutsAPage(t *testing.T) {
	t.Parallel()
	registry := newRegistry()
	for i := range 10 {
		for _, name := range []string{"a", "b"} {
			registry.publish(projection.ID{Tenant: fmt.Sprint("t", i), Name: name}, func(e *ProjectionEntry) {
				e.Status = machine.Status{Phase: []machine.Phase{machine.Live, machine.Waiting}[i%2]}
			})
		}
	}
	for name, test := range map[string]struct {
		filter engine.ProjectionFilter
		want   []string
	}{
		"a name":   {engine.ProjectionFilter{Names: []string{"b"}, Limit: 2}, []string{"t0/b", "t1/b"}},
		"a tenant": {engine.ProjectionFilter{Tenants: []string{"t5"}, Limit: 1}, []string{"t5/a"}},
		"a state": {
			engine.ProjectionFilter{States: []string{string(machine.Waiting)}, Limit: 3},
			[]string{"t1/a", "t1/b", "t3/a"},
		},
		"a page": {
			engine.ProjectionFilter{Names: []string{"b"}, After: projection.ID{Tenant: "t7", Name: "a"}, Limit: 2},
			[]string{"t7/b", "t8/b"},
		},
		"no limit": {
			engine.ProjectionFilter{Names: []string{"a"}, Tenants: []string{"t8", "t9"}}, []string{"t8/a", "t9/a"},
		},
	} {
		var got []string
		for _, id := range registry.In(test.filter) {
			got = append(got, id.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
