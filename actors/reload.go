package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// reload asks the node for the lease as the database has it. After a fault only the database knows how far the last batch came.
func (p *projector) reload(ctx actor.Context) {
	p.recheck, p.desk.again = false, false
	p.op++
	p.busy, p.asking = true, true
	p.env.Registry.publish(p.lease.ID, func(e *ProjectionEntry) { e.Busy, e.Limit = time.Now(), 2*p.env.Timing.QueryTimeout })
	ctx.Request(ctx.Parent(), &messages.LeaseRequest{Lease: p.lease, Op: p.op})
}

// reloaded handles the result of reading the lease.
func (p *projector) reloaded(ctx actor.Context, lease engine.Lease, err error) {
	if err != nil {
		p.fault(ctx, err)
		return
	}
	again := p.recheck // asked for while this was under way
	lease.HasCommands = lease.HasCommands || p.desk.again
	p.adopt(lease)
	if paused := !lease.Desired.Runs(); paused != (p.state == Paused) {
		p.wanted(paused)
	}
	p.recheck = again
	if p.known && p.in != lease.Incarnation {
		// The feed does not know yet, or its message is under way.
		p.known = false
		p.dropWindow()
		ctx.Send(p.feed, &messages.Recheck{Incarnation: lease.Incarnation})
		ctx.Request(p.feed, &messages.Subscribe{Taken: p.taken})
	}
}

// confirm compares the lease with what the database has of it. Work under way may have moved it since: then the fence
// decides.
func (p *projector) confirm(now engine.Lease) {
	known := p.lease
	over := known.Check(now, true) != nil || now.Incarnation != known.Incarnation
	if over {
		p.cutShort()
	}
	if over || now.Desired != known.Desired || now.Halted != known.Halted || now.Checkpoint != known.Checkpoint && !p.busy {
		p.recheck = true
	}
	if now.HasCommands {
		p.lease.HasCommands, p.desk.quiet = true, false // the notice of a command may have been lost
	}
}
