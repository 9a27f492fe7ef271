package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
)

// headsAtOnce is how many tenants' heads one statement reads.
const headsAtOnce = 250

// heads is the poll of the heads of the node's tenants. It finds events whose notification was lost.
type heads struct {
	tenants []string      // tenants whose heads were not read yet in this round
	every   time.Duration // between two statements of this round
	hurry   bool          // the statements of this round follow each other at once
	reading bool
	timer   *time.Timer
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
	h.tenants, h.hurry = n.deps.Feeds.tenants(), hurry
	statements := (len(h.tenants) + headsAtOnce - 1) / headsAtOnce
	h.every = n.deps.Timing.PollInterval / time.Duration(max(1, statements))
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
	marks := n.deps.Feeds.marks(tenants)
	var heads engine.Heads
	n.query(ctx, func(ctx context.Context) (err error) {
		heads, err = n.deps.Store.Heads(ctx, tenants)
		return err
	}, func(ctx actor.Context, err error) {
		h.reading = false
		if err != nil {
			n.log.Debug("reading heads failed", zap.Error(err))
		} else {
			n.headsRead(ctx, tenants, marks, heads)
		}
		if h.hurry && len(h.tenants) > 0 {
			n.readHeads(ctx)
		}
	})
}

func (n *node) headsRead(ctx actor.Context, tenants []string, marks []int64, heads engine.Heads) {
	for tenant, err := range heads.Failed {
		n.log.Debug("reading the head of a tenant failed", zap.String("tenant", tenant), zap.Error(err))
	}
	n.serverSeen(ctx, heads.Incarnation)
	n.deps.Feeds.compare(tenants, marks, heads)
}

// catchUp finds out what this node missed while it was cut off: notifications, and changes by a crash of the server. One
// statement reads all leases, and a few read the heads of all tenants.
func (n *node) catchUp(ctx actor.Context) {
	n.search.resync, n.search.revalidate = 0, true
	n.beginRound(true)
	n.readHeads(ctx)
}
