package actors

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
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

// heads is the poll of the heads of the node's tenants. It finds events whose notification was lost, or never sent.
// Each PollInterval is a round. It reads the tenants of one statement, or a twelfth of all tenants if that is more, and
// beside them those in which a poll found events without a notification. So a node with many tenants reads each once in
// twelve rounds, unless its writers do not notify.
type heads struct {
	cycle   []string          // tenants whose heads were not read yet in this cycle
	rounds  int               // that are left of the cycle
	missed  map[string]missed // tenants to read in each round
	tenants []string          // tenants whose heads were not read yet in this round
	every   time.Duration     // between two statements of this round
	hurry   bool              // the statements of this round follow each other at once
	reading bool
	timer   *time.Timer
}

// missed is when a poll found events of a tenant without a notification. It is confirmed if none arrived until the next
// round.
type missed struct {
	at        time.Time
	confirmed bool
}

// poll is called when the next heads of a round are due. The statements of a round are spread over PollInterval.
func (n *node) poll(ctx actor.Context) {
	if len(n.heads.tenants) == 0 {
		n.beginRound(false)
	}
	n.readHeads(ctx)
}

func (n *node) beginRound(hurry bool) {
	h := &n.heads
	h.reviewMissed(n.deps.Feeds, time.Now())
	session := n.deps.Registry.Session()
	all := hurry || !session.Connected || session.Pooled // no notifications arrive, or some were lost
	h.tenants, h.hurry = h.nextRound(n.deps.Feeds, all), hurry
	statements := (len(h.tenants) + headsAtOnce - 1) / headsAtOnce
	h.every = n.deps.Timing.PollInterval / time.Duration(max(1, statements))
}

// nextRound returns the tenants of the next round. With all, these are all tenants, and a cycle ends.
func (h *heads) nextRound(feeds *Router, all bool) []string {
	if all || h.rounds == 0 {
		h.cycle, h.rounds = feeds.tenants(), cycleMost
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
		return again || feeds.find(tenant) == nil // its feed has stopped since the cycle began
	})
	return slices.AppendSeq(round, maps.Keys(h.missed))
}

// reviewMissed forgets tenants without a feed, those whose notifications were late, and those whose last event without
// a notification was found long ago.
func (h *heads) reviewMissed(feeds *Router, now time.Time) {
	for tenant, m := range h.missed {
		ref := feeds.find(tenant)
		if ref == nil || !m.confirmed && ref.noticedSince(m.at.Add(-noticeGrace)) || now.Sub(m.at) > missedFor {
			delete(h.missed, tenant)
			continue
		}
		h.missed[tenant] = missed{at: m.at, confirmed: true}
	}
}

func (n *node) readHeads(ctx actor.Context) {
	h := &n.heads
	stopTimer(h.timer)
	h.timer = n.deps.After(ctx, h.every, n.poll)
	if h.reading || len(h.tenants) == 0 {
		return
	}
	h.reading = true
	tenants := h.tenants[:min(headsAtOnce, len(h.tenants))]
	h.tenants = h.tenants[len(tenants):]
	marks, began := n.deps.Feeds.marks(tenants), time.Now()
	var heads engine.Heads
	n.query(ctx, func(ctx context.Context) (err error) {
		heads, err = n.deps.Events.Heads(ctx, tenants)
		return err
	}, func(ctx actor.Context, err error) {
		h.reading = false
		if err != nil {
			n.log.Debug("reading heads failed", zap.Error(err))
		} else {
			n.headsRead(ctx, began, tenants, marks, heads)
		}
		if h.hurry && len(h.tenants) > 0 {
			n.readHeads(ctx)
		}
	})
}

func (n *node) headsRead(ctx actor.Context, began time.Time, tenants []string, marks []int64, heads engine.Heads) {
	for tenant, err := range heads.Failed {
		n.log.Debug("reading the head of a tenant failed", zap.String("tenant", tenant), zap.Error(err))
	}
	n.serverSeen(ctx, heads.Incarnation)
	for _, tenant := range n.deps.Feeds.compare(tenants, marks, heads) {
		if ref := n.deps.Feeds.find(tenant); ref != nil && !ref.noticedSince(began.Add(-noticeGrace)) {
			n.heads.missed[tenant] = missed{at: began, confirmed: n.heads.missed[tenant].confirmed}
		}
	}
}

// catchUp finds out what this node missed while it was cut off: notifications, and changes by a crash of the server.
// One statement reads all leases, and a few read the heads of all tenants.
func (n *node) catchUp(ctx actor.Context) {
	n.search.resync, n.search.revalidate = 0, true
	n.beginRound(true)
	n.readHeads(ctx)
}
