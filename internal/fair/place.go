package fair

import "container/heap"

// unit is the part of virtual time that one grant takes at weight 1.
const unit = 1 << 20

// mostSpare limits the spare places. They save garbage collection while few tenants come and go.
const mostSpare = 16

// notQueued is the index of a place that is not in an order.
const notQueued = -1

// place is the root, a tenant or a projection. The name of the place for requests for several tenants is empty.
type place struct {
	name   string
	parent *place
	weight int
	below  below

	own     requests // its own, without those of the places below
	ownLast bool     // the last grant was one of its own, while others waited below
	waiting int      // requests here and below
	inUse   int      // requests that have a slot or the promise of one, of a tenant or of the root itself
	shared  int      // of these, how many have the promise of a slot that another of these has

	// turn is when the next request from here is granted, in virtual time of the parent. Of two equal turns, that of a
	// place that had no grant lately comes first, and then that of the place that entered first. ready reports whether
	// a request waits and may be granted.
	turn    int64
	recent  bool
	entered uint64
	ready   bool
	index   int // in the parent's order
}

// slots returns how many slots a tenant has, if all promises were kept now.
func (p *place) slots() int { return p.inUse - p.shared }

// takeOwn reports whether the next grant at p is one of its own requests. They precede those below, but only one at a
// time.
func (p *place) takeOwn() bool {
	own := p.own.first != nil && !(p.ownLast && p.below.ready > 0)
	p.ownLast = own && p.below.ready > 0
	return own
}

// advance takes the turn of p.
func (p *place) advance() {
	b := &p.parent.below
	b.now = p.turn
	p.turn, p.recent = p.turn+unit/int64(p.weight), true
	b.latest = max(b.latest, p.turn)
}

// below are the places below a place.
type below struct {
	places map[string]*place
	// spare are places that were forgotten, to be used again.
	spare []*place
	// order has the ready places, and places whose turn is remembered.
	order order
	ready int // how many are ready
	// now is the turn that was granted last, and latest the highest turn of any place.
	now, latest int64
}

// child returns the place below p with that name, and makes it if there is none.
func (p *place) child(name string, weight int) *place {
	b := &p.below
	c := b.places[name]
	if c == nil {
		if b.places == nil {
			b.places = make(map[string]*place)
		}
		if last := len(b.spare) - 1; last >= 0 {
			c, b.spare = b.spare[last], b.spare[:last]
		} else {
			c = new(place)
		}
		*c = place{name: name, parent: p, index: notQueued}
		b.places[name] = c
	}
	c.weight = max(1, weight)
	return c
}

// earliest returns the ready place whose turn is next, nil if none is ready.
func (b *below) earliest() *place {
	for len(b.order) > 0 && !b.order[0].ready {
		b.dequeue(b.order[0])
	}
	if len(b.order) == 0 {
		return nil
	}
	return b.order[0]
}

// tidy forgets the turns that no longer matter: those that have passed, and all if nothing waits.
func (b *below) tidy() {
	if b.ready == 0 {
		b.now = b.latest
	}
	for len(b.order) > 0 && !b.order[0].ready && b.order[0].turn <= b.now {
		b.dequeue(b.order[0])
	}
}

// enqueue puts a place into the order, or where its turn has moved to.
func (b *below) enqueue(p *place) {
	if p.index == notQueued {
		heap.Push(&b.order, p)
	} else {
		heap.Fix(&b.order, p.index)
	}
}

// dequeue removes a place from the order, and forgets it if nothing is left of it.
func (b *below) dequeue(p *place) {
	if p.index != notQueued {
		heap.Remove(&b.order, p.index)
	}
	if p.waiting == 0 && p.inUse == 0 {
		delete(b.places, p.name)
		if len(b.spare) < mostSpare {
			b.spare = append(b.spare, p)
		}
	}
}

// order is a heap of places by their turns.
type order []*place

func (o order) Len() int { return len(o) }

func (o order) Less(i, j int) bool {
	a, b := o[i], o[j]
	switch {
	case a.turn != b.turn:
		return a.turn < b.turn
	case a.recent != b.recent:
		return b.recent
	}
	return a.entered < b.entered
}

func (o order) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = i, j
}

// Push implements heap.Interface.
func (o *order) Push(x any) {
	p := x.(*place)
	p.index = len(*o)
	*o = append(*o, p)
}

// Pop implements heap.Interface.
func (o *order) Pop() any {
	last := len(*o) - 1
	p := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	p.index = notQueued
	return p
}

// requests is a list of requests in the order of their arrival.
type requests struct{ first, last *Request }

func (l *requests) add(r *Request) {
	r.prev = l.last
	if r.prev == nil {
		l.first = r
	} else {
		r.prev.next = r
	}
	l.last = r
}

func (l *requests) remove(r *Request) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
}
