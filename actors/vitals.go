package actors

import (
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// Loop is a loop of a runtime that never waits for a handler, and for the database only with a limit.
type Loop string

const (
	// SupervisorLoop restarts actors, NodeLoop claims leases, and SessionLoop sends the heartbeats.
	SupervisorLoop Loop = "supervisor"
	NodeLoop       Loop = "node"
	SessionLoop    Loop = "session"
)

// Vitals is what the health of a runtime is decided from. It costs the same for any number of healthy projections.
type Vitals struct {
	// Progress is when each loop last made progress. Standing describes actors that make no progress and could not be
	// restarted.
	Progress map[Loop]time.Time
	Standing []string
	Session  SessionEntry
	// Failed, Missing and Open are the projections that have failed, wait for a missing object, or have a breaker that
	// is not closed.
	Failed, Missing, Open []projection.ID
	// StandingStill are the projections that do not move although events wait, as a person should know.
	StandingStill []Standstill
	// Feeds is how many tenants are read. Unreadable are those of them whose events cannot be read. Held are those, and
	// the tenants whose settled mark is held back.
	Feeds      int
	Unreadable map[string]time.Time
	Held       []engine.HeldTenant
}

// pulses has the progress of the loops.
type pulses struct {
	progress map[Loop]time.Time
	standing []string
}

func newPulses() pulses {
	now := time.Now()
	return pulses{progress: map[Loop]time.Time{SupervisorLoop: now, NodeLoop: now, SessionLoop: now}}
}

// Pulse records that loops make progress.
func (r *Registry) Pulse(loops ...Loop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range loops {
		r.pulses.progress[l] = time.Now()
	}
}

// Standing records the actors that make no progress and could not be restarted.
func (r *Registry) Standing(actors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulses.standing = actors
}

// Vitals returns the vitals of the runtime.
func (r *Registry) Vitals() Vitals {
	held := r.Summary().Held
	r.mu.Lock()
	defer r.mu.Unlock()
	v := Vitals{Standing: r.pulses.standing, Session: r.session.get(), Held: held, Progress: make(map[Loop]time.Time)}
	v.Feeds, v.Unreadable = r.feeds.vitals()
	for loop, at := range r.pulses.progress {
		v.Progress[loop] = at
	}
	v.Failed, v.Missing, v.Open = r.overview.troubled.list(troubleFailed), r.overview.troubled.list(troubleMissing),
		r.overview.troubled.list(troubleOpen)
	v.StandingStill = r.failing()
	return v
}

// trouble is what a person should know about a projection.
type trouble int

const (
	troubleFailed trouble = iota
	troubleMissing
	troubleOpen
	// troubleFault is a fault that counts against no event, such as one of a read. The projection has not moved since.
	troubleFault
)

// troubles has the projections in each trouble.
type troubles map[trouble]map[projection.ID]bool

// changed is called after a change of an entry.
func (t troubles) changed(p *registered) {
	open := p.Breaker != "" && p.Breaker != projection.BreakerClosed
	t.set(troubleFailed, p, p.Phase == machine.Failed)
	t.set(troubleMissing, p, p.Phase == machine.MissingObject)
	t.set(troubleOpen, p, open)
	t.set(troubleFault, p, p.standing.fault != nil)
}

func (t troubles) set(kind trouble, p *registered, in bool) {
	if !in || !p.present {
		delete(t[kind], p.id)
		return
	}
	if t[kind] == nil {
		t[kind] = make(map[projection.ID]bool)
	}
	t[kind][p.id] = true
}

func (t troubles) list(kind trouble) (ids []projection.ID) {
	for id := range t[kind] {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, engine.CompareIDs)
	return ids
}
