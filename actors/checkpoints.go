package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// gatherFor is how long advances of checkpoints are gathered for one statement.
const gatherFor = 20 * time.Millisecond

// checkpoints are the advances that projections ask the node for.
type checkpoints struct {
	requests []advanceRequest
	moving   bool
	timer    *time.Timer
}

type advanceRequest struct {
	from *actor.PID
	*messages.AdvanceRequest
}

// advanceLater gathers the request of a projection.
func (n *node) advanceLater(ctx actor.Context, msg *messages.AdvanceRequest) {
	c := &n.checkpoints
	c.requests = append(c.requests, advanceRequest{ctx.Sender(), msg})
	if c.timer == nil && !c.moving {
		c.timer = n.deps.After(ctx, gatherFor, n.advance)
	}
}

// advance advances the gathered checkpoints. A projection whose checkpoint did not move reads its lease.
func (n *node) advance(ctx actor.Context) {
	c := &n.checkpoints
	c.timer = nil
	requests := c.requests
	advances := make([]engine.Advance, len(requests))
	for i, r := range requests {
		advances[i] = r.Advance
	}
	c.requests, c.moving = nil, true
	var rows map[int32]bool
	n.query(ctx, func(ctx context.Context) (err error) {
		rows, err = n.deps.Ownership.Advance(ctx, advances)
		return err
	}, func(ctx actor.Context, err error) {
		if err != nil {
			n.log.Debug("advancing checkpoints failed", zap.Int("checkpoints", len(requests)), zap.Error(err))
		}
		for _, r := range requests {
			ctx.Send(r.from, &messages.Advanced{Op: r.Op, Moved: rows[r.Advance.Lease.Row]})
		}
		c.moving = false
		if len(c.requests) > 0 {
			n.advance(ctx)
		}
	})
}
