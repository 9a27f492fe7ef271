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

// pollSlice is how many tenants' heads are read at once.
const pollSlice = 250

// heads is the poll of the heads of the node's tenants: it finds events whose notification was lost.
type heads struct {
	tenants []string // whose heads are still to be polled in this round
	polling bool
	hurry   bool // whether this round is not spread over the interval
	timer   *time.Timer
}

// pollDue is sent when the next slice is due, pollNext when a slice that is in a hurry may follow.
type (
	pollDue  struct{}
	pollNext struct{}
)

// looked is the result of reading heads.
type looked struct {
	asked []string
	heads engine.Heads
	marks map[string]int64
	err   error
}

func (n *node) poll(ctx actor.Context, msg any) {
	h := &n.heads
	h.hurry = h.hurry && len(h.tenants) > 0
	if _, next := msg.(*pollNext); next && !h.hurry {
		return
	} else if !next && len(h.tenants) == 0 {
		h.tenants = slices.Collect(maps.Keys(n.deps.Feeds.marks()))
	}
	n.look(ctx)
}

// look reads the heads of a slice of the tenants. The slices of a round are spread over the interval.
func (n *node) look(ctx actor.Context) {
	h := &n.heads
	marks := n.deps.Feeds.marks()
	parts := max(1, (len(marks)+pollSlice-1)/pollSlice)
	stopTimer(h.timer)
	h.timer = n.deps.after(n.deps.Timing.Poll/time.Duration(parts), ctx.Self(), &pollDue{})
	if h.polling || len(h.tenants) == 0 {
		return
	}
	h.polling = true
	slice := h.tenants[:min(pollSlice, len(h.tenants))]
	h.tenants = h.tenants[len(slice):]
	n.deps.run(ctx.Self(), n.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		release, err := n.deps.Limiter.read(ctx)
		if err != nil {
			return &looked{err: err}
		}
		defer release()
		heads, err := n.deps.Store.Heads(ctx, slice)
		return &looked{asked: slice, heads: heads, marks: marks, err: err}
	})
}

func (n *node) looked(ctx actor.Context, msg *looked) {
	n.heads.polling = false
	if n.heads.hurry {
		defer ctx.Send(ctx.Self(), &pollNext{})
	}
	if msg.err != nil {
		n.log.Debug("reading heads failed", zap.Error(msg.err))
		return
	}
	for tenant, err := range msg.heads.Failed {
		n.log.Debug("reading the head of a tenant failed", zap.String("tenant", tenant), zap.Error(err))
	}
	n.learned(ctx, msg.heads.Incarnation)
	n.deps.Feeds.compare(msg.heads, msg.marks)
	n.deps.Feeds.wakeMissing(msg.asked, msg.heads)
}

// missed finds out what this node missed while it was cut off: notifications, and changes by a crash of the server. It does
// so for the whole node: one statement reads all leases, and a few read the heads of all tenants.
func (n *node) missed(ctx actor.Context) {
	n.claims.resync, n.claims.revalidate, n.heads.hurry = 0, true, true
	n.heads.tenants = slices.Collect(maps.Keys(n.deps.Feeds.marks()))
	n.look(ctx)
}
