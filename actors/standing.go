package actors

import (
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/rounds"
	"github.com/millrace-go/millrace/projection"
)

// StandsLong is for how long a projection must not have moved, although events wait, before that is reported.
const StandsLong = 30 * time.Second

// workingMost is how many working projections are looked at, so that a summary costs the same on a node with very many.
// Those that hold slots are fewer.
const workingMost = 400

// standing is since when events wait for a projection that does not move. It is kept while the actor is restarted.
type standing struct {
	// since is counted from the beginning of the registry, 0 if the projection moves or has nothing to do.
	since time.Duration
	// fault is the last fault in that time that was counted against no event, nil if there was none. A page of events
	// that cannot be read is one.
	fault *standingFault
}

type standingFault struct {
	err error
	// first and last are when the first and the last fault were met, counted as since.
	first, last time.Duration
	// top is the highest position at which a fault was met. After a fault the position falls to the checkpoint, and
	// rises again.
	top int64
}

// changed is called with each new status. rose reports that the position is higher than before.
func (s *standing) changed(status machine.Status, rose bool, now time.Duration) {
	waits := status.Position < status.Mark
	runs := status.Phase == machine.Live || status.Phase == machine.CatchUp
	top := status.Position
	if s.fault != nil {
		top = max(top, s.fault.top)
		rose = rose && status.Position > s.fault.top
	}
	switch {
	case rose, runs && !waits:
		*s = standing{}
	case status.Faulty:
		fault := standingFault{err: status.Reason, first: now, last: now, top: top}
		if s.fault != nil {
			fault.first = s.fault.first
		}
		s.fault = &fault
	case !runs && status.Phase != machine.Starting:
		s.fault = nil // events could be read: it waits for something else, which its reason names
	}
	if s.since == 0 && (waits || s.fault != nil) {
		s.since = max(1, now)
	}
}

// Standstill describes a projection that has not moved for StandsLong although events wait.
type Standstill struct {
	ID    projection.ID
	Since time.Time
	// Reason is the last fault, or what the projection waits for.
	Reason string
	// Fails reports that a person should look at it. Else it waits for its turn, or for its handler.
	Fails bool
}

// standstill says why a projection does not move that has not moved for a long time. It returns an empty reason if the
// projection is in a state that has a reason of its own. A fault fails if it is met for StandsLong, unless a handler
// has run for as long since the last one.
func (e *ProjectionEntry) standstill(fault *standingFault, now time.Duration) (reason string, fails bool) {
	handles := !e.Busy.IsZero() && !e.Queued && !e.Reading && e.Phase != machine.Starting
	switch {
	case e.Phase == machine.Failed, e.Phase == machine.MissingObject:
		return "", false
	case fault != nil && (!handles || now-fault.last < StandsLong):
		return fault.err.Error(), now-fault.first >= StandsLong
	case e.Phase == machine.Waiting:
		return "", false
	case e.Queued:
		return "it waits for a slot, since the node is busy", false
	case e.Reading:
		return "a read of its events does not end", true
	case handles:
		return "its handler has not returned", false
	}
	return "it makes no progress, and no error is known", true
}

// standstill returns the standstill of a projection. While the session connection is lost, and for StandsLong after it
// was made, there is none: an outage of the database is reported as such.
func (r *Registry) standstill(p *registered) (s Standstill, stands bool) {
	session := r.session.get()
	if p.standing.since == 0 || !p.here() || !session.Connected {
		return s, false
	}
	s = Standstill{ID: p.id, Since: r.made.Add(p.standing.since)}
	if session.Since.After(s.Since) {
		s.Since = session.Since
	}
	if time.Since(s.Since) < StandsLong {
		return s, false
	}
	s.Reason, s.Fails = p.ProjectionEntry.standstill(p.standing.fault, time.Since(r.made))
	return s, s.Reason != ""
}

// Standstill reports whether a projection has not moved for StandsLong although events wait, and why.
func (r *Registry) Standstill(id projection.ID) (Standstill, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.projections[id]
	if p == nil {
		return Standstill{}, false
	}
	return r.standstill(p)
}

// publishUnbegun records the versions with which tenants cannot begin.
func (r *Registry) publishUnbegun(unbegun map[string]rounds.Unbegun) {
	stands := make([]Standstill, 0, len(unbegun))
	for _, u := range unbegun {
		reason := "the tenant cannot begin with it: " + u.Err.Error()
		stands = append(stands, Standstill{ID: u.ID, Since: u.Since, Reason: reason, Fails: true})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.overview.unbegun = stands
}

// failing returns the projections whose standstill a person should look at, the longest first. It visits only those
// that work, those with a fault, and those with which a tenant cannot begin.
func (r *Registry) failing() (found []Standstill) {
	visit := func(id projection.ID) {
		if s, stands := r.standstill(r.projections[id]); stands && s.Fails {
			found = append(found, s)
		}
	}
	for id := range r.overview.troubled[troubleFault] {
		visit(id)
	}
	found = append(found, r.overview.unbegun...)
	visited := 0
	for id := range r.working {
		visited++
		if visited > workingMost {
			break
		}
		if !r.overview.troubled[troubleFault][id] {
			visit(id)
		}
	}
	slices.SortFunc(found, func(a, b Standstill) int {
		if order := a.Since.Compare(b.Since); order != 0 {
			return order
		}
		return engine.CompareIDs(a.ID, b.ID)
	})
	return found
}

// summarizeStanding adds the standstills that a person should look at to a summary.
func (r *Registry) summarizeStanding(s *engine.NodeSummary) {
	found := r.failing()
	s.StandingCount = len(found)
	for _, f := range found[:min(engine.MaxSummarized, len(found))] {
		s.Standing = append(s.Standing, engine.StandingProjection{ID: f.ID, Since: f.Since, Reason: f.Reason})
	}
}
