package rename_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestNewProjections(t *testing.T) {
	for _, test := range []struct {
		names, projections, users string
		want                      string
	}{
		{"", "p q@2 p@2", "", "create [p p@2] begin [q@2] waiting [] retired []"},
		{"p", "p p@2", "", "create [p@2] begin [] waiting [] retired []"},
		{"p@1x p@02", "p@2", "", "create [] begin [p@2] waiting [] retired []"},
		{"p>>p@3", "p@3 p", "", "create [p@3] begin [] waiting [] retired [p p@3]"},
		{"p>", "p", "", "create [] begin [] waiting [] retired [p ]"},
		// The earlier name exists, with any version, or leads elsewhere.
		{"old", "new<old", "", "create [] begin [] waiting [new] retired []"},
		{"old@3", "new<old", "", "create [] begin [] waiting [new] retired []"},
		{"old@3x", "new<old", "", "create [new] begin [] waiting [] retired []"},
		{"old>new@2 new@2", "new@3<old", "", "create [new@3] begin [] waiting [] retired []"},
		{"old>else", "new<old", "", "create [] begin [] waiting [] retired [new else]"},
		{"old>", "new<old", "", "create [new] begin [] waiting [] retired []"},
		// A node that registers the earlier name may make rows for it.
		{"", "new<old p", "old@2", "create [p] begin [] waiting [new] retired []"},
		{"new>x", "new<old", "old", "create [] begin [] waiting [] retired [new x]"},
	} {
		all := map[string]rename.Names{"t": names(test.names)}
		rename.Add(all, engine.Retired{Tenant: "t", Reason: rename.Tenant, Successor: string(tenancy.Active)})
		nodes := []engine.NodeRow{
			{Member: engine.Member{ID: "1", Projections: strings.Fields(test.users)}, Alive: true},
		}
		if got := registered(rename.Register(newOnes("t", test.projections), all, nodes)); got != test.want {
			t.Errorf("%q with %q: %s, want %s", test.projections, test.names, got, test.want)
		}
	}
}

// While no node has registered, the first one may be of an earlier release. Nothing is made in a tenant that is not
// active.
func TestNewProjectionsWithoutNodesOrTenant(t *testing.T) {
	all := make(map[string]rename.Names)
	rename.Add(all, engine.Retired{Tenant: "t", Reason: rename.Tenant, Successor: string(tenancy.Active)})
	rename.Add(all, engine.Retired{Tenant: "archived", Reason: rename.Tenant, Successor: string(tenancy.Archived)})
	list := append(newOnes("t", "p new<old"), append(newOnes("archived", "p"), newOnes("unknown", "p")...)...)
	if got := registered(rename.Register(list, all, nil)); got != "create [p] begin [] waiting [new] retired []" {
		t.Error(got)
	}
}

// The earlier names of a new projection are retired once, those of its versions, too.
func TestEarlierNamesOfANewProjection(t *testing.T) {
	n := names("old@3>x")
	var got []string
	for _, p := range newOnes("t", "new<old new@2<old new@3<old other") {
		for _, r := range n.Earlier(p) {
			got = append(got, fmt.Sprintf("%s %s>%s", r.Reason, r.Name, r.Successor))
		}
	}
	if want := "renamed old>new, renamed old@2>new@2"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	if got := rename.NeverUsed(projection.ID{Tenant: "t", Name: "p@3"}); len(got) != 2 || got[1].Name != "p@2" ||
		got[1].Successor != "p@3" || got[1].Reason != engine.Unused {
		t.Errorf("%+v", got)
	}
}

// newOnes reads projections as a test writes them: "new<old" had the name old.
func newOnes(tenant, list string) (projections []engine.NewProjection) {
	for _, item := range strings.Fields(list) {
		name, from, _ := strings.Cut(item, "<")
		projections = append(projections, engine.NewProjection{Tenant: tenant, Name: name, RenamedFrom: from})
	}
	return projections
}

func registered(n rename.New) string {
	of := func(list []engine.NewProjection) (names []string) {
		for _, p := range list {
			names = append(names, p.Name)
		}
		return names
	}
	var retired []string
	for _, r := range n.Left.Retired {
		retired = append(retired, r.Name+" "+r.Successor)
	}
	return fmt.Sprint("create ", of(n.Create), " begin ", of(n.Begin), " waiting ", of(n.Left.Waiting), " retired ",
		retired)
}
