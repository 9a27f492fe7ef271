package admin

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func TestRegistrationTellsRemovedProjectionsFromCrashedNodes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	node := func(id string, alive bool, age time.Duration, names ...string) engine.NodeRow {
		return engine.NodeRow{
			Member: engine.Member{ID: id, Projections: names}, Alive: alive, HeartbeatAt: now.Add(-age),
		}
	}
	some := node("some", true, 0, "p")
	some.Tenants = []string{"a"}
	filtered := node("filtered", true, 0, "p")
	filtered.Filters = map[string]engine.TenantFilter{"p": engine.NewTenantFilter([]string{"b*"})}
	for name, test := range map[string]struct {
		nodes        []engine.NodeRow
		tenant       string
		alive        bool
		dead         string
		unregistered bool
		forSome      []string
	}{
		"no nodes":              {nil, "a", false, "", false, nil},
		"a living one":          {[]engine.NodeRow{node("1", true, 0, "p")}, "a", true, "", false, nil},
		"removed from the code": {[]engine.NodeRow{node("1", true, 0, "q")}, "a", false, "", true, nil},
		"its only node died": {
			[]engine.NodeRow{node("1", true, 0, "q"), node("2", false, time.Minute, "p")}, "a", false, "2", false, nil,
		},
		"the last of the dead": {
			[]engine.NodeRow{node("2", false, time.Minute, "p"), node("3", false, time.Second, "p"),
				node("4", false, time.Hour, "p")}, "a", false, "3", false, nil,
		},
		"all died that never had it": {
			[]engine.NodeRow{node("1", false, time.Minute, "q")}, "a", false, "", false, nil,
		},
		"a tenant that a node serves":    {[]engine.NodeRow{some}, "a", true, "", false, []string{"p"}},
		"a tenant that no node serves":   {[]engine.NodeRow{some, filtered}, "c", false, "", true, []string{"p"}},
		"a tenant that a filter selects": {[]engine.NodeRow{some, filtered}, "b7", true, "", false, []string{"p"}},
		"one node has no filter": {
			[]engine.NodeRow{some, node("1", true, 0, "p", "q"), filtered}, "c", true, "", false, nil,
		},
	} {
		r := registrationOf(test.nodes, projection.ID{Tenant: test.tenant, Name: "p"})
		if r.alive != test.alive || r.dead.ID != test.dead || r.unregistered() != test.unregistered {
			t.Errorf("%s: %+v, unregistered %v", name, r, r.unregistered())
		}
		if got := registeredForSome(test.nodes); !slices.Equal(got, test.forSome) {
			t.Errorf("%s: for some tenants %v, want %v", name, got, test.forSome)
		}
	}
}
