package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// finding describes a batch that failed, before its actor decides what to do.
type finding struct {
	// fault is nil where nothing failed. Its Unreachable is the answer of a probe, if one was needed.
	fault *engine.Fault
	// outage reports that the batch failed because of what its handler depends on.
	outage bool
}

// examine classifies an error of a batch, a delivery or a replay, and probes the server if needed. It may take long, so it is
// called outside of the actor's turn.
func (p *projector) examine(ctx context.Context, err error) finding {
	var partial *engine.PartialResult
	if err == nil || errors.As(err, &partial) && partial.Err == nil {
		return finding{}
	}
	fault := *p.env.Store.Classify(err)
	if fault.Class == engine.Unclear {
		failed := p.env.Probe(ctx)
		if ctx.Err() != nil {
			fault.Class = engine.Infrastructure // there was no answer
		} else {
			fault.Unreachable, fault.Probe = failed != nil, false
		}
	}
	// While our own server is away, nothing is known of what the handler depends on.
	return finding{fault: &fault, outage: !fault.Unreachable && p.outage(err)}
}

// failed decides what to do about a batch that failed.
func (p *projector) failed(ctx actor.Context, batch engine.Batch, found finding) {
	fault := found.fault
	p.fresh = false
	switch {
	case fault.Class == engine.LeaseLost:
		// Or an earlier batch of this node, whose result was not awaited, moved the checkpoint. The lease's row shows which.
		p.log.Info("batch refused by the fence", zap.Error(fault.Err))
		p.recheck = true
		return
	case found.outage && len(batch.Events) > 0:
		p.unanswered(ctx, batch, fault)
		return
	case fault.Class == engine.HandlerFault:
		p.answered()
	}
	p.cutOff = p.cutOff || (fault.Unreachable || fault.Class == engine.Unclear) && len(batch.Events) > 0
	at := machine.BatchFault{Class: fault.Class, Alone: batch.Alone(), Unreachable: fault.Unreachable, Now: time.Now()}
	if len(batch.Events) > 0 {
		at.Position = batch.Events[0].Position
	} else {
		at.Class = engine.Infrastructure // no handler was called
	}
	switch decision := p.faults.Decide(p.def.Faults, at); decision {
	case machine.NarrowIt, machine.TryAgain:
		p.fresh = fault.Class == engine.Interrupted
		if decision == machine.NarrowIt {
			p.sizing.Failed(batch.Events, fault.Position)
		}
		p.log.Debug("batch failed; nothing is counted", zap.Stringer("then", decision), zap.Stringer("class", fault.Class),
			zap.Int("events", len(batch.Events)), zap.Int64("failing", fault.Position), zap.Error(fault.Err))
		p.publish()
	case machine.CountIt:
		p.missing = ""
		p.sizing.Failed(batch.Events, fault.Position)
		p.log.Warn("event failed", zap.Int64("position", at.Position), zap.Stringer("class", fault.Class), zap.Error(fault.Err))
		p.count(ctx, batch.Events[0], fault)
	default:
		if at.Class == engine.MissingObject {
			p.waitForObject(ctx, batch, fault)
			return
		}
		p.fault(ctx, fault)
	}
}

// waitForObject waits for an object that the handler needs, and writes the reason into the database for all nodes.
func (p *projector) waitForObject(ctx actor.Context, batch engine.Batch, fault *engine.Fault) {
	waiting := *fault
	waiting.Err = fmt.Errorf("%w: %w", projection.ErrMissingObject, fault.Err)
	e, why := batch.Events[0], fmt.Sprint(batch.Events[0].Position, waiting.Err)
	if p.state == Paused || p.missing == why {
		p.fault(ctx, &waiting)
		return
	}
	p.missing, p.failing, p.away = why, nil, false
	p.log.Error("handler needs an object or a privilege that is missing; the projection waits for it", zap.Int64("position", e.Position),
		zap.Duration("at most", p.def.Faults.MissingObject), zap.Error(fault.Err))
	p.become(Waiting, waiting.Err)
	p.tell(ctx, e, waiting.Err, func(ctx actor.Context) {
		p.faulted = true
		ctx.Request(ctx.Parent(), &messages.Faulted{Fault: &waiting})
	})
}
