package actors

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// Registry holds the state that actors publish. Status, health and WaitFor read it there and need not ask the actors.
type Registry struct {
	mu          sync.Mutex
	projections map[projection.ID]*registered
	// partitions has how many partitions projections have, as last seen on this node.
	partitions map[projection.ID]int
	// working has the projections that have work to do. The watchdog checks only those.
	working  map[projection.ID]bool
	overview overview
	pulses   pulses
	hour     hour
	// tenures are the last ones that began or ended on this node, at most engine.MaxSummarized.
	tenures []engine.Tenure
	made    time.Time

	// These have locks of their own, which are taken after mu.
	session  sessionState
	operator operatorSteps
	feeds    feedEntries

	// Stuck counts the actors that made no progress and were restarted.
	Stuck atomic.Int64
}

// ProjectionEntry is what a projection's actor publishes about itself.
type ProjectionEntry struct {
	machine.Status
	// Applied counts the events that the handler handled since the node started.
	Applied int64
	// Queued reports that its job waits for a slot, and Reading that it reads events.
	Queued, Reading bool
	// Busy is when the job in progress began, zero if there is none. Limit is how long the job may take.
	Busy  time.Time
	Limit time.Duration
	// Changed is when the entry changed last.
	Changed time.Time
	rate    rate
}

// Rate returns how fast the position rises, in positions per second.
func (e ProjectionEntry) Rate() float64 { return e.rate.perSecond(time.Now()) }

// Working reports whether the projection has events to apply, or a job in progress. A job that waits for a slot does
// not count.
func (e ProjectionEntry) Working() bool {
	runs := e.Phase == machine.Live || e.Phase == machine.CatchUp || e.Phase == machine.Starting
	return !e.Queued && (!e.Busy.IsZero() || runs && e.Position < e.Mark)
}

// registered is the entry of a projection. present reports that this node runs it. place is its place among the
// projections that are behind, 0 if it is not behind.
type registered struct {
	ProjectionEntry
	id    projection.ID
	place int
	// epoch is the epoch of the lease under which the projection began to run here. An entry whose epoch is at most
	// outdated counts as absent.
	epoch, outdated int64
	// recent is nil until the projection begins to run here, or is waited for.
	recent   *recent
	standing standing
	// partitions is how many partitions the projection had when this one began to run here.
	partitions int32
	present    bool
	// works reports whether it is among those that work.
	works bool
	// drained reports that the projection has ended its work. Its lease, and then its checkpoint, may be another
	// owner's.
	drained bool
	// gone reports that the tenant was removed while this node ran the projection.
	gone bool
}

// here reports whether this node runs the projection, as far as it knows.
func (p *registered) here() bool { return p.present && (p.outdated == 0 || p.epoch > p.outdated) }

// waiter waits until the projection has reached a position, or will not reach it here. final gets a value then. It has
// a buffer of one, since one waiter may wait for several partitions.
type waiter struct {
	position int64
	final    chan struct{}
}

// ErrNotHere is returned if this node does not run the projection.
var ErrNotHere = errors.New("the projection does not run on this node")

// reached returns what WaitFor returns. It reports false while WaitFor has to wait.
func (p *registered) reached(position int64) (err error, final bool) {
	switch {
	case p == nil || !p.here() || p.drained:
		return ErrNotHere, true
	case p.Position >= position:
		return nil, true
	case p.Phase == machine.Failed && p.Reason == nil:
		return projection.ErrFailed, true
	case p.Phase == machine.Failed:
		return fmt.Errorf("%w: %w", projection.ErrFailed, p.Reason), true
	}
	return nil, false
}

func newRegistry() *Registry {
	return &Registry{projections: make(map[projection.ID]*registered), partitions: make(map[projection.ID]int),
		working: make(map[projection.ID]bool), overview: newOverview(), feeds: newFeedEntries(), pulses: newPulses(),
		made: time.Now()}
}

// publish changes the entry of a projection, and adds it if the node did not run the projection.
func (r *Registry) publish(id projection.ID, change func(*ProjectionEntry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.entry(id)
	before := p.countedAs()
	p.present, p.gone = true, p.gone && p.present
	applied := p.Applied
	change(&p.ProjectionEntry)
	r.hour.applied += p.Applied - applied
	r.changed(p, before)
}

// entry returns the entry of a projection, and adds it if there is none.
func (r *Registry) entry(id projection.ID) *registered {
	p, ok := r.projections[id]
	if !ok {
		p = &registered{id: id}
		r.projections[id] = p
	}
	return p
}

// amend changes the entry of a projection. A change by work whose actor has stopped is ignored.
func (r *Registry) amend(id projection.ID, change func(*ProjectionEntry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.projections[id]; ok && p.present {
		before := p.countedAs()
		change(&p.ProjectionEntry)
		r.changed(p, before)
	}
}

// withdraw removes the entry of a projection that the node no longer runs. It keeps Applied, unless the tenant is gone.
func (r *Registry) withdraw(id projection.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.projections[id]; ok {
		before := p.countedAs()
		p.present = false
		p.ProjectionEntry = ProjectionEntry{Applied: p.Applied}
		if p.recent != nil && p.recent.began != 0 {
			p.recent.ended = stampOf(time.Now())
			r.tenureChanged(p)
		}
		r.changed(p, before) // no waiter is left
		if p.gone {
			delete(r.projections, id)
		}
	}
}

// forget removes the kept entries of these tenants' projections. Entries of projections that still run here are removed
// when they are withdrawn.
func (r *Registry) forget(tenants []string) {
	if len(tenants) == 0 {
		return
	}
	gone := make(map[string]bool, len(tenants))
	for _, t := range tenants {
		gone[t] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.projections, func(id projection.ID, p *registered) bool {
		if !gone[id.Tenant] {
			return false
		}
		p.gone = true
		return !p.present
	})
	maps.DeleteFunc(r.partitions, func(id projection.ID, _ int) bool { return gone[id.Tenant] })
}

// changed is called after each change of an entry that was counted under a phase before. It ends the waits that are
// over.
func (r *Registry) changed(p *registered, before machine.Phase) {
	p.Changed = time.Now()
	if p.Phase != "" { // else the position is not known
		known := !p.rate.at.IsZero()
		p.standing.changed(p.Status, known && p.Position > p.rate.position, p.Changed.Sub(r.made))
		if !known || p.Position != p.rate.position {
			p.rate.moved(p.Position, p.Changed)
		}
	}
	if works := p.present && p.Working(); works != p.works {
		p.works = works
		if works {
			r.working[p.id] = true
		} else {
			delete(r.working, p.id)
		}
	}
	r.overview.changed(p, before)
	if p.recent == nil {
		return
	}
	p.recent.waiters = slices.DeleteFunc(p.recent.waiters, func(w waiter) bool {
		_, final := p.reached(w.position)
		if final {
			select {
			case w.final <- struct{}{}:
			default:
			}
		}
		return final
	})
}

// Get returns the entry of a projection. It reports false if this node does not run it.
func (r *Registry) Get(id projection.ID) (ProjectionEntry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.projections[id]; ok {
		return p.ProjectionEntry, p.here()
	}
	return ProjectionEntry{}, false
}

// In returns the IDs of this node's projections that a filter selects by tenant, name, state and page. A limit of 0
// means all.
func (r *Registry) In(filter engine.ProjectionFilter) (found []projection.ID) {
	in := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.projections {
		if p.present && in(filter.States, string(p.countedAs())) && in(filter.Tenants, id.Tenant) &&
			in(filter.Names, id.Name) &&
			engine.CompareIDs(id, filter.After) > 0 {
			found = append(found, id)
		}
	}
	slices.SortFunc(found, engine.CompareIDs)
	if filter.Limit > 0 {
		found = found[:min(filter.Limit, len(found))]
	}
	return found
}

// Working returns the entries of this node's projections that have work to do or in progress.
func (r *Registry) Working() map[projection.ID]ProjectionEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	working := make(map[projection.ID]ProjectionEntry, len(r.working))
	for id := range r.working {
		working[id] = r.projections[id].ProjectionEntry
	}
	return working
}
