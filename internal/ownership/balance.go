package ownership

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Plan has the rows of the leases that a node claims and releases, in order.
type Plan struct {
	Claim, Release []int32
}

// Balance returns which of the free leases the node self claims and which of its own it releases. The result is the same on
// every machine, whatever the order of the arguments.
//
// Leases that the same members can run form a class. A member's target is the floor of its fair share of the class. The members
// that rank highest for the class by rendezvous have one more, so that the targets add up. A member neither claims beyond its
// target nor stays above it. Once all members see the same, each acts at most twice. A member that joins or leaves moves no
// leases among the others. The rendezvous rank is per tenant: different nodes claim different tenants and keep a tenant's
// projections together, so that these share a feed.
//
// Arguments that are out of date cost only needless moves. If self sees more leases of a class than are counted, the count is
// old. Then self releases none of them: they might be above every member's target, and would have no owner until the count is
// right. So own and free must hold only wanted leases, like the counts. A node that is not among the members does nothing.
func Balance(self string, members []engine.Member, counts []engine.Want, own, free []engine.LeaseRef) Plan {
	f, ok := assemble(self, members)
	if !ok {
		return Plan{}
	}
	for _, c := range counts {
		f.count(c)
	}
	own, free = distinct(own), distinct(free)
	free = slices.DeleteFunc(free, func(s engine.LeaseRef) bool {
		_, mine := slices.BinarySearchFunc(own, s.Row, func(o engine.LeaseRef, row int32) int { return cmp.Compare(o.Row, row) })
		return mine
	})
	held, foreign := f.place(own)
	open, _ := f.place(free)
	for _, s := range held {
		s.class.own++
	}
	f.setTargets()

	var m Plan
	slices.SortFunc(foreign, candidate.compare)
	for _, s := range foreign {
		m.Release = append(m.Release, s.row)
	}
	// The lease that would be claimed last is released first.
	slices.SortFunc(held, func(a, b candidate) int { return b.compare(a) })
	kept := make(map[string]bool)
	for _, s := range held {
		if s.class.excess > 0 {
			s.class.excess--
			m.Release = append(m.Release, s.row)
		} else {
			kept[s.tenant] = true
		}
	}
	for i := range open {
		if !kept[open[i].tenant] {
			open[i].apart = 1
		}
	}
	slices.SortFunc(open, candidate.compare)
	for _, s := range open {
		if s.class.room > 0 {
			s.class.room--
			m.Claim = append(m.Claim, s.row)
		}
	}
	return m
}

// distinct returns the leases by row, each row once.
func distinct(leases []engine.LeaseRef) []engine.LeaseRef {
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b engine.LeaseRef) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), strings.Compare(a.ID.Tenant, b.ID.Tenant),
			strings.Compare(a.ID.Name, b.ID.Name), cmp.Compare(a.ID.Partition, b.ID.Partition))
	})
	return slices.CompactFunc(leases, func(a, b engine.LeaseRef) bool { return a.Row == b.Row })
}

// candidate is a lease with what orders it among others.
type candidate struct {
	row    int32
	tenant string
	class  *class
	// apart is 1 if the node keeps no other lease of the tenant.
	apart int
	// rank is the node's rank for the tenant among the members that can run the lease; 0 is the best.
	rank int
}

// compare orders candidates for claims. The leases of one tenant and class are neighbours.
func (s candidate) compare(o candidate) int {
	return cmp.Or(cmp.Compare(s.apart, o.apart), cmp.Compare(s.rank, o.rank), strings.Compare(s.tenant, o.tenant),
		cmp.Compare(s.row, o.row))
}

// class is the leases that the same members can run.
type class struct {
	runners []int // indexes of members
	runs    bool  // self is among them
	// scopes are those that were counted. The smallest names the class: by the members it would change its name, and all ranks
	// in it, when one joins or leaves.
	scopes []scope
	leases int // by the counts
	seen   int // self's own and free ones
	own    int
	// excess is how many leases self releases, room how many it claims.
	excess, room int
}

// scope is the tenant and the name of a Want.
type scope struct{ tenant, name string }

func (s scope) compare(o scope) int {
	return cmp.Or(strings.Compare(s.tenant, o.tenant), strings.Compare(s.name, o.name))
}

// fleet has the members by ID, and their classes.
type fleet struct {
	members []engine.Member
	scores  []uint64
	self    int
	// runs and serves are the indexes of the members that registered a name, and of those that name a tenant.
	runs, serves map[string][]int
	// scopes and sets find a class, by a scope and by its runners.
	scopes map[scope]*class
	sets   map[string]*class
}

// assemble returns false if self is not among the members.
func assemble(self string, members []engine.Member) (*fleet, bool) {
	members = slices.Clone(members)
	slices.SortStableFunc(members, func(a, b engine.Member) int { return strings.Compare(a.ID, b.ID) })
	members = slices.CompactFunc(members, func(a, b engine.Member) bool { return a.ID == b.ID })
	f := &fleet{
		members: members, runs: make(map[string][]int), serves: make(map[string][]int),
		scopes: make(map[scope]*class), sets: make(map[string]*class),
	}
	for i, m := range members {
		f.scores = append(f.scores, hash("member", m.ID))
		for _, name := range m.Projections {
			f.runs[name] = append(f.runs[name], i)
		}
		for _, tenant := range m.Tenants {
			tenant = engine.FullID(projection.ID{Tenant: tenant}).Tenant
			f.serves[tenant] = append(f.serves[tenant], i)
		}
	}
	var ok bool
	f.self, ok = slices.BinarySearchFunc(members, self, func(m engine.Member, id string) int { return strings.Compare(m.ID, id) })
	return f, ok
}

// class returns the class of a projection of a tenant.
func (f *fleet) class(tenant, name string) *class {
	serves, named := f.serves[tenant]
	if !named {
		tenant = ""
	}
	s := scope{tenant, name}
	if c := f.scopes[s]; c != nil {
		return c
	}
	var runners []int
	var key []byte
	for _, i := range slices.Compact(slices.Clone(f.runs[name])) {
		if len(f.members[i].Tenants) == 0 || slices.Contains(serves, i) {
			runners, key = append(runners, i), binary.AppendUvarint(key, uint64(i))
		}
	}
	c := f.sets[string(key)]
	if c == nil {
		c = &class{runners: runners, runs: slices.Contains(runners, f.self)}
		f.sets[string(key)] = c
	}
	f.scopes[s] = c
	return c
}

func (f *fleet) count(n engine.Want) {
	c := f.class(n.Tenant, n.Name)
	c.scopes = append(c.scopes, scope{n.Tenant, n.Name})
	c.leases += max(0, n.Leases)
}

// place separates the leases that self can run from the others.
func (f *fleet) place(leases []engine.LeaseRef) (known, foreign []candidate) {
	for _, s := range leases {
		tenant := engine.FullID(s.ID).Tenant
		placed := candidate{row: s.Row, tenant: tenant, class: f.class(tenant, s.ID.Name)}
		if placed.class.runs {
			placed.class.seen++
			placed.rank = f.rank(hash("tenant", tenant), placed.class)
			known = append(known, placed)
		} else {
			foreign = append(foreign, placed)
		}
	}
	return known, foreign
}

// setTargets finds the classes of which self has too many or too few leases.
func (f *fleet) setTargets() {
	for _, c := range f.sets {
		if !c.runs {
			continue
		}
		total := max(c.leases, c.seen)
		target := total / len(c.runners)
		var name scope
		if len(c.scopes) != 0 {
			name = slices.MinFunc(c.scopes, scope.compare)
		}
		if f.rank(hash("class", name.tenant, name.name), c) < total%len(c.runners) {
			target++
		}
		c.room = max(0, target-c.own)
		if c.seen <= c.leases {
			c.excess = max(0, c.own-target)
		}
	}
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

// mix lets every bit of x change half of all bits. Without it, FNV ranks short texts that are alike by their last characters.
// It is the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
