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
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/observing"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
)

const (
	// probeMost limits the time between two probes, and so how late the server's return is noticed.
	probeMost = 500 * time.Millisecond
	// answersAtOnce and answersEvery spread the answers when the gate opens.
	answersAtOnce = 64
	answersEvery  = 10 * time.Millisecond
)

// gate holds back the actors that met a fault of the server, until a probe succeeds. So ten thousand projections do not
// try ten thousand times. Only a failed probe closes it.
type gate struct {
	deps    *actors.Deps
	stopped bool // no actor is answered any more
	closed  bool
	since   time.Time
	probes  int
	waiters map[string]waiter // by PID
}

// waiter is an actor that waits for an answer. row is the row of a projection's lease, 0 for a feed.
type waiter struct {
	pid *actor.PID
	row int32
}

func newGate(deps *actors.Deps) *gate {
	return &gate{deps: deps, waiters: make(map[string]waiter)}
}

// onFault handles a fault of an actor. It is answered when the server can be reached.
func (g *gate) onFault(ctx actor.Context, w waiter, fault *faults.Fault) {
	switch {
	case g.stopped:
	case g.closed, fault.Unreachable:
		g.waiters[w.pid.Id] = w
		g.close(ctx, fault.Err)
	case fault.Probe:
		g.deps.ProbeThen(ctx, func(ctx actor.Context, err error) {
			g.onFault(ctx, w, &faults.Fault{Err: err, Unreachable: err != nil})
		})
	default:
		ctx.Send(w.pid, &messages.ServerAnswers{})
	}
}

// close closes the gate after a probe that failed, unless it is closed.
func (g *gate) close(ctx actor.Context, why error) {
	if g.closed {
		return
	}
	g.closed, g.since, g.probes = true, time.Now(), 0
	g.deps.Log.Warn("database unusable, all actors wait", zap.Error(why))
	observing.Call(g.deps.Observer.DatabaseChanged, observe.Database{Err: why})
	g.probeLater(ctx)
}

func (g *gate) probeLater(ctx actor.Context) {
	g.probes++
	policy := machine.FaultPolicy()
	policy.Cap = probeMost
	g.deps.After(ctx, backoff.Delay(policy, g.probes, rand.Float64()), g.probe)
}

// probe opens the gate if the server can be reached. It also reads the leases of this node by one statement, so that
// the projections need not read their own.
func (g *gate) probe(ctx actor.Context) {
	var leases []engine.Lease
	g.deps.Go(ctx, 2*g.deps.Timing.QueryTimeout, func(ctx context.Context) (err error) {
		if err := g.deps.Probe(ctx); err != nil {
			return err
		}
		leases, err = g.deps.Ownership.Owned(ctx, g.deps.Node)
		return err
	}, func(ctx actor.Context, err error) {
		switch {
		case g.stopped:
		case err != nil:
			g.probeLater(ctx)
		default:
			g.open(ctx, leases)
		}
	})
}

// open answers all waiters, spread over some time.
func (g *gate) open(ctx actor.Context, leases []engine.Lease) {
	outage := time.Since(g.since)
	g.deps.Log.Info("database usable again", zap.Duration("after", outage), zap.Int("waiting", len(g.waiters)))
	observing.Call(g.deps.Observer.DatabaseChanged, observe.Database{Usable: true, Outage: outage})
	g.closed = false
	byRow := make(map[int32]*engine.Lease, len(leases))
	for i := range leases {
		byRow[leases[i].Row] = &leases[i]
	}
	answered := 0
	for _, w := range g.waiters {
		answer := &messages.ServerAnswers{Lease: byRow[w.row], Waited: true}
		delay := time.Duration(answered/answersAtOnce)*answersEvery + rand.N(answersEvery)
		g.deps.After(ctx, delay, func(ctx actor.Context) { ctx.Send(w.pid, answer) })
		answered++
	}
	clear(g.waiters)
}
