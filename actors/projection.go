package actors

import (
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/usererror"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// projectionActor runs one projection. It turns messages into inputs of the projection's machine, and the machine's
// effects into work, messages and timers. It decides nothing.
type projectionActor struct {
	feed   *actor.PID
	m      machine.Machine
	first  machine.Started
	worker worker
	timer  *time.Timer
}

// NewProjection returns the actor of a projection whose lease this node holds. fresh reports that the lease was just
// read; else the actor first reads it.
func NewProjection(deps *Deps, def *engine.Definition, lease engine.Lease, feed *actor.PID, fresh bool) Behaviour {
	return &projectionActor{feed: feed, m: machine.New(deps.configOf(def), lease),
		first:  machine.Started{Stale: !fresh},
		worker: worker{deps: deps, def: def, id: lease.ID, epoch: lease.Epoch, fed: &intake{since: time.Now()}}}
}

func (a *projectionActor) Start(ctx actor.Context) {
	a.worker.deps.Registry.began(a.worker.id, a.m.Lease.Epoch, a.m.Lease.Partitions)
	a.m.LeaseDeadline = a.worker.deps.leaseDeadline()
	a.step(ctx, a.first)
}

func (a *projectionActor) Stop(ctx actor.Context) {
	ctx.Request(a.feed, &messages.Unsubscribe{})
	a.worker.cutShort(errStopped)
	a.worker.stop()
	a.worker.deps.shared.ahead.close(&a.worker.fed.held)
	stopTimer(a.timer)
	a.worker.deps.Registry.withdraw(a.worker.id)
}

func (a *projectionActor) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.TailAdvanced:
		a.take(ctx, machine.TailAdvanced{Tail: a.worker.tail(msg)})
	case *messages.TailFailed:
		a.take(ctx, machine.TailFailed{Err: msg.Err})
	case *messages.TailDropped:
		a.take(ctx, machine.TailDropped{})
	case *messages.Revalidate:
		a.take(ctx, machine.Revalidate{Lease: msg.Lease})
	case *messages.Unanswered:
		a.take(ctx, machine.Unanswered{})
	case *messages.ServerAnswers:
		a.take(ctx, machine.ServerAnswers{Lease: msg.Lease, Waited: msg.Waited, Jitter: rand.Float64()})
	case *messages.Resumed:
		a.take(ctx, machine.Resumed{})
	case *messages.CommandPending:
		a.take(ctx, machine.CommandPending{})
	case *messages.Drain:
		a.take(ctx, machine.Drain{})
	case *messages.LeaseRead:
		if msg.Err != nil {
			a.onDone(ctx, msg.Op, machine.Faulted{Fault: a.worker.fault(msg.Err)})
		} else {
			a.onDone(ctx, msg.Op, machine.Loaded{Lease: msg.Lease})
		}
	case *messages.Advanced:
		a.onDone(ctx, msg.Op, machine.Advanced{Moved: msg.Moved})
	}
}

// onDone gives the machine the result of a job.
func (a *projectionActor) onDone(ctx actor.Context, op int, result machine.Result) {
	a.take(ctx, machine.Done{Op: op, Result: result, Jitter: rand.Float64()})
}

// take gives the machine an input, and before it the lease deadline if that has changed.
func (a *projectionActor) take(ctx actor.Context, in machine.Input) {
	if at := a.worker.deps.leaseDeadline(); !at.Equal(a.m.LeaseDeadline) {
		a.step(ctx, machine.LeaseDeadline{At: at})
	}
	a.step(ctx, in)
}

// step gives the machine an input and carries out its effects. A job begins last, since it changes the published entry.
func (a *projectionActor) step(ctx actor.Context, in machine.Input) {
	_, worked := a.m.State.(machine.Working)
	breaker := a.m.Sent.Status.Breaker
	effects := a.m.Step(in, time.Now())
	_, works := a.m.State.(machine.Working)
	var status machine.Effect
	var start machine.Start
	for _, effect := range effects {
		switch e := effect.(type) {
		case machine.Publish:
			status = effect
		case machine.Start:
			start = e
		default:
			a.carryOut(ctx, effect)
		}
	}
	a.publish(status, worked && !works, start.Job)
	if start.Job != nil {
		a.start(ctx, start)
	}
	a.published(breaker, a.m.Sent.Status)
	a.forgetError()
	a.worker.fed.taken.Store(a.m.Taken())
	if !works && a.worker.running == nil && len(a.m.Buffer.Events) == 0 {
		a.worker.forget()
	}
}

// forgetError lets go of the user's error for which the projection waits, since it may refer to memory of any size. The
// errors of projections that failed are kept for callers, and those that opened breakers for observers: the last ones
// of the node.
func (a *projectionActor) forgetError() {
	phase, err := a.m.Decided()
	switch {
	case err == nil:
	case phase == machine.Failed, a.m.Sent.Status.Breaker == projection.BreakerOpen:
		a.worker.deps.shared.failed.Add(err)
	default:
		usererror.Forget(err)
	}
}

// publish publishes the status, unless it is nil, that a job has ended, and that the next job begins, unless it is nil.
func (a *projectionActor) publish(status machine.Effect, ended bool, next machine.Job) {
	if status == nil && !ended && next == nil {
		return
	}
	a.worker.deps.Registry.publish(a.worker.id, func(e *ProjectionEntry) {
		if status, changed := status.(machine.Publish); changed {
			e.Status = status.Status
			e.Applied += int64(status.Applied)
		}
		switch {
		case next != nil && asksNode(next):
			e.Busy, e.Limit, e.Queued = time.Now(), 2*a.worker.deps.Timing.QueryTimeout, false
		case next != nil, ended:
			e.Busy, e.Queued = time.Time{}, next != nil
		}
	})
}

// asksNode reports whether the node does a job, for many projections by one statement.
func asksNode(job machine.Job) bool {
	switch job.(type) {
	case machine.Load, machine.Advance:
		return true
	}
	return false
}

func (a *projectionActor) carryOut(ctx actor.Context, e machine.Effect) {
	switch e := e.(type) {
	case machine.Yield:
		a.worker.yield()
	case machine.CutShort:
		a.worker.cutShort(errRevalidated)
	case machine.Cancel:
		a.worker.stop()
	case machine.Arm:
		a.arm(ctx, e.At)
	case machine.Subscribe:
		if e.Recheck != 0 {
			ctx.Send(a.feed, &messages.Recheck{Incarnation: e.Recheck})
		}
		ctx.Request(a.feed, &messages.Subscribe{Taken: &a.worker.fed.taken})
	case machine.AskGate:
		ctx.Request(ctx.Parent(), &messages.AskGate{Fault: e.Fault})
	case machine.Drained:
		a.worker.deps.Registry.drained(a.worker.id)
		ctx.Request(ctx.Parent(), &messages.Drained{Advance: e.Advance})
	case machine.LeaseLost:
		ctx.Request(ctx.Parent(), &messages.LeaseLost{Key: a.m.Lease.Key()})
	case machine.Log:
		a.report(e.Event)
		a.worker.log(e.Level, e.Message, e.Fields...)
	}
}

// start begins a job.
func (a *projectionActor) start(ctx actor.Context, s machine.Start) {
	switch job := s.Job.(type) {
	case machine.Load:
		ctx.Request(ctx.Parent(), &messages.LeaseRequest{Lease: a.m.Lease, Op: s.Op})
	case machine.Advance:
		ctx.Request(ctx.Parent(), &messages.AdvanceRequest{Advance: engine.Advance{Lease: a.m.Lease, To: job.To},
			Op: s.Op})
	default:
		a.worker.run(ctx, a.worker.task(s.Job, a.m.Lease),
			func(ctx actor.Context, result machine.Result) { a.onDone(ctx, s.Op, result) })
	}
}

// arm sets the timer.
func (a *projectionActor) arm(ctx actor.Context, at time.Time) {
	stopTimer(a.timer)
	a.timer = nil
	if !at.IsZero() {
		a.timer = a.worker.deps.After(ctx, time.Until(at), func(ctx actor.Context) { a.take(ctx, machine.Tick{}) })
	}
}
