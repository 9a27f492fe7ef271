package rename_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/projection"
)

// names reads names as a test writes them: "a" exists, and "a>b", "a>>b" and "a>" were renamed to b,
// replaced by b and forgotten, and "!a" has an open operation.
func names(list string) rename.Names {
	all := make(map[string]rename.Names)
	rename.Add(all, engine.Retired{Tenant: "t", Name: "other"})
	for _, item := range strings.Fields(list) {
		r := engine.Retired{Tenant: "t", Name: item}
		if name, busy := strings.CutPrefix(item, "!"); busy {
			r.Name, r.Reason, r.Successor = name, rename.Operation, "rebuild"
		} else if name, successor, replaced := strings.Cut(item, ">>"); replaced {
			r = engine.Retired{Tenant: "t", Name: name, Reason: engine.Replaced, Successor: successor}
		} else if name, successor, retired := strings.Cut(item, ">"); retired {
			r = engine.Retired{Tenant: "t", Name: name, Reason: engine.Renamed, Successor: successor}
			if successor == "" {
				r.Reason = engine.Forgotten
			}
		}
		rename.Add(all, r)
	}
	return all["t"]
}

// after applies a change as the stores do, and writes the names as a test does.
func after(n rename.Names, c rename.Change) string {
	for _, m := range c.Moves {
		delete(n.Existing, m.From)
		n.Existing[m.To] = true
	}
	for _, name := range c.Restored {
		delete(n.Retired, name)
	}
	for _, r := range c.Retired {
		delete(n.Existing, r.Name)
		n.Retired[r.Name] = r
	}
	var list []string
	for name := range n.Existing {
		if name != "other" {
			list = append(list, name)
		}
	}
	for _, r := range n.Retired {
		arrow := map[engine.RetiredReason]string{engine.Renamed: ">", engine.Forgotten: ">",
			engine.Replaced: ">>"}[r.Reason]
		list = append(list, r.Name+arrow+r.Successor)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestRenamesMoveNamesAndWhatLeadsToThem(t *testing.T) {
	for _, test := range []struct {
		before, from, to, after string
		err                     error
	}{
		{before: "a", from: "a", to: "b", after: "a>b b"},
		{before: "a a@2 a@7", from: "a", to: "b", after: "a>b a@2>b@2 a@7>b@7 b b@2 b@7"},
		{before: "a>b b", from: "b", to: "c", after: "a>c b>c c"},
		{before: "a>b b", from: "b", to: "a", after: "a b>a"},
		{before: "a>c b>c c", from: "c", to: "a", after: "a b>a c>a"},
		{before: "a b>", from: "a", to: "b", after: "a>b b"},
		{before: "a>>a@2 a@2", from: "a", to: "b", after: "a>>b@2 a@2>b@2 b>>b@2 b@2"},
		{before: "a>>b@2 a@2>b@2 b>>b@2 b@2", from: "b", to: "a", after: "a>>a@2 a@2 b>>a@2 b@2>a@2"},
		{before: "a>b b", from: "a", to: "b", after: "a>b b"},
		{before: "a b", from: "a", to: "b", err: projection.ErrExists},
		{before: "a a@2 !a@2", from: "a", to: "b", after: "a>b a@2>b@2 b b@2"},
		{before: "a c !c", from: "a", to: "b", after: "a>b b c"},
		{before: "a b@2", from: "a", to: "b", err: projection.ErrExists},
		{before: "a b>c c", from: "a", to: "b", err: projection.ErrRetired},
		{before: "a b>>other", from: "a", to: "b", err: projection.ErrRetired},
		{before: "a>b b", from: "a", to: "c", err: projection.ErrRetired},
		{before: "a>", from: "a", to: "c", err: projection.ErrRetired},
		{before: "b", from: "a", to: "c", err: projection.ErrUnknownProjection},
		{before: "", from: "a", to: "c", err: projection.ErrUnknownProjection},
	} {
		n := names(test.before)
		change, err := n.Rename(engine.Rename{Tenant: "t", From: test.from, To: test.to})
		if !errors.Is(err, test.err) || err == nil && after(n, change) != test.after {
			t.Errorf("%s: rename %s to %s: %v, %s; want %v, %s", test.before, test.from, test.to, err, after(n, change),
				test.err, test.after)
		}
	}
}

func TestForgottenNamesLeadNowhere(t *testing.T) {
	for _, test := range []struct {
		before, name, after string
		err                 error
	}{
		{before: "a b", name: "a", after: "a> b"},
		{before: "a>b b", name: "b", after: "a> b>"},
		{before: "a@2 a>>a@2", name: "a@2", after: "a> a@2>"},
		{before: "a>", name: "a", after: "a>"},
		{before: "a>b b", name: "a", err: projection.ErrRetired},
		{before: "a a@2 !a@2", name: "a", err: projection.ErrInUse},
		{before: "a !a", name: "a", after: "a>"},
		{before: "a b !b", name: "a", after: "a> b"},
		{before: "b", name: "a", err: projection.ErrUnknownProjection},
	} {
		n := names(test.before)
		change, err := n.ForgetUnused("t", test.name)
		if !errors.Is(err, test.err) || err == nil && after(n, change) != test.after {
			t.Errorf("%s: forget %s: %v, %s; want %v, %s", test.before, test.name, err, after(n, change), test.err,
				test.after)
		}
	}
}

// No name both exists and is retired, every successor exists, and no projection is lost or doubled.
func TestRandomRenamesKeepNamesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := names("a b b@2 c")
		count := len(n.Existing)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			pick := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
			from, to := pick.Draw(t, "from"), pick.Draw(t, "to")
			var change rename.Change
			var err error
			if rapid.IntRange(0, 5).Draw(t, "what") == 0 {
				change, err = n.Forget("t", from)
				if err == nil && n.Existing[from] {
					count--
				}
			} else if from != to {
				change, err = n.Rename(engine.Rename{Tenant: "t", From: from, To: to})
			}
			if err != nil {
				continue
			}
			after(n, change)
			for name, r := range n.Retired {
				if n.Existing[name] || r.Name != name || r.Reason != engine.Forgotten && !n.Existing[r.Successor] ||
					r.Reason == engine.Forgotten && r.Successor != "" {
					t.Fatalf("%s leads to %q, of %v", name, r.Successor, n.Existing)
				}
			}
			if len(n.Existing) != count {
				t.Fatalf("%d projections, want %d", len(n.Existing), count)
			}
		}
	})
}

func TestUnusedRenamesLeaveOutWhatNodesRegister(t *testing.T) {
	node := func(alive bool, projections ...string) engine.NodeRow {
		return engine.NodeRow{
			Member: engine.Member{ID: fmt.Sprint(projections), Projections: projections, Tenants: []string{"t"}},
			Alive:  alive,
		}
	}
	for _, test := range []struct {
		nodes   []engine.NodeRow
		renamed bool
	}{
		{nil, true},
		{[]engine.NodeRow{node(true, "b")}, true},
		{[]engine.NodeRow{node(false, "a")}, true},
		{[]engine.NodeRow{node(true, "b"), node(true, "a")}, false},
		{[]engine.NodeRow{node(true, "a@2")}, false},
	} {
		all := map[string]rename.Names{"t": names("a")}
		changes := rename.Unused([]engine.Rename{{Tenant: "t", From: "a", To: "b"},
			{Tenant: "gone", From: "a", To: "b"}}, all, test.nodes)
		if len(changes) != 0 != test.renamed {
			t.Errorf("%+v: %+v", test.nodes, changes)
		}
	}
	// A node that does not run the projection for the tenant does not keep it.
	elsewhere := node(true, "a")
	elsewhere.Tenants = []string{"other"}
	if changes := rename.Unused([]engine.Rename{{Tenant: "t", From: "a", To: "b"}},
		map[string]rename.Names{"t": names("a")}, []engine.NodeRow{elsewhere}); len(changes) != 1 {
		t.Errorf("%+v", changes)
	}
}

func TestNodesThatUseAProjectionAreNamed(t *testing.T) {
	id := projection.ID{Tenant: "t", Name: "p"}
	row := func(id string, alive bool, projections ...string) engine.NodeRow {
		return engine.NodeRow{Member: engine.Member{ID: id, Name: "host-" + id, Projections: projections}, Alive: alive}
	}
	nodes := []engine.NodeRow{row("1", true, "p@2", "q"), row("2", false, "p"), row("3", true, "p")}
	for _, test := range []struct {
		nodes  []engine.NodeRow
		owners []string
		says   string
	}{
		{nodes[:2], nil, ""},
		{nodes, nil, "registered by host-3 (3)"},
		{nodes[:2], []string{"1"}, "held by host-1 (1)"},
	} {
		err := rename.InUse(test.nodes, id, test.owners)
		if errors.Is(err, projection.ErrInUse) != (test.says != "") ||
			err != nil && !strings.HasSuffix(err.Error(), test.says) {
			t.Errorf("%q: %v", test.says, err)
		}
	}
}

// A tenant that began with version 3 does not begin with an earlier one after a rename.
func TestVersionsThatATenantNeverUsedStayUnused(t *testing.T) {
	n := names("a@3")
	for _, name := range []string{"a", "a@2"} {
		n.Retired[name] = &engine.Retired{Tenant: "t", Name: name, Reason: engine.Unused, Successor: "a@3"}
	}
	change, err := n.Rename(engine.Rename{Tenant: "t", From: "a", To: "b"})
	if err != nil {
		t.Fatal(err)
	}
	after(n, change)
	for _, name := range []string{"b", "b@2"} {
		if r := n.Retired[name]; r == nil || r.Reason != engine.Unused || r.Successor != "b@3" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
