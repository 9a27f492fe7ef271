package ownership

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// class is a set of leases that the same members can run.
type class struct {
	runners []int // indexes of members
	runs    bool  // self is among them
	// scopes are the counted scopes of the class. The smallest is the name of the class. If the members were the name,
	// it would change when a member joins or leaves, and with it all ranks.
	scopes []scope
	leases int // by the counts
	seen   int // self's own and free ones
	own    int
	// excess is how many leases self releases, room how many it claims.
	excess, room int
}

// split is the partitions of one projection.
type split struct {
	class  *class
	leases int // by the counts
	seen   int // self's own and free ones
	// part is how many of the partitions self should have, and own how many it has.
	part, own int
}

// scope is the tenant and the name of a Want.
type scope struct{ tenant, name string }

func (s scope) compare(o scope) int {
	return cmp.Or(strings.Compare(s.tenant, o.tenant), strings.Compare(s.name, o.name))
}

// hash ranks the members for what the scope names.
func (s scope) hash() uint64 { return hash("class", s.tenant, s.name) }

// group is the members that registered a name with the same filter, by their indexes.
type group struct {
	filter  engine.TenantFilter
	members []int
}

// fleet has the members by ID, and their classes.
type fleet struct {
	members []engine.Member
	scores  []uint64
	self    int
	// groups are the groups of each name. filtered has the names that a member runs for some tenants only. serves has,
	// for each tenant, the indexes of the members that name it.
	groups   map[string][]*group
	filtered map[string]bool
	serves   map[string][]int
	// scopes and sets find a class, by a scope and by its runners.
	scopes map[scope]*class
	sets   map[string]*class
	splits map[scope]*split
}

// assemble returns false if self is not among the members.
func assemble(self string, members []engine.Member) (*fleet, bool) {
	members = slices.Clone(members)
	slices.SortStableFunc(members, func(a, b engine.Member) int { return strings.Compare(a.ID, b.ID) })
	members = slices.CompactFunc(members, func(a, b engine.Member) bool { return a.ID == b.ID })
	f := &fleet{
		members: members, groups: make(map[string][]*group), filtered: make(map[string]bool),
		serves: make(map[string][]int),
		scopes: make(map[scope]*class), sets: make(map[string]*class), splits: make(map[scope]*split),
	}
	for i, m := range members {
		f.scores = append(f.scores, hash("member", m.ID))
		for _, name := range m.Projections {
			f.register(i, name, m.Filters[name])
		}
		for _, tenant := range m.Tenants {
			tenant = engine.FullID(projection.ID{Tenant: tenant}).Tenant
			f.serves[tenant] = append(f.serves[tenant], i)
		}
	}
	var ok bool
	f.self, ok = slices.BinarySearchFunc(members, self,
		func(m engine.Member, id string) int { return strings.Compare(m.ID, id) })
	return f, ok
}

// register adds a member to the group of its filter. Members are added in order.
func (f *fleet) register(member int, name string, filter engine.TenantFilter) {
	i := slices.IndexFunc(f.groups[name],
		func(g *group) bool { return slices.Equal(g.filter.Entries(), filter.Entries()) })
	if i < 0 {
		f.groups[name] = append(f.groups[name], &group{filter: filter})
		i = len(f.groups[name]) - 1
	}
	// a name may be there twice
	if g := f.groups[name][i]; len(g.members) == 0 || g.members[len(g.members)-1] != member {
		g.members = append(g.members, member)
	}
	if !filter.All() {
		f.filtered[name] = true
	}
}

// class returns the class of a projection of a tenant.
func (f *fleet) class(tenant, name string) *class {
	serves, named := f.serves[tenant]
	if !named && !f.filtered[name] {
		tenant = ""
	}
	s := scope{tenant, name}
	if c := f.scopes[s]; c != nil {
		return c
	}
	var runners []int
	for _, g := range f.groups[name] {
		if !g.filter.Matches(tenant) {
			continue
		}
		for _, i := range g.members {
			if len(f.members[i].Tenants) == 0 || slices.Contains(serves, i) {
				runners = append(runners, i)
			}
		}
	}
	slices.Sort(runners)
	var key []byte
	for _, i := range runners {
		key = binary.AppendUvarint(key, uint64(i))
	}
	c := f.sets[string(key)]
	if c == nil {
		c = &class{runners: runners, runs: slices.Contains(runners, f.self)}
		f.sets[string(key)] = c
	}
	f.scopes[s] = c
	return c
}

// place separates the leases that self can run from the others.
func (f *fleet) place(leases []engine.LeaseRef) (known, foreign []candidate) {
	for _, s := range leases {
		id := engine.FullID(s.ID)
		placed := candidate{row: s.Row, tenant: id.Tenant, class: f.class(id.Tenant, id.Name)}
		if !placed.class.runs {
			foreign = append(foreign, placed)
			continue
		}
		placed.class.seen++
		key := hash("tenant", id.Tenant)
		if id.Partition > 0 {
			placed.split = f.split(scope{id.Tenant, id.Name}, placed.class)
			placed.split.seen++
			key = hash("partition", id.Tenant, strconv.Itoa(id.Partition))
		}
		placed.rank = int32(f.rank(key, placed.class))
		known = append(known, placed)
	}
	return known, foreign
}

func (f *fleet) split(s scope, c *class) *split {
	if f.splits[s] == nil {
		f.splits[s] = &split{class: c}
	}
	return f.splits[s]
}

func (f *fleet) count(n engine.Want) {
	s, leases := scope{n.Tenant, n.Name}, max(0, n.Leases)
	c := f.class(n.Tenant, n.Name)
	c.scopes = append(c.scopes, s)
	c.leases += leases
	if split := f.splits[s]; split != nil {
		split.leases += leases
	}
}

// setTargets finds the classes of which self has too many or too few leases, and self's part of each split projection.
func (f *fleet) setTargets() {
	for _, c := range f.sets {
		if !c.runs {
			continue
		}
		var name scope
		if len(c.scopes) != 0 {
			name = slices.MinFunc(c.scopes, scope.compare)
		}
		target := f.share(max(c.leases, c.seen), name, c)
		c.room = max(0, target-c.own)
		if c.seen <= c.leases {
			c.excess = max(0, c.own-target)
		}
	}
	for s, split := range f.splits {
		split.part = f.share(max(split.leases, split.seen), s, split.class)
	}
}

// share returns self's share of a number of leases of a class.
func (f *fleet) share(leases int, of scope, c *class) int {
	share := leases / len(c.runners)
	if f.rank(of.hash(), c) < leases%len(c.runners) {
		share++
	}
	return share
}

// rank returns how many runners of the class come before self for the key.
func (f *fleet) rank(key uint64, c *class) int {
	mine, before := mix(key^f.scores[f.self]), 0
	for _, i := range c.runners {
		if s := mix(key ^ f.scores[i]); s > mine || s == mine && i < f.self {
			before++
		}
	}
	return before
}

// hash must never change: nodes of two versions would rank differently while a deployment lasts.
func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return mix(h.Sum64())
}

// mix lets every bit of x change half of all bits. Without it, FNV ranks short texts that are alike by their last
// characters. It is the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
