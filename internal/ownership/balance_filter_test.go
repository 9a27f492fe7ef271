package ownership

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"pgregory.net/rapid"
)

// filtered returns nodes whose projections run for the tenants that match.
func filtered(members []engine.Member, entries ...string) []engine.Member {
	for i, m := range members {
		members[i].Filters = make(map[string]engine.TenantFilter)
		for _, name := range m.Projections {
			members[i].Filters[name] = engine.NewTenantFilter(entries)
		}
	}
	return members
}

func TestBalanceLooksAtPairs(t *testing.T) {
	two := nodes(2, "a", "b")
	two[1].Filters = map[string]engine.TenantFilter{"a": engine.NewTenantFilter([]string{"t1", "t3"})}
	all := tenants(4, "a", "b")
	for name, test := range map[string]struct {
		fleet moment
		want  map[string]int
	}{
		"n2 runs a for two tenants": {moment{members: two, refs: all}, map[string]int{"n1": 5, "n2": 3}},
		"n2 is left out of all": {
			moment{members: append(nodes(1, "a"), filtered(nodes(2, "a")[1:], "x*")...), refs: tenants(4, "a")},
			map[string]int{"n1": 4},
		},
		"tenants that no node wants": {
			moment{members: filtered(nodes(2, "a"), "t1"), refs: tenants(4, "a")}, map[string]int{"n1": 0, "n2": 1},
		},
		"two roles": {
			moment{members: append(filtered(nodes(1, "a"), "t[01]"), filtered(nodes(2, "a")[1:], "t[23]")...),
				refs: tenants(4, "a")}, map[string]int{"n1": 2, "n2": 2},
		},
		"equal filters in another order": {
			moment{members: append(filtered(nodes(1, "a"), "t1", "t0"), filtered(nodes(2, "a")[1:], "t0", "t1")...),
				refs: tenants(4, "a")}, map[string]int{"n1": 1, "n2": 1},
		},
		"an entry that is no pattern": {
			moment{members: append(nodes(1, "a"), filtered(nodes(2, "a")[1:], "[")...), refs: tenants(4, "a")},
			map[string]int{"n1": 4},
		},
		"the default tenant, by its name": {
			moment{members: append(filtered(nodes(1, "a"), "default"), filtered(nodes(2, "a")[1:], "x")...),
				refs: refs(0, "", "a")}, map[string]int{"n1": 1},
		},
		"filters and tenants of the whole node": {
			moment{members: filtered([]engine.Member{{ID: "n1", Projections: []string{"a"},
				Tenants: []string{"t0", "t1"}}}, "t[12]"), refs: tenants(4, "a")}, map[string]int{"n1": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.fleet.owner = make(map[int32]string)
			test.fleet.comeToRest(t, false, inOrder)
			test.fleet.check(t)
			for node, want := range test.want {
				if own := test.fleet.owned(node); len(own) != want {
					t.Errorf("%s owns %v, want %d", node, own, want)
				}
			}
		})
	}
}

// role is what the nodes of one release or purpose register.
func role(t *rapid.T, names []string) engine.Member {
	m := engine.Member{Filters: make(map[string]engine.TenantFilter)}
	for _, name := range names {
		if rapid.Bool().Draw(t, "runs "+name) {
			m.Projections = append(m.Projections, name)
			entries := rapid.SampledFrom([][]string{nil, {"t1"}, {"t?"}, {"t1?", "t3"}, {"none"}}).Draw(t, "filter")
			m.Filters[name] = engine.NewTenantFilter(entries)
		}
	}
	return m
}

// TestTargetsAddUp lets all members of a fleet see the same free leases. Together they want each lease that one of them
// can run once, and no other. -rapid.seed=N repeats a failure.
func TestTargetsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}
		fleet := moment{refs: randomRefs(t, names), owner: make(map[int32]string)}
		roles := []engine.Member{role(t, names), role(t, names), role(t, names)}
		for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
			m := rapid.SampledFrom(roles).Draw(t, "role")
			m.ID = fmt.Sprint("n", i)
			fleet.members = append(fleet.members, m)
		}
		wanted, claims := make(map[string]int), make(map[string]int)
		refs := make(map[int32]engine.LeaseRef)
		for _, s := range fleet.refs {
			refs[s.Row] = s
			if runners := fleet.runners(s); len(runners) > 0 {
				wanted[fmt.Sprint(runners)]++
			}
		}
		for _, m := range fleet.members {
			for _, row := range fleet.balance(m.ID).Claim {
				runners := fleet.runners(refs[row])
				if !slices.Contains(runners, m.ID) {
					t.Fatalf("%s claims %v, which %v can run", m.ID, refs[row], runners)
				}
				claims[fmt.Sprint(runners)]++
			}
		}
		if !maps.Equal(wanted, claims) {
			t.Fatalf("the targets are %v, and wanted are %v", claims, wanted)
		}
		fleet.comeToRest(t, rapid.Bool().Draw(t, "at once"),
			func(m []engine.Member) []engine.Member { return shuffled(t, m) })
		fleet.check(t)
	})
}

// randomRefs returns leases of some tenants, with split projections among them.
func randomRefs(t *rapid.T, names []string) (all []engine.LeaseRef) {
	for tenant := range rapid.IntRange(0, 20).Draw(t, "tenants") {
		for _, name := range names {
			id := projection.ID{Tenant: fmt.Sprint("t", tenant), Name: name}
			if rapid.IntRange(0, 4).Draw(t, "split") > 0 {
				all = append(all, engine.LeaseRef{Row: int32(len(all)), ID: id})
				continue
			}
			for range rapid.IntRange(2, 9).Draw(t, "partitions") {
				id.Partition++
				all = append(all, engine.LeaseRef{Row: int32(len(all)), ID: id})
			}
		}
	}
	return all
}

// TestOnlyTheShareMovesInFleetsOfRoles is TestOnlyTheShareMoves for nodes with different filters, and for partitions.
func TestOnlyTheShareMovesInFleetsOfRoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}
		fleet := moment{refs: randomRefs(t, names), owner: make(map[int32]string)}
		roles := []engine.Member{role(t, names), role(t, names)}
		add := func(id string, role engine.Member) {
			role.ID = id
			fleet.members = append(fleet.members, role)
		}
		for i := range rapid.IntRange(2, 7).Draw(t, "nodes") {
			add(fmt.Sprint("n", i), roles[i%2])
		}
		order := func(m []engine.Member) []engine.Member { return shuffled(t, m) }
		atOnce := rapid.Bool().Draw(t, "at once")
		fleet.comeToRest(t, atOnce, order)

		before := maps.Clone(fleet.owner)
		add("new", rapid.SampledFrom(roles).Draw(t, "role"))
		claimed, released := fleet.comeToRest(t, atOnce, order)
		if share := len(fleet.owned("new")); claimed != share || released != share {
			t.Fatalf("%d claims and %d releases for a share of %d", claimed, released, share)
		}
		for row, owner := range fleet.owner {
			if owner != "new" && owner != before[row] {
				t.Fatalf("row %d went from %s to %s when another joined", row, before[row], owner)
			}
		}
		fleet.check(t)
	})
}

// A release with another filter divides the leases into other classes. Most of the leases that move go to its node.
func TestNodeOfAnotherReleaseMovesFew(t *testing.T) {
	const size = 1000
	for _, test := range []struct {
		name     string
		old, new []string
	}{{"widened", []string{"t?*"}, nil}, {"narrowed", nil, []string{"t[1-5]*"}},
		{"moved", []string{"t[1-5]*"}, []string{"t[4-9]*"}}} {
		t.Run(test.name, func(t *testing.T) {
			fleet := moment{filtered(nodes(4, "a", "b"), test.old...), tenants(size, "a", "b"), make(map[int32]string)}
			fleet.comeToRest(t, true, inOrder)
			before := maps.Clone(fleet.owner)
			fleet.members = append(fleet.members,
				filtered([]engine.Member{{ID: "new", Projections: []string{"a", "b"}}}, test.new...)...)
			fleet.comeToRest(t, true, inOrder)
			fleet.check(t)
			moved := 0
			for row, owner := range fleet.owner {
				if owner != "new" && before[row] != "" && owner != before[row] {
					moved++
				}
			}
			t.Logf("%d of %d leases moved among the old nodes, %d to the new one", moved, len(fleet.refs),
				len(fleet.owned("new")))
			if moved > len(fleet.refs)/20 {
				t.Errorf("%d of %d leases moved among the old nodes", moved, len(fleet.refs))
			}
		})
	}
}

// partitions returns the leases of a split projection.
func partitions(row int32, tenant, name string, n int) (all []engine.LeaseRef) {
	for i := range n {
		all = append(all, engine.LeaseRef{Row: row + int32(i),
			ID: projection.ID{Tenant: tenant, Name: name, Partition: i + 1}})
	}
	return all
}

// spread returns how many partitions of a projection each member has.
func (m moment) spread(tenant, name string) (counts []int) {
	for _, member := range m.members {
		n := 0
		for _, s := range m.owned(member.ID) {
			if s.ID.Tenant == tenant && s.ID.Name == name && s.ID.Partition > 0 {
				n++
			}
		}
		counts = append(counts, n)
	}
	return counts
}

// TestPartitionsSpread checks that each node has its part of a split projection, be it alone or one of many leases.
// Nodes join and leave. -rapid.seed=N repeats a failure.
func TestPartitionsSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, many := rapid.IntRange(2, 40).Draw(t, "partitions"),
			rapid.SampledFrom([]int{0, 0, 50, 200}).Draw(t, "other tenants")
		fleet := moment{
			nodes(rapid.IntRange(1, 9).Draw(t, "nodes"), "a", "b"), tenants(many, "a", "b"), make(map[int32]string),
		}
		fleet.refs = append(fleet.refs, partitions(int32(len(fleet.refs)), "hot", "a", n)...)
		order := func(m []engine.Member) []engine.Member { return shuffled(t, m) }
		atOnce := rapid.Bool().Draw(t, "at once")
		// A move among many other leases may leave one partition too many on a node, since only what exceeds a target
		// moves.
		even := func(when string, slack int) {
			fleet.comeToRest(t, atOnce, order)
			if many == 0 {
				slack = 0
			}
			m := len(fleet.members)
			for _, own := range fleet.spread("hot", "a") {
				if own < n/m-slack || own > (n+m-1)/m+slack {
					t.Fatalf("%s, %d partitions are spread %v", when, n, fleet.spread("hot", "a"))
				}
			}
		}
		even("from empty", 0)
		fleet.members = append(fleet.members, nodes(10, "a", "b")[9])
		even("after one joined", 1)
		gone := fleet.members[0].ID
		fleet.members = fleet.members[1:]
		maps.DeleteFunc(fleet.owner, func(_ int32, o string) bool { return o == gone })
		even("after one left", 1)
	})
}

// Partitions do not draw the unsplit projections of their tenant apart, and the partitions of several projections with
// the same number share nodes, as far as the parts allow.
func TestSplitProjectionLeavesTheOthersOfItsTenantTogether(t *testing.T) {
	fleet := moment{nodes(4, "a", "b", "c", "d"), nil, make(map[int32]string)}
	const tenants = 100
	for i := range tenants {
		tenant := fmt.Sprint("t", i)
		fleet.refs = append(fleet.refs, partitions(int32(10*i), tenant, "a", 4)...)
		fleet.refs = append(fleet.refs, refs(int32(10*i+4), tenant, "b", "c", "d")...)
	}
	fleet.comeToRest(t, true, inOrder)
	fleet.check(t)
	apart := 0
	for i := range tenants {
		owner := func(k int) string { return fleet.owner[int32(10*i+k)] }
		if owner(4) != owner(5) || owner(4) != owner(6) {
			apart++
		}
		if counts := fleet.spread(fmt.Sprint("t", i), "a"); !slices.Equal(counts, []int{1, 1, 1, 1}) {
			t.Errorf("the partitions of t%d are spread %v", i, counts)
		}
	}
	if apart > 12 {
		t.Errorf("%d of %d tenants are apart", apart, tenants)
	}
}

func BenchmarkBalanceOfPartitionsAndFilters(b *testing.B) {
	const nodesAll, tenantsAll = 50, 10_000
	plain := tenants(tenantsAll, "a", "b")
	entries := make([]string, tenantsAll/2)
	for i := range entries {
		entries[i] = fmt.Sprint("t", 2*i)
	}
	var split []engine.LeaseRef
	for i := range tenantsAll {
		split = append(split, partitions(int32(4*i), fmt.Sprint("t", i), "a", 4)...)
	}
	for name, fleet := range map[string]moment{
		"no filter":           {members: nodes(nodesAll, "a", "b"), refs: plain},
		"a pattern":           {members: filtered(nodes(nodesAll, "a", "b"), "t[0-4]*"), refs: plain},
		"half of the tenants": {members: filtered(nodes(nodesAll, "a", "b"), entries...), refs: plain},
		"all split":           {members: nodes(nodesAll, "a", "b"), refs: split},
	} {
		b.Run(name, func(b *testing.B) {
			counts := fleet.counts()
			b.ReportMetric(float64(len(counts)), "counts")
			for b.Loop() {
				Balance("n1", fleet.members, counts, nil, fleet.refs)
			}
		})
	}
}
