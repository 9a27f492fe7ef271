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

// checkpoints is the part of the node that advances checkpoints for projections.
type checkpoints struct {
	deps     *Deps
	requests requests[advanceRequest]
	timer    *time.Timer
}

type advanceRequest struct {
	from *actor.PID
	*messages.AdvanceRequest
}

// advanceLater gathers the request of a projection.
func (c *checkpoints) advanceLater(ctx actor.Context, msg *messages.AdvanceRequest) {
	if c.requests.add(advanceRequest{ctx.Sender(), msg}) {
		c.timer = c.deps.After(ctx, gatherFor, c.advance)
	}
}

// advance advances the gathered checkpoints. A projection whose checkpoint did not move reads its lease.
func (c *checkpoints) advance(ctx actor.Context) {
	requests := c.requests.next()
	if len(requests) == 0 {
		return
	}
	advances := make([]engine.Advance, len(requests))
	for i, r := range requests {
		advances[i] = r.Advance
	}
	var rows map[int32]bool
	c.deps.query(ctx, func(ctx context.Context) (err error) {
		rows, err = c.deps.Ownership.Advance(ctx, advances)
		return err
	}, func(ctx actor.Context, err error) {
		if err != nil {
			c.deps.Log.Debug("advancing checkpoints failed", zap.Int("checkpoints", len(requests)), zap.Error(err))
		}
		for _, r := range requests {
			ctx.Send(r.from, &messages.Advanced{Op: r.Op, Moved: rows[r.Advance.Lease.Row]})
		}
		c.advance(ctx)
	})
}
