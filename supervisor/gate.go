package supervisor

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

const (
	// probeMost bounds the time between two probes, and so how long after the server's return nobody notices it.
	probeMost = 500 * time.Millisecond
	// startsAtOnce and startsEvery spread what starts again when the gate opens.
	startsAtOnce = 64
	startsEvery  = 10 * time.Millisecond
)

// gate holds back everything that needs the server while one probe looks whether it is back, so that ten thousand
// projections do not try ten thousand times.
type gate struct {
	env     *actors.Env
	closed  bool
	since   time.Time
	probes  int
	waiters map[string]waiter
}

// waiter goes on when the gate is open, and not before its own time.
type waiter struct {
	pid *actor.PID
	// row is that of a projection's lease, 0 for any other actor.
	row       int32
	notBefore time.Time
}

// probed is what a probe posts back.
type probed struct {
	// leases are those of this node, by their rows.
	leases map[int32]*projection.Lease
	err    error
}

// probeDue is sent when it is time for the next probe.
type probeDue struct{}

func newGate(env *actors.Env) *gate {
	return &gate{env: env, waiters: make(map[string]waiter)}
}

// shut closes the gate and begins to probe, unless that is under way.
func (g *gate) shut(ctx actor.Context, why error) {
	if g.closed {
		return
	}
	g.closed, g.since, g.probes = true, time.Now(), 0
	g.env.Log.Warn("database cannot be worked with; everything waits for it", zap.Error(why))
	g.probe(ctx)
}

// wait lets pid wait for the gate to open, and for at least a delay: where the server answers the probe and yet fails
// this one actor again and again, the actor must not spin.
func (g *gate) wait(pid *actor.PID, row int32, atLeast time.Duration) {
	g.waiters[pid.Id] = waiter{pid: pid, row: row, notBefore: time.Now().Add(atLeast)}
}

func (g *gate) forget(pid *actor.PID) { delete(g.waiters, pid.Id) }

func (g *gate) probe(ctx actor.Context) {
	g.probes++
	g.env.Run(ctx.Self(), g.env.Timing.Call, func(ctx context.Context) any {
		msg := &probed{err: g.env.Store.Ping(ctx)}
		if msg.err == nil {
			msg.leases, msg.err = g.owned(ctx)
		}
		return msg
	})
}

// owned reads the leases of the node in one statement, so that those that go on need not each read their own.
func (g *gate) owned(ctx context.Context) (map[int32]*projection.Lease, error) {
	leases, err := g.env.Store.Owned(ctx, g.env.Node)
	if err != nil {
		return nil, err
	}
	byRow := make(map[int32]*projection.Lease, len(leases))
	for i := range leases {
		byRow[leases[i].Row] = &leases[i]
	}
	return byRow, nil
}

func (g *gate) probed(ctx actor.Context, msg *probed) {
	if msg.err != nil {
		policy := faultPolicy()
		policy.Cap = probeMost
		g.env.After(retryDelay(policy, g.probes), ctx.Self(), &probeDue{})
		return
	}
	g.closed = false
	g.env.Log.Info("database can be worked with again", zap.Duration("after", time.Since(g.since)), zap.Int("waiting", len(g.waiters)))
	i := 0
	for _, w := range g.waiters {
		delay := time.Duration(i/startsAtOnce)*startsEvery + rand.N(startsEvery)
		g.env.After(max(delay, time.Until(w.notBefore)), w.pid, &messages.Resume{Lease: msg.leases[w.row]})
		i++
	}
	clear(g.waiters)
}
