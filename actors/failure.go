package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// count counts an event's failure in the database, outside of the batch that was rolled back, and asks the supervisor
// what is to become of the event.
func (p *projector) count(ctx actor.Context, e event.Envelope, fault *engine.Fault) {
	attempt := p.lease.AttemptsAt(e.Position) + 1
	cause := fault.Err
	if at, ok := cause.(*projection.EventError); ok {
		cause = at.Err // the position is told below
	}
	failure := projection.Failure{Projection: p.lease.ID, Event: e, Attempt: attempt, Err: cause, Stack: fault.Stack}
	lease := p.lease
	// Also at the end of the runtime, when no batch may begin any more: what has failed has failed.
	slot := func(context.Context) (func(), error) { return p.env.Limiter.read(p.env.life) }
	p.do(ctx, p.env.Timing.QueryTimeout, slot, func(ctx context.Context) func(actor.Context) {
		first, recorded := p.env.Store.RecordFailure(ctx, lease, failure)
		return func(ctx actor.Context) {
			if recorded != nil {
				p.fault(ctx, recorded)
				return
			}
			p.lease.FailingPosition, p.lease.Attempts, p.lease.LastError, p.lease.FailingSince = e.Position, attempt, cause.Error(), first
			p.begun, p.lease.CrashAttempts = engine.Begun{}, 0
			failure.FirstFailedAt = first
			p.ask(ctx, failure, fault)
		}
	})
}

// ask asks the supervisor what is to become of an event that failed.
func (p *projector) ask(ctx actor.Context, failure projection.Failure, fault *engine.Fault) {
	if p.state == Paused {
		return
	}
	p.failing = &failure
	p.become(Waiting, asError(&failure))
	ctx.Request(ctx.Parent(), &messages.Faulted{Fault: fault, Failure: &failure})
}

// asError is how a failure is reported.
func asError(f *projection.Failure) *projection.HandlerError {
	return &projection.HandlerError{Projection: f.Projection, Position: f.Event.Position, Attempt: f.Attempt, Stack: f.Stack, Err: f.Err}
}

// died asks what is to become of an event of which the processes died that tried it. It is not tried once more.
func (p *projector) died(ctx actor.Context, e event.Envelope) {
	cause := projection.ErrProcessDied
	p.log.Warn("processes ended at an event", zap.Int64("position", e.Position), zap.Int("deaths", p.lease.CrashAttempts))
	failure := projection.Failure{Projection: p.lease.ID, Event: e, Attempt: p.lease.CrashAttempts, Err: cause, FirstFailedAt: p.lease.FailingSince}
	p.ask(ctx, failure, &engine.Fault{Class: engine.HandlerFault, Position: e.Position, Err: cause})
}

// judged carries out what is to become of the failing event. A word about one that failed again since comes too late.
func (p *projector) judged(ctx actor.Context, msg *messages.Verdict) {
	p.verdict = nil
	f := p.failing
	if f == nil || f.Event.Position != msg.Position || f.Attempt != msg.Attempt || p.state != Waiting {
		return
	}
	p.failing = nil
	if msg.Action == projection.ActionStop {
		p.halt(ctx, f.Event, asError(f))
		return
	}
	if failed, of, tooMany := p.recent.TooMany(p.def.MaxFailureShare); tooMany {
		p.halt(ctx, f.Event, fmt.Errorf("%d of the last %d events failed: that is no single bad event; the last was %w", failed, of, asError(f)))
		return
	}
	if msg.Action == projection.ActionSkip {
		p.leave(ctx, f, func(ctx context.Context, lease engine.Lease) error {
			return p.env.Store.Skip(ctx, lease, f.Event.Position)
		}, func(fields ...zap.Field) { p.log.Warn("event skipped", fields...) })
		return
	}
	if p.def.Room(p.lease.Parked) == 0 {
		p.full(ctx, f.Event)
		return
	}
	stream := msg.Action == projection.ActionParkStream
	letter := projection.DeadLetter{
		Position: f.Event.Position, Stream: f.Event.Stream, Version: f.Event.Version, Type: f.Event.Type,
		Error: f.Err.Error(), Stack: f.Stack, Attempts: f.Attempt,
	}
	p.leave(ctx, f, func(ctx context.Context, lease engine.Lease) error {
		return p.env.Store.Park(ctx, lease, letter, stream)
	}, func(fields ...zap.Field) {
		p.replayIn(ctx, p.def.Replay.Interval)
		p.lease.Parked, p.lease.ParkedStreams = p.lease.Parked+1, p.lease.ParkedStreams || stream
		p.log.Error("event parked", append(fields, zap.Bool("with its stream", stream))...)
	})
}

// leave goes on behind a failing event: write moves the checkpoint over it, tell says so.
func (p *projector) leave(ctx actor.Context, f *projection.Failure, write func(context.Context, engine.Lease) error, tell func(...zap.Field)) {
	e, lease := f.Event, p.lease
	slot := p.batchSlot()
	if p.def.Leased {
		slot = p.env.Limiter.Ack // nothing is delivered
	}
	p.do(ctx, p.env.Timing.QueryTimeout+p.env.Timing.QueryTimeout, slot, func(ctx context.Context) func(actor.Context) {
		err := write(ctx, lease)
		return func(ctx actor.Context) {
			if err != nil {
				p.fault(ctx, err)
				return
			}
			tell(zap.Int64("position", e.Position), zap.String("stream", e.Stream), zap.String("type", e.Type),
				zap.Int("attempt", f.Attempt), zap.Error(f.Err))
			p.lease.Checkpoint, p.position = e.Position, e.Position
			p.ahead.passed(p.position)
			p.lease.FailingPosition, p.lease.Attempts, p.lease.CrashCount, p.lease.CrashAttempts = 0, 0, 0, 0
			p.recent.Failed()
			p.sizing.Succeeded()
			p.faults.Forget()
			if p.wary > 0 {
				p.sizing.Alone()
			}
			if p.state == Waiting {
				p.become(Live, nil)
			}
		}
	})
}

// full stops the projection at an event that would have to be parked, since too many are.
func (p *projector) full(ctx actor.Context, e event.Envelope) {
	p.halt(ctx, e, fmt.Errorf("%d events are parked, and no more may be (MaxParked); event at position %d would be the next", p.lease.Parked, e.Position))
}

// halt stops the projection at an event until somebody resumes it, whoever owns it then. The database knows it first: else
// the next owner would not.
func (p *projector) halt(ctx actor.Context, e event.Envelope, reason error) {
	p.haltFor(ctx, reason, "projection stopped at an event; it waits to be resumed", zap.Int64("position", e.Position),
		zap.String("stream", e.Stream), zap.String("type", e.Type))
}

// haltFor stops the projection until it is resumed, and logs message then.
func (p *projector) haltFor(ctx actor.Context, reason error, message string, fields ...zap.Field) {
	lease := p.lease
	p.do(ctx, p.env.Timing.QueryTimeout, p.env.Limiter.read, func(ctx context.Context) func(actor.Context) {
		err := p.env.Store.Halt(ctx, lease, reason.Error())
		return func(ctx actor.Context) {
			if err != nil {
				p.fault(ctx, err)
				return
			}
			p.log.Error(message, append(fields, zap.Error(reason))...)
			p.gone = nil
			p.waitForResume(reason)
		}
	})
}

// stopped is called when a replay has halted the projection.
func (p *projector) stopped(reason error, fields []zap.Field) {
	p.log.Error("projection stopped by a replay; it waits to be resumed", append(fields, zap.Error(reason))...)
	p.waitForResume(reason)
}

// waitForResume puts a halted projection into its waiting state.
func (p *projector) waitForResume(reason error) {
	p.lease.Halted, p.lease.Failed, p.kept = true, reason.Error(), reason.Error()
	p.recent = engine.FailureWindow{}
	if p.state != Paused {
		p.become(Failed, reason)
	}
}

// lookEvery is how often a halted projection looks whether it was resumed, should the notice of that be lost.
const lookEvery = 15 * time.Second

// halted keeps a halted projection from doing anything.
func (p *projector) halted(ctx actor.Context) {
	p.recent = engine.FailureWindow{}
	p.dropWindow()
	if p.state == Paused {
		return
	}
	if p.state != Failed {
		p.become(Failed, errors.New(p.lease.Failed))
	}
	if p.mended == nil {
		p.mended = p.env.after(lookEvery, ctx.Self(), &mendedDue{})
	}
}

// mendedDue is sent when it is to be looked whether a halted projection was resumed.
type mendedDue struct{}
