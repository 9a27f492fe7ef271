package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/policy"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// finding describes a batch that failed, for the machine.
type finding struct {
	// fault is nil if nothing failed. Its Unreachable is the answer of a probe, if one was needed.
	fault *faults.Fault
	// outage reports that the batch failed because a service that its handler depends on is down.
	outage bool
}

// partialOf returns the part of a batch that was done before err, nil if err is the result of the whole batch.
func partialOf(err error) *engine.PartialResult {
	if err == nil {
		return nil
	}
	var partial *engine.PartialResult
	errors.As(err, &partial)
	return partial
}

// examine classifies an error of a batch, a delivery or a replay, and probes the server if needed. It may take long.
func (w *worker) examine(ctx context.Context, err error) finding {
	if partial := partialOf(err); err == nil || partial != nil && partial.Err == nil {
		return finding{}
	}
	fault := *w.deps.Plane.Classify(err)
	if fault.Class == faults.Unclear {
		failed := w.deps.Probe(ctx)
		if ctx.Err() != nil {
			fault.Class = faults.Infrastructure // the probe was cancelled
		} else {
			fault.Unreachable, fault.Probe = failed != nil, false
		}
	}
	// While the server is unreachable, the error says nothing about the service that the handler depends on.
	return finding{fault: &fault, outage: !fault.Unreachable && w.outage(ctx, &fault)}
}

// outage reports whether a batch failed because a service that its handler depends on is down, and not because of an
// event. It asks the user's IsOutage.
func (w *worker) outage(ctx context.Context, fault *faults.Fault) bool {
	isOutage := w.def.Breaker.IsOutage
	if isOutage == nil {
		return false
	}
	if fault.Class != faults.Handler && !fault.Returned {
		return false // its own transaction failed
	}
	if _, asks := projection.RequestedAction(fault.Err); asks || policy.Permanent(fault.Err) {
		return false
	}
	outage, asked := usercode.Ask(ctx, askTimeout,
		func(context.Context) bool { return isOutage(usercode.Open(fault.Err)) })
	if asked != nil && ctx.Err() == nil {
		w.log(zap.ErrorLevel, "outage check gave no answer, failure attributed to the event",
			zap.NamedError("reason", asked),
			zap.String("stack", usercode.StackOf(asked)), zap.Error(fault.Err))
	}
	return outage
}

// askTimeout limits a call of a projection's FailureHandler or IsOutage. The event that it decides about, and later
// events, wait meanwhile.
const askTimeout = 5 * time.Second

// ask calls the user's FailureHandler and returns its answer.
func (w *worker) ask(ctx context.Context, f projection.Failure) machine.Result {
	f.Err = usercode.Open(f.Err)
	ctx = event.CausedBy(handler.WithProjection(ctx, f.Projection), f.Projection.Tenant, f.Event)
	action, err := usercode.Ask(ctx, askTimeout,
		func(ctx context.Context) projection.Action { return w.def.FailureHandler(ctx, f) })
	switch {
	case err != nil:
	case engine.KnownAction(action):
		return machine.Answer{Action: &action}
	default:
		err = fmt.Errorf("it returned %v", action)
	}
	if ctx.Err() == nil {
		w.log(zap.ErrorLevel, "failure handler gave no answer, default policy applies",
			zap.String("stream", f.Event.Stream),
			zap.String("type", f.Event.Type), zap.Int64("position", f.Event.Position), zap.Int("attempt", f.Attempt),
			zap.Error(err), zap.String("stack", usercode.StackOf(err)))
	}
	return machine.Answer{}
}
