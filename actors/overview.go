package actors

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
)

// overview keeps what a summary needs up to date with each change, so that a heartbeat never walks all projections.
type overview struct {
	phases  map[machine.Phase]int
	lagging lagHeap
	// held has, for each feed, the time since which its mark has been held back or its events could not be read.
	held map[string]time.Time
}

func newOverview() overview {
	return overview{phases: make(map[machine.Phase]int), held: make(map[string]time.Time)}
}

// countedAs returns the phase under which a projection is counted, empty if it is not.
func (p *registered) countedAs() machine.Phase {
	if !p.present {
		return ""
	}
	return cmp.Or(p.Phase, machine.Starting)
}

// behind is how far a projection is behind the settled mark.
func (p *registered) behind() int64 {
	if !p.present {
		return 0
	}
	return max(0, p.Mark-p.Position)
}

// changed is called after a change of an entry that was counted under a phase before.
func (o *overview) changed(p *registered, before machine.Phase) {
	if now := p.countedAs(); now != before {
		o.count(before, -1)
		o.count(now, 1)
	}
	lags := p.behind() > 0
	switch listed := p.place > 0; {
	case lags && listed:
		heap.Fix(&o.lagging, p.place-1)
	case lags:
		heap.Push(&o.lagging, p)
	case listed:
		heap.Remove(&o.lagging, p.place-1)
	}
}

func (o *overview) count(phase machine.Phase, by int) {
	if phase == "" {
		return
	}
	if o.phases[phase] += by; o.phases[phase] == 0 {
		delete(o.phases, phase)
	}
}

// feedChanged is called after each change of a feed's entry, and with the zero value when it is withdrawn.
func (o *overview) feedChanged(tenant string, e FeedEntry) {
	if e.Held == nil && e.Err == nil {
		delete(o.held, tenant)
	} else if o.held[tenant].IsZero() {
		o.held[tenant] = time.Now()
	}
}

// Summary returns the summary of this node's projections and feeds.
func (r *Registry) Summary() *engine.NodeSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &engine.NodeSummary{States: make(map[string]int)}
	for phase, n := range r.overview.phases {
		s.States[string(phase)] = n
	}
	for _, p := range r.overview.lagging.first(engine.MaxSummarized) {
		l := engine.LaggingProjection{ID: p.id, State: string(p.countedAs()), Position: p.Position, Mark: p.Mark}
		if p.Reason != nil {
			l.Reason = p.Reason.Error()
		}
		s.Lagging = append(s.Lagging, l)
	}
	for tenant, since := range r.overview.held {
		e := r.feeds[tenant]
		h := engine.HeldTenant{Tenant: tenant, Mark: e.Mark, Since: since, Held: e.Held}
		if e.Err != nil {
			h.Reason = e.Err.Error()
		}
		s.Held = append(s.Held, h)
	}
	s.Held = engine.LongestHeld(s.Held)
	return s
}

// lagHeap is a container/heap of the projections that are behind, the furthest first. place is one more than a projection's index
// in it.
type lagHeap []*registered

func (h lagHeap) Len() int           { return len(h) }
func (h lagHeap) Less(i, j int) bool { return h[i].behind() > h[j].behind() }
func (h lagHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push implements heap.Interface.
func (h *lagHeap) Push(x any) {
	p := x.(*registered)
	*h = append(*h, p)
	p.place = len(*h)
}

// Pop implements heap.Interface.
func (h *lagHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h, p.place = (*h)[:last], 0
	return p
}

// first returns the n projections that are furthest behind. After the first, each is a child, in the heap, of an
// earlier one.
func (h lagHeap) first(n int) (found []*registered) {
	candidates := []int{0}
	for len(found) < n && len(candidates) > 0 {
		slices.SortFunc(candidates, func(a, b int) int { return cmp.Compare(h.behindAt(b), h.behindAt(a)) })
		at := candidates[0]
		if at >= len(h) {
			break
		}
		found = append(found, h[at])
		candidates = append(candidates[1:], 2*at+1, 2*at+2)
	}
	return found
}

// behindAt returns 0 past the end of the heap.
func (h lagHeap) behindAt(i int) int64 {
	if i >= len(h) {
		return 0
	}
	return h[i].behind()
}
