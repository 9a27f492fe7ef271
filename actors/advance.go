package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// gather is how long checkpoints to be advanced are gathered for one statement.
const gather = 20 * time.Millisecond

// advances are the checkpoints that projections ask the node to move.
type advances struct {
	requests []request
	moving   bool
	timer    *time.Timer
}

type request struct {
	from    *actor.PID
	advance engine.Advance
	op      int
}

// flushDue is sent when the node should advance the gathered checkpoints.
type flushDue struct{}

// moved is the result of advancing checkpoints. A projection whose row is not among rows reads its lease.
type moved struct {
	requests []request
	rows     map[int32]bool
}

func (n *node) advance(ctx actor.Context, msg *messages.AdvanceRequest) {
	n.advances.requests = append(n.advances.requests, request{ctx.Sender(), msg.Advance, msg.Op})
	if n.advances.timer == nil && !n.advances.moving {
		n.advances.timer = n.deps.after(gather, ctx.Self(), &flushDue{})
	}
}

// move advances the gathered checkpoints.
func (n *node) move(ctx actor.Context) {
	a := &n.advances
	a.timer = nil
	if a.moving || len(a.requests) == 0 {
		return
	}
	a.moving = true
	requests := a.requests
	a.requests = nil
	n.deps.run(ctx.Self(), n.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		result := &moved{requests: requests}
		release, err := n.deps.Limiter.read(ctx)
		if err != nil {
			return result
		}
		defer release()
		advances := make([]engine.Advance, len(requests))
		for i, r := range requests {
			advances[i] = r.advance
		}
		result.rows, _ = n.deps.Store.Advance(ctx, advances)
		return result
	})
}

func (n *node) moved(ctx actor.Context, msg *moved) {
	n.advances.moving = false
	for _, r := range msg.requests {
		ctx.Send(r.from, &messages.Advanced{Op: r.op, Moved: msg.rows[r.advance.Lease.Row]})
	}
	if len(n.advances.requests) > 0 {
		n.move(ctx)
	}
}
