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

// outage tells whether a batch failed because of what its handler depends on, and of no event. It asks the user, who may
// take his time or panic, and so is called outside of the actor's turn.
func (p *projector) outage(err error) (outage bool) {
	counts := p.def.Breaker.IsOutage
	var partial *engine.PartialResult
	switch {
	case counts == nil, err == nil, errors.As(err, &partial) && partial.Err == nil:
		return false
	case errors.Is(err, projection.ErrProcessDied), errors.Is(err, projection.ErrEventGone):
		return false // no handler was asked
	}
	fault := p.env.Store.Classify(err)
	if fault.Class != engine.HandlerFault && !fault.Returned {
		return false // its own transaction failed
	}
	if _, asks := projection.RequestedAction(fault.Err); asks || engine.IsPermanent(fault.Err) {
		return false
	}
	defer func() {
		if r := recover(); r != nil {
			outage = false
			p.log.Error("Breaker.IsOutage panicked; the failure is taken for the event's", zap.Any("panic", r), zap.Stack("stack"), zap.Error(fault.Err))
		}
	}()
	return counts(fault.Err)
}

// probe makes the batch that is about to begin one of one event where the breaker is not closed.
func (p *projector) probe() {
	if p.breaker.Probe() {
		p.sizing.Alone()
		p.publish()
	}
}

// answered takes in that what the handler depends on cannot be down.
func (p *projector) answered() {
	opened := p.breaker.Opened()
	if p.breaker.Answered() {
		p.log.Info("circuit breaker closed", zap.Duration("after", time.Since(opened)))
		p.publish()
	}
}

// unanswered takes in that a batch failed because of what its handler depends on. No event is to blame, so none is looked
// for and nothing is counted.
func (p *projector) unanswered(ctx actor.Context, batch engine.Batch, fault *engine.Fault) {
	reason := p.outside(fault)
	if p.state == Paused {
		p.publish()
		return
	}
	p.become(Waiting, reason)
	if p.breaker.State() == projection.BreakerOpen {
		p.tell(ctx, batch.Events[0], reason, func(ctx actor.Context) { p.await(ctx, fault) })
	} else {
		p.await(ctx, fault)
	}
}

// outside counts a failure of what the handler depends on, and returns why the projection waits now.
func (p *projector) outside(fault *engine.Fault) error {
	opened := p.breaker.Failed(time.Now())
	cause := fault.Err
	if at, ok := cause.(*projection.EventError); ok {
		cause = at.Err // the event has nothing to do with it
	}
	if p.breaker.State() != projection.BreakerOpen {
		p.log.Debug("what the handler depends on failed", zap.Int("failures", p.breaker.InARow()), zap.Error(cause))
		return fmt.Errorf("what the handler depends on failed, %d times in a row: %w", p.breaker.InARow(), cause)
	}
	reason := fmt.Errorf("circuit breaker open until %s: %s; the last was %w", p.breaker.Until().UTC().Format(time.RFC3339), p.breaker.Why(), cause)
	if opened {
		p.log.Error("circuit breaker opened; the projection waits for what its handler depends on", zap.Int64("position", p.position), zap.Error(reason))
	} else {
		p.log.Debug("circuit breaker opened again by its probe", zap.Error(reason))
	}
	return reason
}

// tell writes why the projection waits at an event into the database, for other nodes, without counting an attempt. If the
// write fails, the projection waits all the same. The wait begins after the write, by await, since a late write would undo
// the count of a later failure.
func (p *projector) tell(ctx actor.Context, e event.Envelope, reason error, await func(ctx actor.Context)) {
	lease := p.lease
	failure := projection.Failure{Projection: lease.ID, Event: e, Attempt: lease.AttemptsAt(e.Position), Err: reason}
	p.do(ctx, p.env.Timing.QueryTimeout, p.env.Limiter.read, func(ctx context.Context) func(actor.Context) {
		_, err := p.env.Store.RecordFailure(ctx, lease, failure)
		return func(ctx actor.Context) {
			switch {
			case err == nil:
				p.begun, p.lease.CrashAttempts = engine.Begun{}, 0
			case p.env.Store.Classify(err).Class == engine.LeaseLost:
				p.fault(ctx, err)
				return
			default:
				p.log.Debug("writing why the projection waits failed", zap.Error(err))
			}
			if p.state == Waiting { // else somebody has ended the wait already
				await(ctx)
			}
		}
	})
}

// await asks the supervisor when to try again.
func (p *projector) await(ctx actor.Context, fault *engine.Fault) {
	ctx.Request(ctx.Parent(), &messages.Faulted{Fault: fault, Outage: &messages.Outage{
		InARow: p.breaker.InARow(), Open: p.breaker.State() == projection.BreakerOpen,
	}})
}
