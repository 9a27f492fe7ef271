package actors

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// Figures are the figures of the projections of one name that this node runs, for one tenant or for all tenants.
type Figures struct {
	// Tenant is empty if the figures are of all tenants.
	Tenant, Name string
	// States and Breakers count the projections in each phase, and with a breaker in each state.
	States   map[machine.Phase]int
	Breakers map[projection.BreakerState]int
	// Behind is the sum of the positions by which they are behind their settled marks, and MostBehind is the largest of
	// these numbers. Oldest is the time at which the oldest event that they have not handled was appended. It is zero
	// if there is none.
	Behind, MostBehind int64
	Oldest             time.Time
	// Parked counts the parked events.
	Parked int64
}

// figuresAtOnce is how many projections are added up at a time. In between, actors publish.
const figuresAtOnce = 500

// Figures returns the figures of this node's projections by name, or by name and tenant. It visits all projections, and
// delays none of them for long.
func (r *Registry) Figures(byTenant bool) []*Figures {
	type key struct{ tenant, name string }
	found := make(map[key]*Figures)
	for some := range slices.Chunk(r.all(), figuresAtOnce) {
		r.mu.Lock()
		for _, p := range some {
			if !p.present {
				continue
			}
			k := key{name: p.id.Name}
			if byTenant {
				k.tenant = p.id.Tenant
			}
			f := found[k]
			if f == nil {
				f = &Figures{
					Tenant: k.tenant, Name: k.name, States: make(map[machine.Phase]int),
					Breakers: make(map[projection.BreakerState]int),
				}
				found[k] = f
			}
			f.add(p)
		}
		r.mu.Unlock()
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Figures) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Tenant, b.Tenant))
	})
}

// all returns the entries of all projections, also of those that the node no longer runs.
func (r *Registry) all() []*registered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(make([]*registered, 0, len(r.projections)), maps.Values(r.projections))
}

func (f *Figures) add(p *registered) {
	f.States[p.countedAs()]++
	if p.Breaker != "" {
		f.Breakers[p.Breaker]++
	}
	behind := p.behind()
	f.Behind, f.MostBehind, f.Parked = f.Behind+behind, max(f.MostBehind, behind), f.Parked+p.Parked
	if behind > 0 && !p.Oldest.IsZero() && (f.Oldest.IsZero() || p.Oldest.Before(f.Oldest)) {
		f.Oldest = p.Oldest
	}
}
