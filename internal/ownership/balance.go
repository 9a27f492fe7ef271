package ownership

import (
	"cmp"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/internal/engine"
)

// Plan has the rows of the leases that a node claims and releases, in order.
type Plan struct {
	Claim, Release []int32
}

// Balance returns which of the free leases the node self claims and which of its own it releases. The result is the
// same on every machine, whatever the order of the arguments.
//
// Leases that the same members can run form a class. A member's target is the floor of its fair share of the class. The
// members that rank highest for the class by rendezvous have one more, so that the targets add up. A member neither
// claims beyond its target nor stays above it. Once all members see the same, each acts at most twice. A member that
// joins or leaves moves no leases among the others. The rendezvous rank is per tenant: different nodes claim different
// tenants and keep a tenant's projections together, so that these share a feed.
//
// The partitions of one projection are spread instead. A member's part of them is found like a target. Up to its part a
// member prefers them to all other leases, and beyond that it prefers all others. Their rendezvous rank is per tenant
// and partition.
//
// Arguments that are out of date cost only needless moves. If self sees more leases of a class than are counted, the
// count is old. Then self releases none of them: they might be above every member's target, and would have no owner
// until the count is right. So own and free must hold only wanted leases, like the counts. A node that is not among the
// members does nothing. Leases that no member can run are not counted.
func Balance(self string, members []engine.Member, counts []engine.Want, own, free []engine.LeaseRef) Plan {
	f, ok := assemble(self, members)
	if !ok {
		return Plan{}
	}
	own, free = distinct(own), distinct(free)
	free = slices.DeleteFunc(free, func(s engine.LeaseRef) bool {
		_, mine := slices.BinarySearchFunc(own, s.Row,
			func(o engine.LeaseRef, row int32) int { return cmp.Compare(o.Row, row) })
		return mine
	})
	held, foreign := f.place(own)
	open, _ := f.place(free)
	for _, c := range counts {
		f.count(c)
	}
	for _, s := range held {
		s.class.own++
	}
	f.setTargets()

	var m Plan
	slices.SortFunc(foreign, candidate.compare)
	for _, s := range foreign {
		m.Release = append(m.Release, s.row)
	}
	kept := m.release(held)
	m.claim(open, kept)
	return m
}

// release releases what exceeds the targets, and returns the tenants of the unsplit projections that are left.
func (m *Plan) release(held []candidate) (kept map[string]bool) {
	orderPartitions(held)
	// The lease that would be claimed last is released first.
	slices.SortFunc(held, func(a, b candidate) int { return b.compare(a) })
	kept = make(map[string]bool)
	for _, s := range held {
		switch {
		case s.class.excess > 0:
			s.class.excess--
			m.Release = append(m.Release, s.row)
			if s.split != nil {
				s.split.own--
			}
		case s.split == nil:
			kept[s.tenant] = true
		}
	}
	return kept
}

// claim claims what is missing to the targets.
func (m *Plan) claim(open []candidate, kept map[string]bool) {
	orderPartitions(open)
	for i := range open {
		if open[i].split == nil && !kept[open[i].tenant] {
			open[i].order = otherTenant
		}
	}
	slices.SortFunc(open, candidate.compare)
	for _, s := range open {
		if s.class.room > 0 {
			s.class.room--
			m.Claim = append(m.Claim, s.row)
		}
	}
}

// orderPartitions orders the partitions among the candidates, and adds them to those that the node owns.
func orderPartitions(candidates []candidate) {
	var partitions []*candidate
	for i := range candidates {
		if candidates[i].split != nil {
			partitions = append(partitions, &candidates[i])
		}
	}
	slices.SortFunc(partitions, func(a, b *candidate) int { return a.compare(*b) })
	for _, p := range partitions {
		p.order = withinPart
		if beyond := p.split.own - p.split.part; beyond >= 0 {
			p.order = beyondPart + order(beyond)
		}
		p.split.own++
	}
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
	split  *split // nil if the projection has one partition
	order  order
	// rank is the node's rank for the tenant, or for its partition, among the members that can run the lease; 0 is the
	// best.
	rank int32
}

// order is what a node prefers: the lowest is claimed first and released last.
type order int32

const (
	withinPart  order = iota - 1 // a partition within the node's part
	keptTenant                   // an unsplit projection of a tenant of which the node keeps another
	otherTenant                  // any other unsplit projection
	beyondPart                   // the first partition beyond the part; others follow
)

// compare orders candidates for claims. The leases of one tenant and class are neighbours, unless they are partitions.
func (s candidate) compare(o candidate) int {
	return cmp.Or(cmp.Compare(s.order, o.order), cmp.Compare(s.rank, o.rank), strings.Compare(s.tenant, o.tenant),
		cmp.Compare(s.row, o.row))
}
