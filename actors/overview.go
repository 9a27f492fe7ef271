package actors

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
)

// overview keeps what a summary needs up to date with each change, so that a heartbeat never walks all projections.
type overview struct {
	phases map[machine.Phase]int
	// lagging has the tenants that have projections behind their settled marks, by name. worst has the same tenants in
	// order.
	lagging  map[string]*tenantLag
	worst    worstFirst[*tenantLag]
	troubled troubles
	// unbegun are the versions with which tenants cannot begin.
	unbegun []Standstill
}

func newOverview() overview {
	return overview{phases: make(map[machine.Phase]int), lagging: make(map[string]*tenantLag), troubled: make(troubles)}
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
	o.troubled.changed(p)
	if lags := p.behind() > 0; lags || p.place > 0 {
		o.rank(p, lags)
	}
}

// rank updates the place of a projection in the order of its tenant's projections, and the place of the tenant in the
// order of all tenants.
func (o *overview) rank(p *registered, lags bool) {
	t := o.lagging[p.id.Tenant]
	if t == nil {
		t = &tenantLag{}
		o.lagging[p.id.Tenant] = t
	}
	switch listed := p.place > 0; {
	case !lags:
		heap.Remove(&t.projections, p.place-1)
	case listed:
		heap.Fix(&t.projections, p.place-1)
	default:
		heap.Push(&t.projections, p)
	}
	switch {
	case len(t.projections) == 0:
		heap.Remove(&o.worst, t.place-1)
		delete(o.lagging, p.id.Tenant)
	case t.place > 0:
		heap.Fix(&o.worst, t.place-1)
	default:
		heap.Push(&o.worst, t)
	}
}

func (o *overview) count(phase machine.Phase, by int) {
	if phase == "" {
		return
	}
	o.phases[phase] += by
	if o.phases[phase] == 0 {
		delete(o.phases, phase)
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
	// The projections that are furthest behind belong to the tenants that are furthest behind.
	var worst []*registered
	for _, t := range r.overview.worst.first(engine.MaxSummarized) {
		p := t.projections[0]
		s.LaggingTenants = append(s.LaggingTenants,
			engine.LaggingTenant{Worst: p.id, Position: p.Position, Mark: p.Mark, Lagging: len(t.projections)})
		worst = append(worst, t.projections.first(engine.MaxSummarized)...)
	}
	slices.SortStableFunc(worst, func(a, b *registered) int { return cmp.Compare(b.behind(), a.behind()) })
	for _, p := range worst[:min(engine.MaxSummarized, len(worst))] {
		l := engine.LaggingProjection{ID: p.id, State: string(p.countedAs()), Position: p.Position, Mark: p.Mark,
			Rate:    p.Rate(),
			Batches: p.recent.reported(batchesReported)}
		if p.Reason != nil {
			l.Reason = p.Reason.Error()
		}
		s.Lagging = append(s.Lagging, l)
	}
	s.Held = r.feeds.heldTenants()
	if r.session.get().Connected {
		s.Held = append(s.Held, r.feeds.hung()...)
	}
	s.Held = engine.LongestHeld(s.Held)
	r.summarizeStanding(s)
	s.Hour, s.Tenures = r.hour.summary(), slices.Clone(r.tenures)
	return s
}
