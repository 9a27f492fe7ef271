package ownership

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"pgregory.net/rapid"
)

// refs returns leases of projections of a tenant; the first gets the row.
func refs(row int32, tenant string, names ...string) (all []engine.LeaseRef) {
	for i, name := range names {
		all = append(all, engine.LeaseRef{Row: row + int32(i), ID: projection.ID{Tenant: tenant, Name: name}})
	}
	return all
}

// tenants returns leases of the same projections for each of n tenants, in the order of rows. Those of a tenant lie n
// apart.
func tenants(n int, names ...string) (all []engine.LeaseRef) {
	for _, name := range names {
		for i := range n {
			all = append(all, refs(int32(len(all)), fmt.Sprintf("t%d", i), name)...)
		}
	}
	return all
}

// nodes returns n members that can run the names, for all tenants.
func nodes(n int, names ...string) (all []engine.Member) {
	for i := range n {
		all = append(all, engine.Member{ID: fmt.Sprintf("n%d", i+1), Projections: names})
	}
	return all
}

func inOrder(m []engine.Member) []engine.Member { return m }

func TestBalance(t *testing.T) {
	one, two, four := nodes(1, "a"), nodes(2, "a"), tenants(4, "a")
	restricted := func(tenants ...string) []engine.Member {
		return append(nodes(1, "a"), engine.Member{ID: "n2", Projections: []string{"a"}, Tenants: tenants})
	}
	ten := []engine.Want{{Name: "a", Leases: 10}}
	for name, test := range map[string]struct {
		members   []engine.Member
		counts    []engine.Want
		own, free []engine.LeaseRef
		// claim and release are how many refs of n1 move; rows are the ones that must be among them.
		claim, release int
		rows           []int32
	}{
		"no other node": {members: one, counts: ten, free: four, claim: 4},
		"half":          {members: two, counts: ten, own: four[:3], free: four[3:], claim: 1},
		"no more than half": {
			members: two, counts: []engine.Want{{Name: "a", Leases: 4}}, free: four, claim: 2,
		},
		"half already": {
			members: two, counts: []engine.Want{{Name: "a", Leases: 4}}, own: four[:2], free: four[2:],
		},
		"more than half": {
			members: two, counts: []engine.Want{{Name: "a", Leases: 4}}, own: four[:3], free: four[3:], release: 1,
		},
		"nothing to release to": {members: one, counts: []engine.Want{{Name: "a", Leases: 1}}, own: four},
		"not a member":          {members: nodes(2, "a")[1:], counts: ten, own: four[:2], free: four[2:]},
		"nothing known":         {members: nodes(1), counts: ten, free: four},
		"nothing at all":        {members: two},
		"no counts":             {members: one, free: four, claim: 4},
		"no counts, others":     {members: two, free: four, claim: 2},
		"old counts":            {members: two, counts: []engine.Want{{Name: "a", Leases: 2}}, own: four},
		"old counts by what is free": {
			members: two, counts: []engine.Want{{Name: "a", Leases: 3}}, own: four[:3], free: four[3:],
		},
		"a count below zero": {
			members: two, counts: []engine.Want{{Name: "a", Leases: -9}, {Name: "a", Leases: 4}}, own: four, release: 2,
		},
		"counts add up": {
			members: two, counts: []engine.Want{{Name: "a", Leases: 2}, {Name: "a", Leases: 2}}, own: four, release: 2,
		},
		"own and free": {
			members: two, counts: []engine.Want{{Name: "a", Leases: 4}}, own: four[:1], free: four, claim: 1,
		},
		"a row twice": {
			members: two, counts: []engine.Want{{Name: "a", Leases: 4}}, own: append(four[:2:2], four[:2]...),
		},
		"a member twice": {
			members: []engine.Member{one[0], one[0], {ID: "n1"}}, counts: []engine.Want{{Name: "a", Leases: 4}},
			free: four, claim: 4,
		},
		"a name twice": {
			members: []engine.Member{{ID: "n1", Projections: []string{"a", "a"}}, two[1]}, counts: ten[:1],
			free: tenants(10, "a"), claim: 5,
		},
		"all of what is unknown": {
			members: one, counts: ten, own: refs(7, "t", "x", "a", "y"), release: 2, rows: []int32{7, 9},
		},
		"what is unknown does not count": {
			members: two, counts: []engine.Want{{Name: "a", Leases: 2}}, own: refs(7, "t", "x", "a", "y"), release: 2,
			rows: []int32{7, 9},
		},
		"another's tenant is shared": {
			members: restricted("t1"), counts: []engine.Want{{Tenant: "t1", Name: "a", Leases: 2},
				{Name: "a", Leases: 2}}, free: append(refs(9, "t1", "a"), four[1:]...), claim: 3, rows: []int32{2, 3},
		},
		"another's tenant is its too": {
			members: restricted("t1"), counts: []engine.Want{{Tenant: "t1", Name: "a", Leases: 4}},
			own: refs(0, "t1", "a", "a", "a", "a"), release: 2,
		},
		"the default tenant by its name": {
			members: restricted("default"), counts: []engine.Want{{Tenant: "default", Name: "a", Leases: 4}},
			own: refs(0, "", "a", "a", "a", "a"), release: 2,
		},
		"the default tenant without": {
			members: restricted(""), counts: []engine.Want{{Tenant: "default", Name: "a", Leases: 4}},
			own: refs(0, "default", "a", "a", "a", "a"), release: 2,
		},
		"a count of a tenant not named": {
			members: two, counts: []engine.Want{{Tenant: "t", Name: "a", Leases: 4}},
			own: refs(0, "t", "a", "a", "a", "a"), release: 2,
		},
		// n1 and n2 know a, n1 alone knows b: each class is divided on its own.
		"classes": {
			members: []engine.Member{nodes(1, "a", "b")[0], two[1]},
			counts:  []engine.Want{{Name: "a", Leases: 4}, {Name: "b", Leases: 4}}, free: tenants(4, "a", "b"),
			claim: 6, rows: []int32{4, 5, 6, 7},
		},
		// If a node has more than its share of a class, it does not claim free leases of that class.
		"both at once": {
			members: []engine.Member{nodes(1, "a", "b")[0], two[1]},
			counts:  []engine.Want{{Name: "a", Leases: 4}, {Name: "b", Leases: 1}}, own: four[:3],
			free: append(refs(9, "t", "b"), four[3]), claim: 1, release: 1, rows: []int32{9},
		},
	} {
		t.Run(name, func(t *testing.T) {
			moves := Balance("n1", test.members, test.counts, test.own, test.free)
			if len(moves.Claim) != test.claim || len(moves.Release) != test.release {
				t.Errorf("%v, want to claim %d and release %d", moves, test.claim, test.release)
			}
			if slices.ContainsFunc(test.own,
				func(s engine.LeaseRef) bool { return slices.Contains(moves.Claim, s.Row) }) {
				t.Errorf("%v, though it owns %v", moves, test.own)
			}
			for _, row := range test.rows {
				if !slices.Contains(moves.Claim, row) && !slices.Contains(moves.Release, row) {
					t.Errorf("%v, want %d among them", moves, row)
				}
			}
		})
	}
}

func TestFourLeasesOnThreeNodes(t *testing.T) {
	fleet := moment{nodes(3, "a"), tenants(4, "a"), make(map[int32]string)}
	fleet.comeToRest(t, false, inOrder)
	var shares []int
	for _, m := range fleet.members {
		shares = append(shares, len(fleet.owned(m.ID)))
	}
	slices.Sort(shares)
	if !slices.Equal(shares, []int{1, 1, 2}) {
		t.Errorf("shares are %v", shares)
	}
}

func TestClaimsBeginWithTenantsThatTheNodeHas(t *testing.T) {
	members, all := nodes(3, "a", "b"), tenants(30, "a", "b")
	self := members[0].ID
	f, _ := assemble(self, members)
	place := func(row int32) int { return f.rank(hash("tenant", all[row].ID.Tenant), f.class("", "a")) }
	for i := range all {
		own, other := all[i:i+1], int32(i+30)%60
		free := slices.Delete(slices.Clone(all), i, i+1)
		claim := Balance(self, members, []engine.Want{{Name: "a", Leases: 30}, {Name: "b", Leases: 30}}, own,
			free).Claim
		if len(claim) != 19 || claim[0] != other {
			t.Fatalf("owns row %d, claims %v", i, claim)
		}
		if !slices.IsSortedFunc(claim[1:], func(a, b int32) int { return place(a) - place(b) }) {
			t.Errorf("claims %v though it ranks worse for the first", claim)
		}
		for k := 1; k+1 < len(claim); k += 2 {
			if all[claim[k]].ID.Tenant != all[claim[k+1]].ID.Tenant {
				t.Errorf("claims a tenant apart: %v", claim)
			}
		}
		if release := Balance(self, members, []engine.Want{{Name: "a", Leases: 60}}, all,
			nil).Release; len(release) != 40 ||
			!slices.IsSortedFunc(release, func(a, b int32) int { return place(b) - place(a) }) {
			t.Errorf("releases %v though it ranks better for the first", release)
		}
	}
}

func TestLeasesOfATenantMoveInOrder(t *testing.T) {
	all := tenants(20, slices.Repeat([]string{"a"}, 20)...)
	last := make(map[string]int32)
	for _, row := range Balance("n1", nodes(1, "a"), nil, nil, all).Claim {
		tenant := all[row].ID.Tenant
		if row < last[tenant] {
			t.Errorf("claims row %d of %s behind %d", row, tenant, last[tenant])
		}
		last[tenant] = row
	}
}

func TestForeignLeasesAreReleasedFirst(t *testing.T) {
	own := append(tenants(4, "a"), refs(7, "t", "x")...)
	release := Balance("n1", nodes(2, "a"), []engine.Want{{Name: "a", Leases: 4}}, own, nil).Release
	if len(release) != 3 || release[0] != 7 {
		t.Errorf("releases %v", release)
	}
}

// TestOnlyTheShareMoves checks that a node that joins or leaves moves no leases among the others. -rapid.seed=N repeats
// a failure.
func TestOnlyTheShareMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := tenants(rapid.IntRange(0, 40).Draw(t, "tenants"),
			[]string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "projections")]...)
		fleet := moment{nodes(rapid.IntRange(1, 8).Draw(t, "nodes"), "a", "b", "c"), all, make(map[int32]string)}
		order := func(m []engine.Member) []engine.Member { return shuffled(t, m) }
		atOnce := rapid.Bool().Draw(t, "at once")
		fleet.comeToRest(t, atOnce, order)

		before := maps.Clone(fleet.owner)
		fleet.members = append(fleet.members, engine.Member{ID: "new", Projections: []string{"c", "b", "a"}})
		claimed, released := fleet.comeToRest(t, atOnce, order)
		share := len(fleet.owned("new"))
		if claimed != share || released != share {
			t.Fatalf("%d claims and %d releases for a share of %d", claimed, released, share)
		}
		for row, owner := range fleet.owner {
			if owner != "new" && owner != before[row] {
				t.Fatalf("row %d went from %s to %s when another joined", row, before[row], owner)
			}
		}

		i := rapid.IntRange(0, len(fleet.members)-1).Draw(t, "leaves")
		gone := fleet.members[i].ID
		fleet.members = slices.Delete(fleet.members, i, i+1)
		share = len(fleet.owned(gone))
		maps.DeleteFunc(fleet.owner, func(_ int32, o string) bool { return o == gone })
		if claimed, released := fleet.comeToRest(t, atOnce, order); claimed != share || released != 0 {
			t.Fatalf("%d claims and %d releases when a node with %d left", claimed, released, share)
		}
		fleet.check(t)
	})
}

func TestTenantsStayTogether(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		for _, test := range []struct{ nodes, tenants int }{{2, 999}, {3, 999}, {3, 1000}, {7, 998}} {
			t.Run(fmt.Sprintf("%d tenants on %d nodes, at once %v", test.tenants, test.nodes, atOnce),
				func(t *testing.T) {
					fleet := moment{
						nodes(test.nodes, "a", "b", "c", "d"), tenants(test.tenants, "a", "b", "c", "d"),
						make(map[int32]string),
					}
					few := func(when string) {
						fleet.comeToRest(t, atOnce, inOrder)
						fleet.check(t)
						split := 0
						for i := range test.tenants {
							owner := func(k int) string { return fleet.owner[int32(k*test.tenants+i)] }
							if owner(0) != owner(1) || owner(0) != owner(2) || owner(0) != owner(3) {
								split++
							}
						}
						if split > 3*test.nodes {
							t.Errorf("%d tenants are split %s", split, when)
						}
					}
					few("from empty")
					fleet.members = append(fleet.members,
						engine.Member{ID: "new", Projections: []string{"a", "b", "c", "d"}})
					few("after one joined")
					maps.DeleteFunc(fleet.owner, func(_ int32, o string) bool { return o == "n1" })
					fleet.members = fleet.members[1:]
					few("after one left")
				})
		}
	}
}

func TestRanksSpreadEvenly(t *testing.T) {
	for form, tenant := range map[string]string{"short": "t%d", "padded": "tenant-%08d", "ahead": "%d.example.com"} {
		first := make(map[string]int)
		for _, node := range nodes(5, "a") {
			f, _ := assemble(node.ID, nodes(5, "a"))
			all := f.class("", "a")
			for i := range 10_000 {
				if f.rank(hash("tenant", fmt.Sprintf(tenant, i)), all) == 0 {
					first[node.ID]++
				}
			}
		}
		sum := 0
		for node, n := range first {
			sum += n
			if n < 1500 || n > 2500 {
				t.Errorf("%s names: %s is first for %d of 10,000 tenants", form, node, n)
			}
		}
		if sum != 10_000 {
			t.Errorf("%s names: %d are first for 10,000 tenants", form, sum)
		}
	}
}

// If these ranks change, nodes of two versions disagree during a deployment.
func TestRanksAreTheSameForever(t *testing.T) {
	if got := hash("tenant", "acme"); got != 0xac497fc9b37df9b8 {
		t.Errorf("hash is %#x", got)
	}
	claim := Balance("n1", nodes(3, "a"), []engine.Want{{Name: "a", Leases: 30}}, nil, tenants(8, "a")).Claim
	if want := []int32{1, 2, 3, 4, 6, 7, 0, 5}; !slices.Equal(claim, want) {
		t.Errorf("claims %v, want %v", claim, want)
	}
	// The class of each projection has one lease.
	var owners []string
	for _, name := range strings.Split("abcdefgh", "") {
		for _, self := range []string{"n1", "n2", "n3"} {
			if len(Balance(self, nodes(3, name), []engine.Want{{Name: name, Leases: 1}}, nil,
				tenants(1, name)).Claim) == 1 {
				owners = append(owners, self)
			}
		}
	}
	if want := strings.Fields("n2 n1 n2 n1 n1 n2 n3 n1"); !slices.Equal(owners, want) {
		t.Errorf("owners are %v, want %v", owners, want)
	}
}

func BenchmarkBalance(b *testing.B) {
	for _, size := range []struct{ refs, members int }{{20_000, 10}, {100_000, 50}} {
		all := tenants(size.refs/4, "a", "b", "c", "d")
		members, counts := nodes(size.members, "a", "b", "c", "d"), []engine.Want{{Name: "a", Leases: size.refs}}
		for _, state := range []struct {
			name      string
			own, free []engine.LeaseRef
		}{{"all free", nil, all}, {"at rest", all[:size.refs/size.members], nil}, {"all own", all, nil}} {
			b.Run(fmt.Sprintf("%d refs, %d members, %s", size.refs, size.members, state.name), func(b *testing.B) {
				for b.Loop() {
					Balance("n1", members, counts, state.own, state.free)
				}
			})
		}
	}
}
