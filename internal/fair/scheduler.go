package fair

import (
	"maps"
	"slices"
)

// Scheduler gives slots to requests. It is not safe for concurrent use.
type Scheduler struct {
	free      int
	perTenant int // 0 means no limit
	root      place
	entered   uint64     // how many places have begun to wait for a turn
	leaving   *place     // the holder of a slot that is being promised
	late      []*Request // whose promises were broken
}

// Flow is the tenant and the projection that a request is for, with their weights.
type Flow struct {
	// Tenant is empty for a request of the node itself. It is also empty for a request for several tenants, which has a
	// TenantWeight.
	Tenant string
	// Projection is empty for a request of the tenant's feed.
	Projection string
	// TenantWeight and Weight are the weights of the tenant and of the projection. Less than 1 means 1. The newest
	// request of a place sets its weight.
	TenantWeight, Weight int
}

// ofNode reports whether a request is for no tenant.
func (f Flow) ofNode() bool { return f.Tenant == "" && f.TenantWeight == 0 }

// Request is a request for one slot. It is used once.
type Request struct {
	Flow
	// Owner is the caller's. The scheduler does not touch it.
	Owner any

	state      state
	at         *place   // where it waits
	holder     *place   // the tenant or the root that has the slot
	heir       *Request // the request that the slot is promised to
	next, prev *Request
}

type state int

const (
	created state = iota
	waiting
	granted
	ended
)

// shares returns 1 if the slot of the request is promised to a request of the same tenant, else 0. Both count as one
// slot then.
func (r *Request) shares() int {
	if r.holder == r.heir.holder {
		return 1
	}
	return 0
}

// New returns a scheduler with that many slots.
func New(slots int) *Scheduler { return &Scheduler{free: slots, root: place{index: notQueued}} }

// TryAcquire gives the request a slot if one is free for it. Otherwise nothing changes.
func (s *Scheduler) TryAcquire(r *Request) bool {
	if s.free == 0 {
		return false
	}
	// No request waits that could have the slot, so this one overtakes none.
	holder := &s.root
	if !r.ofNode() {
		if t := s.root.below.places[r.Tenant]; t != nil && s.full(t) {
			return false
		}
		holder = s.root.child(r.Tenant, r.TenantWeight)
	}
	s.grant(r, holder)
	return true
}

// Acquire gives the request a slot if one is free for it. Otherwise the request waits, and Acquire returns false.
func (s *Scheduler) Acquire(r *Request) bool {
	if s.TryAcquire(r) {
		return true
	}
	p := &s.root
	if !r.ofNode() {
		p = p.child(r.Tenant, r.TenantWeight)
		if r.Projection != "" {
			p = p.child(r.Projection, r.Weight)
		}
	}
	r.state, r.at = waiting, p
	p.own.add(r)
	for ; p != nil; p = p.parent {
		p.waiting++
		s.settle(p)
	}
	return false
}

// Cancel withdraws a request that waits. It returns false if the request does not wait, since it has a slot already.
func (s *Scheduler) Cancel(r *Request) bool {
	if r.state != waiting {
		return false
	}
	r.state = ended
	s.remove(r)
	return true
}

// Release frees the slot of a request, unless it is promised. It returns a request that gets a slot by that, nil if
// there is none.
func (s *Scheduler) Release(r *Request) (next *Request) {
	if r.state != granted {
		panic("fair: release of a request that has no slot")
	}
	if r.heir == nil {
		s.free++
	} else {
		s.forget(r)
	}
	return s.end(r)
}

// Promise promises the slot of a request to the one whose turn it is, and returns that one, nil if there is none. It
// has the slot from the Release of r on. Until then it counts for its tenant, as r counts for its own: once if that is
// the same tenant. While a request of a broken promise waits, nothing is promised, since the next slot is for that one.
func (s *Scheduler) Promise(r *Request) (heir *Request) {
	if r.state != granted || r.heir != nil {
		panic("fair: promise of a request that has no slot, or has promised it")
	}
	if len(s.late) > 0 {
		return nil
	}
	s.free++
	s.leaving = r.holder
	s.settle(r.holder)
	r.heir = s.next()
	if r.heir == nil {
		s.free--
	} else {
		r.heir.holder.shared += r.shares()
	}
	s.leaving = nil
	s.settle(r.holder)
	return r.heir
}

// TakeBack undoes the promise of a slot, and ends the request that it was promised to. It returns a request that gets a
// slot by that, nil if there is none.
func (s *Scheduler) TakeBack(r *Request) (next *Request) {
	heir := r.heir
	s.forget(r)
	return s.end(heir)
}

// Break breaks the promise of a slot: the request that it was promised to has had its turn, so it gets any slot that it
// may have before all that wait, or the promised one if that is free first. Break returns it if there is such a slot at
// once, otherwise nil.
func (s *Scheduler) Break(r *Request) (heir *Request) {
	s.late = append(s.late, r)
	return s.next()
}

// forget ends the promise of a slot, be it broken or not.
func (s *Scheduler) forget(r *Request) {
	r.heir.holder.shared -= r.shares()
	r.heir = nil
	s.late = slices.DeleteFunc(s.late, func(other *Request) bool { return other == r })
}

// kept gives a free slot to a request whose promise was broken.
func (s *Scheduler) kept() *Request {
	for _, r := range s.late {
		// It counts for its tenant already, unless it shares its slot.
		if heir := r.heir; heir.Tenant == "" || s.perTenant == 0 || heir.holder.slots()+r.shares() <= s.perTenant {
			s.forget(r)
			s.free--
			s.settle(heir.holder)
			return heir
		}
	}
	return nil
}

// end ends a request that counts for its tenant.
func (s *Scheduler) end(r *Request) (next *Request) {
	r.state = ended
	r.holder.inUse--
	s.settle(r.holder)
	return s.next()
}

// LimitTenants sets how many slots one tenant may have, 0 for no limit. It returns the requests that get slots by that.
// A tenant that has more slots already keeps them.
func (s *Scheduler) LimitTenants(perTenant int) (next []*Request) {
	if s.perTenant == perTenant {
		return nil
	}
	s.perTenant = perTenant
	for _, name := range slices.Sorted(maps.Keys(s.root.below.places)) {
		if t := s.root.below.places[name]; t != nil {
			s.settle(t)
		}
	}
	for r := s.next(); r != nil; r = s.next() {
		next = append(next, r)
	}
	return next
}

// next grants a free slot to the request whose turn it is.
func (s *Scheduler) next() *Request {
	if s.free == 0 {
		return nil
	}
	if heir := s.kept(); heir != nil {
		return heir
	}
	p := &s.root
	for !p.takeOwn() {
		p = p.below.earliest()
		if p == nil {
			return nil
		}
	}
	r := p.own.first
	for ; p.parent != nil; p = p.parent {
		p.advance()
		p.entered = s.enter()
	}
	holder := &s.root
	if !r.ofNode() {
		holder = s.root.below.places[r.Tenant]
	}
	s.grant(r, holder)
	s.remove(r)
	return r
}

func (s *Scheduler) grant(r *Request, holder *place) {
	r.state, r.holder = granted, holder
	holder.inUse++
	s.free--
}

// remove removes a request from those that wait.
func (s *Scheduler) remove(r *Request) {
	p := r.at
	p.own.remove(r)
	for r.at = nil; p != nil; p = p.parent {
		p.waiting--
		if p.waiting == 0 {
			p.ownLast = false
		}
		s.settle(p)
	}
}

// full reports whether a tenant has all slots that it may have.
func (s *Scheduler) full(tenant *place) bool {
	slots := tenant.slots()
	if tenant == s.leaving {
		slots--
	}
	return s.perTenant > 0 && tenant.name != "" && slots >= s.perTenant
}

func (s *Scheduler) enter() uint64 {
	s.entered++
	return s.entered
}

// settle puts a place where it belongs after a change: among those that are ready, among those whose turn is
// remembered, or nowhere.
func (s *Scheduler) settle(p *place) {
	if p.parent == nil {
		return
	}
	b := &p.parent.below
	ready := p.waiting > 0 && (p.parent != &s.root || !s.full(p))
	switch {
	case ready && !p.ready:
		p.turn, p.recent, p.entered = max(p.turn, b.now), p.turn > b.now, s.enter()
		b.ready++
	case !ready && p.ready:
		b.ready--
	}
	p.ready = ready
	if ready || p.waiting == 0 && p.turn > b.now {
		b.enqueue(p)
	} else {
		b.dequeue(p)
	}
	b.tidy()
}
