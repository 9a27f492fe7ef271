package actors

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/messages"
)

// projectionActor runs one projection. It turns messages into inputs of the projection's machine, and the machine's effects into
// work, messages and timers. It decides nothing.
type projectionActor struct {
	deps   *Deps
	log    *zap.Logger
	feed   *actor.PID
	m      machine.Machine
	first  machine.Started
	worker worker
	timer  *time.Timer
	// taken is the position up to which the projection has taken the feed's events. The feed reads it.
	taken *atomic.Int64
}

// tick is sent when the machine's timer is due.
type tick struct{}

// done is sent when a job has ended.
type done struct {
	op     int
	result machine.Result
}

// NewProjection makes the actor of a projection whose lease this node holds. fresh reports that the lease was just read; else the
// actor reads it before anything else.
func NewProjection(deps *Deps, def *engine.Definition, lease engine.Lease, feed *actor.PID, fresh bool) *actor.Props {
	log := deps.Log.With(zap.String("tenant", lease.ID.Tenant), zap.String("projection", lease.ID.Name),
		zap.Int("partition", lease.ID.Partition), zap.Int64("epoch", lease.Epoch))
	config := machine.Config{Def: def, HeartbeatInterval: deps.Timing.HeartbeatInterval, AdvanceEvery: deps.Timing.AdvanceEvery,
		Start: deps.start, Rest: deps.Timing.Rest}
	a := &projectionActor{deps: deps, log: log, feed: feed, m: machine.New(config, lease), first: machine.Started{Stale: !fresh},
		worker: worker{deps: deps, def: def, id: lease.ID, log: log}, taken: new(atomic.Int64)}
	return Props("projection "+lease.ID.String(), log, a)
}

func (a *projectionActor) Start(ctx actor.Context) {
	a.m.LeaseDeadline = a.deps.leaseDeadline()
	a.step(ctx, a.first)
}

func (a *projectionActor) Stop(ctx actor.Context) {
	ctx.Request(a.feed, &messages.Unsubscribe{})
	a.worker.cutShort(errStopped)
	a.worker.stop()
	stopTimer(a.timer)
	a.deps.Registry.withdraw(a.worker.id)
}

func (a *projectionActor) Handle(ctx actor.Context, msg any) {
	in := a.input(msg)
	if in == nil {
		return
	}
	if at := a.deps.leaseDeadline(); !at.Equal(a.m.LeaseDeadline) {
		a.step(ctx, machine.LeaseDeadline{At: at})
	}
	a.step(ctx, in)
}

// input returns the input that a message stands for, nil if it stands for none.
func (a *projectionActor) input(msg any) machine.Input {
	switch msg := msg.(type) {
	case *messages.TailAdvanced:
		return machine.TailAdvanced{Tail: machine.Tail{Incarnation: msg.Incarnation, Mark: msg.Mark, From: msg.From, Events: msg.Events}}
	case *messages.TailFailed:
		return machine.TailFailed{Err: msg.Err}
	case *messages.TailDropped:
		return machine.TailDropped{}
	case *messages.Revalidate:
		return machine.Confirm{Row: msg.Lease}
	case *messages.Unanswered:
		return machine.Unanswered{}
	case *messages.ServerAnswers:
		return machine.GateAnswered{Row: msg.Lease, Waited: msg.Waited, Jitter: rand.Float64()}
	case *messages.Resume:
		return machine.Resumed{}
	case *messages.Commanded:
		return machine.CommandPending{}
	case *messages.Drain:
		return machine.Drain{}
	case *messages.LeaseRead:
		if msg.Err != nil {
			return a.done(msg.Op, a.worker.fault(msg.Err))
		}
		return a.done(msg.Op, machine.Loaded{Row: msg.Lease})
	case *messages.Advanced:
		return a.done(msg.Op, machine.Advanced{Moved: msg.Moved})
	case *done:
		return a.done(msg.op, msg.result)
	case *tick:
		return machine.Tick{}
	}
	return nil
}

func (a *projectionActor) done(op int, result machine.Result) machine.Input {
	return machine.Done{Op: op, Result: result, Jitter: rand.Float64()}
}

// step gives the machine an input and carries out its effects.
func (a *projectionActor) step(ctx actor.Context, in machine.Input) {
	_, worked := a.m.State.(machine.Working)
	var effects []machine.Effect
	a.m, effects = machine.Step(a.m, in, time.Now())
	_, works := a.m.State.(machine.Working)
	if worked && !works {
		a.deps.Registry.publish(a.worker.id, func(e *ProjectionEntry) { e.Busy, e.Queued = time.Time{}, false })
	}
	for _, e := range effects {
		a.carryOut(ctx, e)
	}
	a.taken.Store(a.m.Taken())
}

// carryOut does what an effect says.
func (a *projectionActor) carryOut(ctx actor.Context, e machine.Effect) {
	switch e := e.(type) {
	case machine.Start:
		a.start(ctx, e)
	case machine.Yield:
		a.worker.rest()
	case machine.CutShort:
		a.worker.cutShort(errRevalidated)
	case machine.Cancel:
		a.worker.stop()
	case machine.Arm:
		a.arm(ctx.Self(), e.At)
	case machine.Publish:
		s := e.Status
		a.deps.Registry.publish(a.worker.id, func(entry *ProjectionEntry) {
			entry.State, entry.Position, entry.Mark, entry.Reason, entry.Halted = s.Phase, s.Position, s.Mark, s.Reason, s.Halted
			entry.Breaker = s.Breaker
			entry.Applied += int64(e.Applied)
		})
	case machine.Subscribe:
		if e.Recheck != 0 {
			ctx.Send(a.feed, &messages.Recheck{Incarnation: e.Recheck})
		}
		ctx.Request(a.feed, &messages.Subscribe{Taken: a.taken})
	case machine.AskGate:
		ctx.Request(ctx.Parent(), &messages.Faulted{Fault: e.Fault})
	case machine.DrainDone:
		ctx.Request(ctx.Parent(), &messages.Drained{Advance: e.Advance})
	case machine.LeaseGone:
		ctx.Request(ctx.Parent(), &messages.LeaseLost{Key: a.m.Row.Key()})
	case machine.Log:
		if line := a.log.Check(e.Level, e.Message); line != nil {
			line.Write(e.Fields...)
		}
	}
}

// start begins a job. The node reads leases and moves checkpoints, those of many projections in one statement.
func (a *projectionActor) start(ctx actor.Context, s machine.Start) {
	var request any
	switch job := s.Job.(type) {
	case machine.Load:
		request = &messages.LeaseRequest{Lease: a.m.Row, Op: s.Op}
	case machine.Advance:
		request = &messages.AdvanceRequest{Advance: engine.Advance{Lease: a.m.Row, To: job.To}, Op: s.Op}
	default:
		a.worker.run(ctx.Self(), s, a.m.Row)
		return
	}
	a.deps.Registry.publish(a.worker.id, func(e *ProjectionEntry) {
		e.Busy, e.Limit, e.Queued = time.Now(), 2*a.deps.Timing.QueryTimeout, false
	})
	ctx.Request(ctx.Parent(), request)
}

// arm sets the timer.
func (a *projectionActor) arm(self *actor.PID, at time.Time) {
	stopTimer(a.timer)
	if a.timer = nil; !at.IsZero() {
		a.timer = a.deps.after(time.Until(at), self, &tick{})
	}
}
