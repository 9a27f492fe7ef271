package supervisor

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/messages"
)

const (
	// probeMost bounds the time between two probes, and so how long after the server's return nobody notices it.
	probeMost = 500 * time.Millisecond
	// startsAtOnce and startsEvery spread what starts again when the gate opens.
	startsAtOnce = 64
	startsEvery  = 10 * time.Millisecond
)

// gate holds back all actors that need the server while the server is away, until a probe succeeds. So ten thousand
// projections do not try ten thousand times. Only a failed probe closes it.
type gate struct {
	deps    *actors.Deps
	closed  bool
	since   time.Time
	probes  int
	waiters map[string]waiter
	// asking are the children that wait for the running probe, because their faults may be the server's. asked are those with
	// later faults, for which another probe follows.
	asking, asked map[string]*child
}

// waiter goes on when the gate is open, and not before its own time.
type waiter struct {
	pid *actor.PID
	// row is that of a projection's lease, 0 for any other actor.
	row       int32
	notBefore time.Time
}

// answer is what a waiter is sent when the gate opens.
func (w waiter) answer(lease *engine.Lease) any {
	if w.row == 0 {
		return &messages.Resume{}
	}
	return &messages.ServerAnswers{Lease: lease, Waited: true}
}

// probed is what a probe posts back while the gate is closed.
type probed struct {
	// leases are those of this node, by their rows.
	leases map[int32]*engine.Lease
	err    error
}

// answered is what a probe posts back that a fault asked for.
type answered struct{ err error }

// probeDue is sent when it is time for the next probe.
type probeDue struct{}

func newGate(deps *actors.Deps) *gate {
	return &gate{deps: deps, waiters: make(map[string]waiter), asked: make(map[string]*child)}
}

// shut closes the gate after a probe that failed, unless it is closed.
func (g *gate) shut(ctx actor.Context, why error) {
	if g.closed {
		return
	}
	g.closed, g.since, g.probes = true, time.Now(), 1
	g.deps.Log.Warn("database unusable, all actors wait", zap.Error(why))
	g.probed(ctx, &probed{err: why})
}

// wait makes a child wait for the gate to open, and for its own delay: if the server answers the probe but keeps failing this
// actor, the actor must not spin.
func (g *gate) wait(c *child) {
	g.waiters[c.pid.Id] = waiter{pid: c.pid, row: c.lease.Row, notBefore: time.Now().Add(c.atLeast())}
}

func (g *gate) forget(pid *actor.PID) {
	delete(g.waiters, pid.Id)
	delete(g.asked, pid.Id)
	delete(g.asking, pid.Id)
}

func (g *gate) probe(ctx actor.Context) {
	g.probes++
	g.deps.Run(ctx.Self(), 2*g.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		msg := &probed{err: g.deps.Probe(ctx)}
		if msg.err == nil {
			msg.leases, msg.err = g.owned(ctx)
		}
		return msg
	})
}

// ask has a probe find out whether a fault of c is the server's. One runs at a time.
func (g *gate) ask(ctx actor.Context, c *child) {
	g.asked[c.pid.Id] = c
	if g.asking == nil {
		g.askNext(ctx)
	}
}

func (g *gate) askNext(ctx actor.Context) {
	if g.asking = nil; len(g.asked) == 0 {
		return
	}
	g.asking, g.asked = g.asked, make(map[string]*child)
	g.deps.Run(ctx.Self(), 2*g.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		return &answered{err: g.deps.Probe(ctx)}
	})
}

// answered returns the children whose faults are their own, since the server can be worked with. Else the gate closes, and
// they wait for it to open.
func (g *gate) answered(ctx actor.Context, err error) (own map[string]*child) {
	own = g.asking
	switch {
	case g.closed:
		// It was closed meanwhile, and its own probe finds out.
	case err != nil:
		g.shut(ctx, err)
	default:
		g.askNext(ctx)
		return own
	}
	for _, c := range g.asked {
		own[c.pid.Id] = c
	}
	for _, c := range own {
		g.wait(c)
	}
	g.asking, g.asked = nil, make(map[string]*child)
	return nil
}

// owned reads the leases of the node in one statement, so that those that go on need not each read their own.
func (g *gate) owned(ctx context.Context) (map[int32]*engine.Lease, error) {
	leases, err := g.deps.Store.Owned(ctx, g.deps.Node)
	if err != nil {
		return nil, err
	}
	byRow := make(map[int32]*engine.Lease, len(leases))
	for i := range leases {
		byRow[leases[i].Row] = &leases[i]
	}
	return byRow, nil
}

func (g *gate) probed(ctx actor.Context, msg *probed) {
	if msg.err != nil {
		policy := machine.FaultPolicy()
		policy.Cap = probeMost
		g.deps.After(backoff.Delay(policy, g.probes, rand.Float64()), ctx.Self(), &probeDue{})
		return
	}
	g.closed = false
	g.deps.Log.Info("database usable again", zap.Duration("after", time.Since(g.since)), zap.Int("waiting", len(g.waiters)))
	i := 0
	for _, w := range g.waiters {
		delay := time.Duration(i/startsAtOnce)*startsEvery + rand.N(startsEvery)
		g.deps.After(max(delay, time.Until(w.notBefore)), w.pid, w.answer(msg.leases[w.row]))
		i++
	}
	clear(g.waiters)
}
