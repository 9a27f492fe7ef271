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

// Plan is what a node is to do. The rows stand in the order in which they are to be claimed and released.
type Plan struct {
	Claim, Release []int32
}

// Balance says which of the free leases the node self is to claim and which of its own it is to release. It is pure, the
// same on every machine, and no order of its arguments matters.
//
// Leases that the same members know form a class. A member's target is the floor of its fair share of the class, and one
// more for those that rank highest for the class by rendezvous, so that the targets add up. Nobody claims beyond its
// target or stays above it: once all see the same, each node needs to act twice at most. One that joins or leaves with
// all of a class moves no leases among the others. By rendezvous per tenant, different nodes reach for different tenants
// and keep a tenant's projections together, so that these share a feed.
//
// Arguments that are out of date cost no more than moves in vain. Where self sees more leases of a class than are counted
// the count is known to be old, and self releases none of them: they might be above everybody's target, and without an
// owner until the count is right. So own and free have to hold what is wanted only, like the counts. A node that is not
// among the members has nothing to do.
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
	slices.SortFunc(foreign, seat.compare)
	for _, s := range foreign {
		m.Release = append(m.Release, s.row)
	}
	// What would be claimed last is released first.
	slices.SortFunc(held, func(a, b seat) int { return b.compare(a) })
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
	slices.SortFunc(open, seat.compare)
	for _, s := range open {
		if s.class.room > 0 {
			s.class.room--
			m.Claim = append(m.Claim, s.row)
		}
	}
	return m
}

// distinct returns the seats by row, each row once.
func distinct(seats []engine.LeaseRef) []engine.LeaseRef {
	seats = slices.Clone(seats)
	slices.SortFunc(seats, func(a, b engine.LeaseRef) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), strings.Compare(a.ID.Tenant, b.ID.Tenant),
			strings.Compare(a.ID.Name, b.ID.Name), cmp.Compare(a.ID.Partition, b.ID.Partition))
	})
	return slices.CompactFunc(seats, func(a, b engine.LeaseRef) bool { return a.Row == b.Row })
}

// seat is a LeaseRef in its place.
type seat struct {
	row    int32
	tenant string
	class  *class
	// apart is 1 where the node keeps no other seat of the tenant.
	apart int
	// rank is the node's for the tenant among the members that know the seat; 0 is the best.
	rank int
}

// compare puts first what is to be claimed first. The seats of one tenant and class are neighbours.
func (s seat) compare(o seat) int {
	return cmp.Or(cmp.Compare(s.apart, o.apart), cmp.Compare(s.rank, o.rank), strings.Compare(s.tenant, o.tenant),
		cmp.Compare(s.row, o.row))
}

// class is the leases that the same members know.
type class struct {
	knowers []int // indexes of members
	known   bool  // by self
	// first is the smallest tenant and name that was counted. It names the class by what is in it rather than by who
	// knows it, so that the ranks stay when a member joins or leaves.
	first   scope
	counted bool
	leases  int // by the counts
	seen    int // of self's own and free seats
	own     int
	// excess is how many seats are to be released, room how many to be claimed.
	excess, room int
}

// scope is what a Count counts.
type scope struct{ tenant, name string }

func (s scope) compare(o scope) int {
	return cmp.Or(strings.Compare(s.tenant, o.tenant), strings.Compare(s.name, o.name))
}

// fleet is the members by ID, and the classes that they make.
type fleet struct {
	members []engine.Member
	scores  []uint64
	self    int
	// runs and serves are the indexes of those who registered a name, and who name a tenant.
	runs, serves map[string][]int
	// scopes and sets find a class, by what was or might be counted, and by who knows it.
	scopes map[scope]*class
	sets   map[string]*class
}

// muster reports false where self is not among the members.
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

// class returns the one to which a projection of a tenant belongs.
func (f *fleet) class(tenant, name string) *class {
	serves, named := f.serves[tenant]
	if !named {
		tenant = ""
	}
	s := scope{tenant, name}
	if c := f.scopes[s]; c != nil {
		return c
	}
	var knowers []int
	var key []byte
	for _, i := range slices.Compact(slices.Clone(f.runs[name])) {
		if len(f.members[i].Tenants) == 0 || slices.Contains(serves, i) {
			knowers, key = append(knowers, i), binary.AppendUvarint(key, uint64(i))
		}
	}
	c := f.sets[string(key)]
	if c == nil {
		c = &class{knowers: knowers, known: slices.Contains(knowers, f.self)}
		f.sets[string(key)] = c
	}
	f.scopes[s] = c
	return c
}

func (f *fleet) count(n engine.Want) {
	c, s := f.class(n.Tenant, n.Name), scope{n.Tenant, n.Name}
	if !c.counted || s.compare(c.first) < 0 {
		c.first, c.counted = s, true
	}
	c.leases += max(0, n.Leases)
}

// place parts the seats that self knows from the others.
func (f *fleet) place(seats []engine.LeaseRef) (known, foreign []seat) {
	for _, s := range seats {
		tenant := engine.FullID(s.ID).Tenant
		placed := seat{row: s.Row, tenant: tenant, class: f.class(tenant, s.ID.Name)}
		if placed.class.known {
			placed.class.seen++
			placed.rank = f.rank(hash("tenant", tenant), placed.class)
			known = append(known, placed)
		} else {
			foreign = append(foreign, placed)
		}
	}
	return known, foreign
}

// divide finds what self has too much or too little of.
func (f *fleet) setTargets() {
	for _, c := range f.sets {
		if !c.known {
			continue
		}
		total := max(c.leases, c.seen)
		target := total / len(c.knowers)
		if f.rank(hash("class", c.first.tenant, c.first.name), c) < total%len(c.knowers) {
			target++
		}
		c.room = max(0, target-c.own)
		if c.seen <= c.leases {
			c.excess = max(0, c.own-target)
		}
	}
}

// rank is how many of those who know the class come before self for the key.
func (f *fleet) rank(key uint64, c *class) int {
	mine, before := mix(key^f.scores[f.self]), 0
	for _, i := range c.knowers {
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

// mix lets every bit of x change half of all bits; without it FNV ranks short texts that are alike by their last
// letters. It is the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
