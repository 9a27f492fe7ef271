package supervisor

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// releaseTime bounds how long giving leases back may take; what is not given back runs out.
const releaseTime = 5 * time.Second

// releaseRetries is how often that is tried again.
const releaseRetries = 2

// surrender lets projections finish what they are at, and gives each one's lease back then.
func (b *boss) surrender(ctx actor.Context, rows []int32) {
	if b.stopping {
		return
	}
	asked := rowSet(rows)
	for _, c := range b.projections {
		if !asked[c.lease.Row] || c.leaving || c.ended {
			continue
		}
		c.leaving = true
		if c.pid != nil {
			ctx.Send(c.pid, &messages.Drain{})
		} else {
			b.handBack(ctx, c)
		}
	}
}

// drain lets every projection finish what it is at, before the end. Nothing new is claimed meanwhile; heartbeats go on.
func (b *boss) drain(ctx actor.Context, grace time.Duration) {
	if b.stopping {
		return
	}
	b.stopping = true
	b.env.Refuse()
	b.undrained = make(map[string]bool)
	b.left = b.node.pid == nil
	b.tellNode(ctx, &messages.Drain{})
	for _, c := range b.projections {
		if c.pid != nil && c.advance == nil {
			b.undrained[c.pid.Id] = true
			ctx.Send(c.pid, &messages.Drain{})
		} else {
			b.handBack(ctx, c)
		}
	}
	b.env.After(grace, ctx.Self(), &graceOver{})
	b.endWhenDone(ctx)
}

// drained takes in that a projection came to rest.
func (b *boss) drained(ctx actor.Context, msg *messages.Drained) {
	c := b.children[ctx.Sender().Id]
	if c == nil {
		return
	}
	c.advance = &msg.Advance
	if b.stopping {
		b.rested(ctx, c, ctx.Sender())
	} else if c.leaving {
		b.handBack(ctx, c)
	}
}

// rested takes in, before the end, that a projection came to rest or is gone.
func (b *boss) rested(ctx actor.Context, c *child, pid *actor.PID) {
	delete(b.undrained, pid.Id)
	if c.lease.Row != 0 {
		b.handBack(ctx, c)
	}
	b.endWhenDone(ctx)
}

// handback is a lease that is to be given back. It has no child where no actor was started for it.
type handback struct {
	child   *child
	advance engine.Advance
}

// released tells how giving leases back went.
type released struct {
	handbacks []handback
	err       error
}

// handBack gives the lease of a projection back that is at rest. While one statement is under way, those that come are
// gathered for the next.
func (b *boss) handBack(ctx actor.Context, c *child) {
	if (c.ended || c.handed) && c.renewed == nil {
		return
	}
	c.handed = true
	// Where its actor is between two starts, or crashed, only the database knows how far it was.
	advance := engine.Advance{Lease: c.lease, To: c.lease.Checkpoint}
	switch {
	case c.renewed != nil:
		advance = engine.Advance{Lease: *c.renewed, To: c.renewed.Checkpoint}
		c.renewed = nil
	case c.advance != nil:
		advance = *c.advance
	}
	b.handbacks = append(b.handbacks, handback{c, advance})
	b.release(ctx)
}

// handBackUnused gives a lease back that came when all were to be given back already.
func (b *boss) handBackUnused(ctx actor.Context, lease engine.Lease) {
	if c := b.projections[lease.ID]; c != nil && c.lease.Epoch == lease.Epoch {
		return // it is among those
	}
	b.handbacks = append(b.handbacks, handback{advance: engine.Advance{Lease: lease, To: lease.Checkpoint}})
	b.release(ctx)
}

func (b *boss) release(ctx actor.Context) {
	if b.releasing || len(b.handbacks) == 0 {
		return
	}
	b.releasing = true
	handbacks := b.handbacks
	b.handbacks = nil
	advances := make([]engine.Advance, len(handbacks))
	for i, h := range handbacks {
		advances[i] = h.advance
	}
	store, self, root := b.env.Store, ctx.Self(), b.env.System.Root
	b.env.Own(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
		defer cancel()
		err := store.Release(ctx, advances)
		for retry := 0; err != nil && retry < releaseRetries && ctx.Err() == nil; retry++ {
			// It may have been one connection. Leases that were released by the last try are passed over.
			err = store.Release(ctx, advances)
		}
		root.Send(self, &released{handbacks: handbacks, err: err})
	})
}

// released ends the projections whose leases were given back. Whether an attempt that failed did it after all, the node
// finds out when it reads its leases anew.
func (b *boss) released(ctx actor.Context, msg *released) {
	b.releasing = false
	if msg.err != nil {
		b.env.Log.Warn("releasing leases failed", zap.Int("leases", len(msg.handbacks)), zap.Error(msg.err))
	}
	if !b.stopping {
		for _, h := range msg.handbacks {
			b.leave(ctx, h.child, msg.err)
		}
	}
	b.release(ctx)
	b.endWhenDone(ctx)
}

// leave ends a projection whose lease was given back. The node may have claimed it anew by now.
func (b *boss) leave(ctx actor.Context, c *child, err error) {
	if b.projections[c.lease.ID] != c {
		return
	}
	c.ended = true
	b.tellNode(ctx, &messages.Ended{Lease: c.lease, Reason: err})
	if c.pid != nil {
		ctx.Stop(c.pid)
		return
	}
	b.gone(ctx, c)
	if c.renewed != nil {
		b.run(ctx, *c.renewed)
	}
}

// endWhenDone stops everything once all projections are at rest, nothing more is claimed, and all leases are given back.
func (b *boss) endWhenDone(ctx actor.Context) {
	if b.stopping && b.left && b.undrained != nil && len(b.undrained) == 0 && len(b.handbacks) == 0 && !b.releasing {
		ctx.Stop(ctx.Self())
	}
}
