package actors

import (
	"maps"
	"sync"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// FeedEntry is what a feed publishes about itself. Busy is when the read in progress began, zero if there is none.
type FeedEntry struct {
	Mark int64
	Held *engine.Held
	Err  error
	Busy time.Time
	// Polling reports that a poll has begun and none has succeeded since. Queued reports that it waits for a slot.
	Polling, Queued bool
}

// feedEntries has what the node's feeds publish, by tenant.
type feedEntries struct {
	mu      sync.Mutex
	entries map[string]FeedEntry
	// working has the tenants whose feeds are reading: the watchdog checks only those.
	working map[string]bool
	// held has, for each feed, the time since which its mark has been held back or its events could not be read.
	held map[string]time.Time
	// unreadable has the tenants whose events cannot be read, with the time since which this is so.
	unreadable map[string]time.Time
	// polling has, for each feed, the time since which it has polled without success.
	polling map[string]time.Time
}

func newFeedEntries() feedEntries {
	return feedEntries{entries: make(map[string]FeedEntry), working: make(map[string]bool),
		held: make(map[string]time.Time), unreadable: make(map[string]time.Time), polling: make(map[string]time.Time)}
}

// publish changes the entry of a tenant's feed, which need not exist.
func (f *feedEntries) publish(tenant string, change func(*FeedEntry)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(tenant, f.entries[tenant], change)
}

// amend changes the entry of a tenant's feed. A change by work whose feed has stopped is ignored.
func (f *feedEntries) amend(tenant string, change func(*FeedEntry)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if entry, ok := f.entries[tenant]; ok {
		f.change(tenant, entry, change)
	}
}

func (f *feedEntries) change(tenant string, entry FeedEntry, change func(*FeedEntry)) {
	change(&entry)
	f.entries[tenant] = entry
	f.keepTimes(tenant, entry)
	delete(f.working, tenant)
	if !entry.Busy.IsZero() {
		f.working[tenant] = true
	}
}

// withdraw removes the entry of a tenant's feed.
func (f *feedEntries) withdraw(tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.entries, tenant)
	delete(f.working, tenant)
	f.keepTimes(tenant, FeedEntry{})
}

// keepTimes is called after each change of a feed's entry, and with the zero value when it is withdrawn.
func (f *feedEntries) keepTimes(tenant string, e FeedEntry) {
	since(f.held, tenant, e.Held != nil || e.Err != nil)
	since(f.unreadable, tenant, e.Err != nil)
	since(f.polling, tenant, e.Polling)
}

// since sets the time of a tenant when a condition begins to hold, and deletes it when the condition ends.
func since(times map[string]time.Time, tenant string, so bool) {
	if !so {
		delete(times, tenant)
	} else if times[tenant].IsZero() {
		times[tenant] = time.Now()
	}
}

// heldTenants returns the tenants whose settled marks are held back or cannot be read.
func (f *feedEntries) heldTenants() (held []engine.HeldTenant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for tenant, since := range f.held {
		e := f.entries[tenant]
		h := engine.HeldTenant{Tenant: tenant, Mark: e.Mark, Since: since, Held: e.Held}
		if e.Err != nil {
			h.Reason = e.Err.Error()
		}
		held = append(held, h)
	}
	return held
}

// hung returns the tenants of feeds that poll for new events, and have neither found any nor met an error for
// StandsLong.
func (f *feedEntries) hung() (held []engine.HeldTenant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for tenant, asked := range f.polling {
		e := f.entries[tenant]
		if since := time.Since(asked); since < StandsLong || e.Err != nil || e.Held != nil || e.Queued {
			continue
		}
		held = append(held, engine.HeldTenant{Tenant: tenant,
			Mark: e.Mark, Since: asked, Reason: "a read of its new events does not end"})
	}
	return held
}

// vitals returns how many tenants are read, and those whose events cannot be read.
func (f *feedEntries) vitals() (feeds int, unreadable map[string]time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.entries), maps.Clone(f.unreadable)
}

// LongestHold returns how many tenants' settled marks are held back or cannot be read on this node, and since when the
// first.
func (r *Registry) LongestHold() (tenants int, since time.Time) {
	f := &r.feeds
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.held {
		if since.IsZero() || at.Before(since) {
			since = at
		}
	}
	return len(f.held), since
}

// Feeds returns the entries of this node's feeds by tenant.
func (r *Registry) Feeds() map[string]FeedEntry {
	r.feeds.mu.Lock()
	defer r.feeds.mu.Unlock()
	return maps.Clone(r.feeds.entries)
}

// WorkingFeeds returns the entries of this node's feeds that are reading, by tenant.
func (r *Registry) WorkingFeeds() map[string]FeedEntry {
	f := &r.feeds
	f.mu.Lock()
	defer f.mu.Unlock()
	feeds := make(map[string]FeedEntry, len(f.working))
	for tenant := range f.working {
		feeds[tenant] = f.entries[tenant]
	}
	return feeds
}
