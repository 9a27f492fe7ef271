package supervisor

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// releaseTime bounds how long giving the leases back may take; what is not given back runs out.
const releaseTime = 5 * time.Second

// drain lets every projection finish what it is at. Nothing new is claimed meanwhile; heartbeats go on.
func (b *boss) drain(ctx actor.Context, grace time.Duration) {
	if b.stopping {
		return
	}
	b.stopping = true
	b.env.Refuse()
	b.undrained = make(map[string]bool)
	if b.node.pid != nil {
		ctx.Send(b.node.pid, &messages.Drain{})
	}
	b.eachProjection(func(c *child) {
		b.undrained[c.pid.Id] = true
		ctx.Send(c.pid, &messages.Drain{})
	})
	b.env.After(grace, ctx.Self(), &graceOver{})
	b.rested(ctx, nil)
}

func (b *boss) drained(ctx actor.Context, msg *messages.Drained) {
	if c := b.children[ctx.Sender().Id]; c != nil {
		c.advance = &msg.Advance
	}
	b.rested(ctx, ctx.Sender())
}

// rested takes in that a projection came to rest, or is gone. When all have, their leases are given back in one
// statement.
func (b *boss) rested(ctx actor.Context, pid *actor.PID) {
	if pid != nil {
		delete(b.undrained, pid.Id)
	}
	if b.undrained == nil || len(b.undrained) > 0 || b.releasing {
		return
	}
	b.releasing = true
	var advances []projection.Advance
	for _, c := range b.projections {
		switch {
		case c.ended:
		case c.renewed != nil:
			advances = append(advances, projection.Advance{Lease: *c.renewed, To: c.renewed.Checkpoint})
		case c.advance != nil:
			advances = append(advances, *c.advance)
		default:
			// It was between two starts, or crashed. Where its checkpoint is, only the database knows.
			advances = append(advances, projection.Advance{Lease: c.lease, To: c.lease.Checkpoint})
		}
	}
	store, self, root := b.env.Store, ctx.Self(), b.env.System.Root
	b.env.Own(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
		defer cancel()
		root.Send(self, &released{err: store.Release(ctx, advances)})
	})
}
