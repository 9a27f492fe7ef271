package rounds

import (
	"maps"
	"slices"
	"time"
)

const (
	// headsAtOnce is how many tenants' heads one statement reads.
	headsAtOnce = 250
	// cycleMost is in how many rounds the heads of all tenants are read at the latest.
	cycleMost = 12
	// noticeGrace is how much later than its events a notification may arrive. missedFor is how long a tenant is polled
	// in each round after a poll found events without a notification.
	noticeGrace = time.Second
	missedFor   = 24 * time.Hour
)

// Heads is the poll of the heads of the node's tenants. It finds events whose notification was lost, or never sent.
// Each interval is a round. It reads the tenants of one statement, or a twelfth of all tenants if that is more, and
// beside them those in which a poll found events without a notification. So a node with many tenants reads each once in
// twelve rounds, unless its writers do not notify.
type Heads struct {
	interval time.Duration
	cycle    []string          // tenants whose heads were not read yet in this cycle
	rounds   int               // that are left of the cycle
	missed   map[string]missed // tenants to read in each round
	tenants  []string          // tenants whose heads were not read yet in this round
	every    time.Duration     // between two statements of this round
	hurry    bool              // the statements of this round follow each other at once
	reading  bool
}

// missed is when a poll found events of a tenant without a notification. It is confirmed if none arrived until the next
// round.
type missed struct {
	at        time.Time
	confirmed bool
}

// Feeds are the feeds of a node, one for each tenant.
type Feeds interface {
	// Tenants returns the tenants that have a feed.
	Tenants() []string
	// Noticed returns when the last notification of events of a tenant arrived. exists is false if it has no feed.
	Noticed(tenant string) (at time.Time, exists bool)
}

// NewHeads returns a poll with a round in each interval.
func NewHeads(interval time.Duration) *Heads {
	return &Heads{interval: interval, missed: make(map[string]missed)}
}

// Scope says which tenants a round reads.
type Scope int

const (
	// Due are the tenants that have their turn.
	Due Scope = iota
	// All tenants are read if no notifications arrive.
	All
	// AllNow is All with statements that follow each other at once.
	AllNow
)

// Over reports whether no heads of the round are left to read.
func (h *Heads) Over() bool { return len(h.tenants) == 0 }

// Begin begins a round. The statements of a round are spread over the interval.
func (h *Heads) Begin(feeds Feeds, scope Scope, now time.Time) {
	h.reviewMissed(feeds, now)
	h.tenants, h.hurry = h.nextRound(feeds, scope != Due), scope == AllNow
	statements := (len(h.tenants) + headsAtOnce - 1) / headsAtOnce
	h.every = h.interval / time.Duration(max(1, statements))
}

// Next returns the tenants of the next statement. It returns none while a statement is in progress, or if none are
// left. Otherwise Read follows. The next statement is due after that time.
func (h *Heads) Next() (tenants []string, after time.Duration) {
	if h.reading || h.Over() {
		return nil, h.every
	}
	h.reading = true
	tenants = h.tenants[:min(headsAtOnce, len(h.tenants))]
	h.tenants = h.tenants[len(tenants):]
	return tenants, h.every
}

// Read is called after each statement, even if it failed. In the unknown tenants it found events that no feed knew of.
// Read returns atOnce if the next statement should follow without a pause.
func (h *Heads) Read(feeds Feeds, began time.Time, unknown []string) (atOnce bool) {
	for _, tenant := range unknown {
		if at, exists := feeds.Noticed(tenant); exists && at.Before(began.Add(-noticeGrace)) {
			h.missed[tenant] = missed{at: began, confirmed: h.missed[tenant].confirmed}
		}
	}
	h.reading = false
	return h.hurry && !h.Over()
}

// nextRound returns the tenants of the next round. With all, these are all tenants, and a cycle ends.
func (h *Heads) nextRound(feeds Feeds, all bool) []string {
	if all || h.rounds == 0 {
		h.cycle, h.rounds = feeds.Tenants(), cycleMost
	}
	size := max(headsAtOnce, (len(h.cycle)+h.rounds-1)/h.rounds)
	if all {
		size = len(h.cycle)
	}
	size = min(size, len(h.cycle))
	round := h.cycle[:size:size]
	h.cycle, h.rounds = h.cycle[size:], h.rounds-1
	if len(h.cycle) == 0 {
		h.rounds = 0
	}
	round = slices.DeleteFunc(round, func(tenant string) bool {
		_, again := h.missed[tenant]
		_, exists := feeds.Noticed(tenant)
		return again || !exists // its feed has stopped since the cycle began
	})
	return slices.AppendSeq(round, maps.Keys(h.missed))
}

// reviewMissed forgets tenants without a feed, those whose notifications were late, and those whose last event without
// a notification was found long ago.
func (h *Heads) reviewMissed(feeds Feeds, now time.Time) {
	for tenant, m := range h.missed {
		at, exists := feeds.Noticed(tenant)
		late := !m.confirmed && !at.Before(m.at.Add(-noticeGrace))
		if !exists || late || now.Sub(m.at) > missedFor {
			delete(h.missed, tenant)
			continue
		}
		h.missed[tenant] = missed{at: m.at, confirmed: true}
	}
}
