package ownership

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// changesGap is the least time between two rounds of changes. It grows up to searchSoon if searches take longer, so
// that many notifications cost few searches.
const changesGap = 10 * time.Millisecond

// Changes decides when a node handles tenants that notifications name: their states, or the sets of their projections,
// changed. In each round a search claims their leases, and the node checks the leases of these tenants that it holds.
type Changes struct {
	// named are the tenants since the last round. due reports whether the next one is due.
	named map[string]bool
	due   bool
	last  time.Time
	gap   time.Duration
	// claiming are tenants that were named while a search was in progress, which may claim leases that should not run.
	claiming map[string]bool
}

// Add adds a tenant. first reports that the next round begins after that time: at once, unless the last one has just
// begun. Otherwise the next round is due already.
func (c *Changes) Add(tenant string, now time.Time) (after time.Duration, first bool) {
	if c.named == nil {
		c.named = make(map[string]bool)
	}
	c.named[tenant] = true
	first, c.due = !c.due, true
	return max(0, max(changesGap, c.gap)-now.Sub(c.last)), first
}

// Begin begins a round and returns its tenants.
func (c *Changes) Begin(now time.Time, s *Search) (named map[string]bool) {
	named = c.named
	c.named, c.due, c.last = nil, false, now
	if !s.Busy() {
		return named
	}
	if c.claiming == nil {
		c.claiming = make(map[string]bool)
	}
	for tenant := range named {
		c.claiming[tenant] = true
	}
	return named
}

// Searched is called after a search that took so long. It returns the tenants whose leases have to be checked once
// more.
func (c *Changes) Searched(took time.Duration) (claiming map[string]bool) {
	claiming = c.claiming
	c.gap, c.claiming = min(searchSoon, took), nil
	return claiming
}

// Check compares leases of the table, which had these keys before the read, with those that were read for the node
// self. It retires lost leases and returns them, and drains projections that should not run. Leases that changed in the
// table meanwhile stay as they are.
func (t *Table) Check(self string, keys []engine.LeaseKey, leases []engine.Lease) (effects []Effect, lost []LostLease) {
	read := make(map[engine.LeaseKey]engine.Lease, len(leases))
	for _, l := range leases {
		read[l.Key()] = l
	}
	for _, key := range keys {
		h := t.find(key)
		if h == nil || h.phase == Releasing {
			continue
		}
		lease, exists := read[key]
		if !exists || lease.Owner != self {
			lost = append(lost, LostLease{h.ref, h.epoch})
			effects = append(effects, t.end(h)...)
			continue
		}
		effects = append(effects, t.Seen(lease)...)
	}
	return effects, lost
}

// Seen drains the projection of a lease that was just read, if it should not run.
func (t *Table) Seen(lease engine.Lease) []Effect {
	if h := t.find(lease.Key()); h == nil || lease.Desired.Runs() {
		return nil
	}
	return t.Drain(lease.Row)
}
