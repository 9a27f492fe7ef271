package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// State is what a projection's actor is at.
type State = machine.Phase

// The states of a projection on its node.
const (
	Starting = machine.Starting
	CatchUp  = machine.CatchUp
	Live     = machine.Live
	Waiting  = machine.Waiting
	Failed   = machine.Failed
	// MissingObject is Waiting for a table, column, function, schema or privilege.
	MissingObject = machine.MissingObject
)

// Entry is what a projection's actor publishes about itself.
type ProjectionEntry struct {
	State State
	// Position is how far the projection has handled or passed over events; the checkpoint in the database may lag
	// behind it by what did not concern the projection.
	Position int64
	// Mark is how far events are settled, as far as the actor knows.
	Mark int64
	// Applied counts the events that were handed to the handler and committed since the actor's node started.
	Applied int64
	// Reason tells why it waits or failed; Halted that it failed until somebody resumes it.
	Reason error
	Halted bool
	// Breaker is what its circuit breaker is at, empty where it has none.
	Breaker projection.BreakerState
	// Queued tells that it waits for its turn.
	Queued bool
	// Busy is when the work under way began, zero while there is none; Limit is how long it may take.
	Busy  time.Time
	Limit time.Duration
	// Changed is when the entry changed last.
	Changed time.Time
}

// Working reports whether the projection has events to apply, or a job in progress. A job that waits for a slot does not count.
func (e ProjectionEntry) Working() bool {
	runs := e.State == Live || e.State == CatchUp || e.State == Starting
	return !e.Queued && (!e.Busy.IsZero() || runs && e.Position < e.Mark)
}

// Registry is where actors publish what others may look at without asking them: status, health, and those who wait for a
// position.
type Registry struct {
	mu      sync.Mutex
	entries map[projection.ID]*slot
	feeds   map[string]FeedEntry
	// working and workingFeeds are those that have work to do, so that the watchdog need not look at all.
	working      map[projection.ID]bool
	workingFeeds map[string]bool
	session      SessionEntry
	// sessionNews is closed when session changes; nil while nobody waits for that.
	sessionNews chan struct{}
	stuck       int
}

// FeedEntry is what a feed publishes about itself.
type FeedEntry struct {
	Mark int64
	Held *engine.Held
	Err  error
	Busy time.Time
}

// SessionEntry is what the listener publishes about the session connection.
type SessionEntry struct {
	Connected bool
	// Pooled tells that no notifications arrive, since a pooler stands between.
	Pooled bool
	Since  time.Time
	// LastBeat is when the last heartbeat that arrived was sent.
	LastBeat time.Time
	// Claims counts the looks for free leases that succeeded; ClaimErr is why the last one did not.
	Claims   int
	ClaimErr error
	Err      error
	// Unwell is since when the pool cannot be worked with, zero where it can.
	Unwell time.Time
}

type slot struct {
	ProjectionEntry
	present bool
	waiters []waiter
}

// waiter waits until the projection is past a position, or until there is no use in waiting.
type waiter struct {
	position int64
	told     chan struct{}
}

// verdict tells what to answer who waits for position, and whether there is an answer yet.
func (s *slot) verdict(position int64) (answer error, final bool) {
	switch {
	case !s.present:
		return ErrNotHere, true
	case s.Position >= position:
		return nil, true
	case s.State == Failed:
		return failedFor(s.Reason), true
	}
	return nil, false
}

func failedFor(reason error) error {
	if reason == nil {
		return projection.ErrFailed
	}
	return fmt.Errorf("%w: %w", projection.ErrFailed, reason)
}

// tell wakes those for whom there is an answer now.
func (s *slot) tell() {
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
		_, final := s.verdict(w.position)
		if final {
			close(w.told)
		}
		return final
	})
}

func newBoard() *Registry {
	return &Registry{entries: make(map[projection.ID]*slot), feeds: make(map[string]FeedEntry),
		working: make(map[projection.ID]bool), workingFeeds: make(map[string]bool)}
}

func (b *Registry) slot(id projection.ID) *slot {
	s, ok := b.entries[id]
	if !ok {
		s = &slot{}
		b.entries[id] = s
	}
	return s
}

// publish changes the entry of a projection.
func (b *Registry) publish(id projection.ID, change func(*ProjectionEntry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slot(id)
	s.present = true
	change(&s.ProjectionEntry)
	s.Changed = time.Now()
	b.track(id, s)
	s.tell()
}

// track keeps the entry among those that have work to do, or not.
func (b *Registry) track(id projection.ID, s *slot) {
	if s.present && s.Working() {
		b.working[id] = true
	} else {
		delete(b.working, id)
	}
}

// amend changes the entry of a projection that is on the board. Work whose actor is gone by now brings none back.
func (b *Registry) amend(id projection.ID, change func(*ProjectionEntry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.entries[id]; ok && s.present {
		change(&s.ProjectionEntry)
		s.Changed = time.Now()
		b.track(id, s)
	}
}

// withdraw takes the entry of a projection down, since another node may run it now. What it applied is kept.
func (b *Registry) withdraw(id projection.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slot(id)
	s.present = false
	s.ProjectionEntry = ProjectionEntry{Applied: s.Applied}
	b.track(id, s)
	s.tell()
}

// Get returns the entry of a projection that this node runs.
func (b *Registry) Get(id projection.ID) (ProjectionEntry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.entries[id]
	if !ok {
		return ProjectionEntry{}, false
	}
	return s.ProjectionEntry, s.present
}

// All returns the entries of the projections that this node runs.
func (b *Registry) All() map[projection.ID]ProjectionEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[projection.ID]ProjectionEntry)
	for id, s := range b.entries {
		if s.present {
			all[id] = s.ProjectionEntry
		}
	}
	return all
}

// Working returns the entries of the projections of this node that have work to do or work under way.
func (b *Registry) Working() map[projection.ID]ProjectionEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	working := make(map[projection.ID]ProjectionEntry, len(b.working))
	for id := range b.working {
		working[id] = b.entries[id].ProjectionEntry
	}
	return working
}

// ErrNotHere tells that this node does not run the projection.
var ErrNotHere = errors.New("projection does not run on this node")

// Reached returns what WaitFor would return, and whether it would return at once.
func (b *Registry) Reached(id projection.ID, position int64) (answer error, final bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.entries[id]
	if !ok {
		return ErrNotHere, true
	}
	return s.verdict(position)
}

// WaitFor returns when the projection has handled everything up to position, or with the reason when it is paused or
// failed, or with ErrNotHere when it does not run here.
func (b *Registry) WaitFor(ctx context.Context, id projection.ID, position int64) error {
	for {
		b.mu.Lock()
		s, ok := b.entries[id]
		if !ok {
			b.mu.Unlock()
			return ErrNotHere
		}
		answer, final := s.verdict(position)
		w := waiter{position: position, told: make(chan struct{})}
		if !final {
			s.waiters = append(s.waiters, w)
		}
		b.mu.Unlock()
		if final {
			return answer
		}
		select {
		case <-w.told:
		case <-ctx.Done():
			b.forget(id, w)
			return ctx.Err()
		}
	}
}

func (b *Registry) forget(id projection.ID, w waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slot(id)
	s.waiters = slices.DeleteFunc(s.waiters, func(other waiter) bool { return other == w })
}

func (b *Registry) publishFeed(tenant string, change func(*FeedEntry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.feeds[tenant]
	change(&entry)
	b.feeds[tenant] = entry
	if delete(b.workingFeeds, tenant); !entry.Busy.IsZero() {
		b.workingFeeds[tenant] = true
	}
}

// withdrawFeed takes the entry of a feed down.
func (b *Registry) withdrawFeed(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.feeds, tenant)
	delete(b.workingFeeds, tenant)
}

// Feeds returns the entries of this node's feeds by tenant.
func (b *Registry) Feeds() map[string]FeedEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	feeds := make(map[string]FeedEntry, len(b.feeds))
	for tenant, entry := range b.feeds {
		feeds[tenant] = entry
	}
	return feeds
}

// WorkingFeeds returns the entries of this node's feeds that are at work, by tenant.
func (b *Registry) WorkingFeeds() map[string]FeedEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	feeds := make(map[string]FeedEntry, len(b.workingFeeds))
	for tenant := range b.workingFeeds {
		feeds[tenant] = b.feeds[tenant]
	}
	return feeds
}

func (b *Registry) publishSession(change func(*SessionEntry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.session)
	if b.sessionNews != nil {
		close(b.sessionNews)
		b.sessionNews = nil
	}
}

// watchSession returns the listener's entry, and what is closed when it changes.
func (b *Registry) watchSession() (SessionEntry, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessionNews == nil {
		b.sessionNews = make(chan struct{})
	}
	return b.session, b.sessionNews
}

// well takes in whether the pool can be worked with.
func (b *Registry) well(works bool) {
	b.publishSession(func(e *SessionEntry) {
		switch {
		case works:
			e.Unwell = time.Time{}
		case e.Unwell.IsZero():
			e.Unwell = time.Now()
		}
	})
}

// unwell tells whether the pool could not be worked with for that long.
func (b *Registry) unwell(d time.Duration) bool {
	since := b.Session().Unwell
	return !since.IsZero() && time.Since(since) >= d
}

// Session returns the listener's entry.
func (b *Registry) Session() SessionEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

// CountStuck counts an actor that stood still and was started again.
func (b *Registry) CountStuck() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck++
}

// Stuck counts the actors that stood still and were started again.
func (b *Registry) Stuck() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stuck
}
