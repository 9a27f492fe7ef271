package ownership

import (
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

const (
	// resyncEvery is how many searches follow until one reads all owned leases and computes the shares anew, since the
	// answer to a claim may have been lost. With many leases it is one search for each resyncLeases of them, so that
	// these reads cost the same for any number.
	resyncEvery  = 15
	resyncLeases = 1000
	// searchSoon is the least time between two searches that notifications cause.
	searchSoon = 50 * time.Millisecond
	// searchAgain is when the next search begins after another node was quicker. For the leases of a new tenant, nodes
	// compete.
	searchAgain = 5 * time.Millisecond
	// unownedShare limits what the periodic searches for leases without an owner cost, if they find none for this node:
	// at most 1 of this number of the time, but one search in unownedMost. They read all that no node runs, and a fleet
	// may have 100,000 of these. Notifications name the others at once. Leases of dead nodes are searched for each
	// time.
	unownedShare = 200
	unownedMost  = 2 * time.Minute
)

// Search decides when a node searches for leases to claim, and what each search does. A search has two steps: it reads
// which leases are free, and claims if that is needed. Begin is followed by Ended, with Decide in between if the first
// step succeeds.
type Search struct {
	busy       bool
	again      bool // another search was asked for meanwhile
	revalidate bool // the projections get the leases that are read next
	rebalance  bool // the next search computes the shares, since nodes came or went
	resync     int  // searches until the owned leases are read and the shares are computed; 0 means in the next one
	planned    int  // the leases by which resync was planned
	last       time.Time
	unowned    time.Time // when a periodic search looks for leases without an owner again
}

// Busy reports whether a search is in progress.
func (s *Search) Busy() bool { return s.busy }

// Resync makes the next search read the owned leases and compute the shares.
func (s *Search) Resync() { s.resync = 0 }

// Resyncs reports whether the next search reads the owned leases.
func (s *Search) Resyncs() bool { return s.resync <= 0 }

// Revalidate makes the next search read the owned leases, and give them to their projections.
func (s *Search) Revalidate() { s.resync, s.revalidate = 0, true }

// Rebalance makes the next search compute the shares.
func (s *Search) Rebalance() { s.rebalance = true }

// Request makes the next search look for leases without an owner. If one is in progress, another follows at once.
func (s *Search) Request() { s.unowned, s.again = time.Time{}, s.again || s.busy }

// Soon returns how long a search waits that a notification causes: many notifications may come at a time.
func (s *Search) Soon(now time.Time) time.Duration { return max(0, searchSoon-s.Age(now)) }

// Age returns how long ago the last search began.
func (s *Search) Age(now time.Time) time.Duration { return now.Sub(s.last) }

// Begin begins a search, which looks for leases of dead owners. unowned reports whether it also looks for leases
// without an owner.
func (s *Search) Begin(now time.Time) (unowned bool) {
	s.busy, s.again, s.last = true, false, now
	return !now.Before(s.unowned)
}

// Free is what the first step of a search found.
type Free struct {
	Leases []engine.LeaseRef
	// Unowned reports whether it looked for leases without an owner, which Took so long.
	Unowned bool
	Took    time.Duration
	// Pooled reports that no notifications arrive.
	Pooled bool
}

// Step is the second step of a search. It is zero if there is nothing to do, as nearly always.
type Step struct {
	// ReadOwned means that the node reads the leases that it owns, and calls Table.Read with Revalidate. It does so
	// before it claims any.
	ReadOwned, Revalidate bool
	// Balance means that the node claims and releases what Balance says.
	Balance bool
	// ReadOrders means that the node reads the orders of all its projections, since no notifications arrive.
	ReadOrders bool
}

// Decide decides about the second step. If it reads the owned leases, it calls Table.BeginRead.
func (s *Search) Decide(t *Table, f Free) Step {
	resync := s.Resyncs()
	s.resync--
	if resync {
		s.plan(t.Len())
	}
	if f.Unowned && len(f.Leases) == 0 && !f.Pooled {
		s.unowned = s.last.Add(min(unownedMost, unownedShare*f.Took))
	}
	step := Step{Balance: resync || s.rebalance || len(f.Leases) > 0, ReadOrders: f.Pooled}
	s.rebalance = false
	step.ReadOwned = resync || slices.ContainsFunc(f.Leases, func(l engine.LeaseRef) bool {
		_, phase := t.Lease(l.Row)
		// it was lost, or this node counts as dead just now
		return phase == Running || phase == Draining
	})
	if t.Closing() {
		return Step{}
	}
	if step.ReadOwned {
		step.Revalidate, s.revalidate = s.revalidate, false
		t.BeginRead()
	}
	return step
}

// plan plans the next read of the owned leases.
func (s *Search) plan(leases int) {
	s.resync, s.planned = max(resyncEvery, leases/resyncLeases), leases
}

// Claimed puts off the next read of the owned leases by those that have been claimed since it was planned, unless it is
// due: a node that starts owns none when it is planned.
func (s *Search) Claimed(leases int) {
	if more := (leases - s.planned) / resyncLeases; s.resync > 0 && more > 0 {
		s.resync, s.planned = s.resync+more, leases
	}
}

// Result is how a search ended.
type Result struct {
	Step   Step
	Failed bool
	// More reports that it left something out, Short that other nodes claimed leases that it wanted.
	More, Short bool
}

// Ended ends a search. If another one should follow before the next periodic one, Ended returns when.
func (s *Search) Ended(r Result) (after time.Duration, follows bool) {
	s.busy = false
	switch {
	case r.Failed:
		s.resync, s.revalidate, s.rebalance = 0, s.revalidate || r.Step.Revalidate, true
		return 0, false
	case s.again, r.More:
		return 0, true
	}
	return searchAgain, r.Short
}
