package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// decideTime bounds a call of a projection's FailureHandler. What it decides about waits meanwhile, and so do the events behind.
const decideTime = 5 * time.Second

// judged is what FailureHandler said about a failure; answer is nil where it said nothing of use.
type judged struct {
	pid     *actor.PID
	failure *projection.Failure
	answer  *projection.Action
}

// judge finds out what becomes of an event that its handler could not handle. What is a user's own decision is asked for
// outside of the actors' turn.
func (b *boss) judge(ctx actor.Context, pid *actor.PID, failure *projection.Failure) {
	def := b.env.Definitions[failure.Projection.Name]
	if _, asks := projection.RequestedAction(failure.Err); asks || def.FailureHandler == nil {
		b.pass(ctx, &judged{pid: pid, failure: failure})
		return
	}
	log := b.env.Log.With(b.children[pid.Id].who()...).With(zap.Int64("position", failure.Event.Position), zap.Int("attempt", failure.Attempt))
	b.env.Run(ctx.Self(), decideTime+time.Second, func(ctx context.Context) any {
		answer, err := consult(ctx, decideTime, def.FailureHandler, *failure)
		if err != nil && ctx.Err() == nil {
			log.Error("FailureHandler gave no answer; the retries and OnFailure decide", zap.Error(err))
		}
		if err != nil {
			return &judged{pid: pid, failure: failure}
		}
		return &judged{pid: pid, failure: failure, answer: &answer}
	})
}

// pass passes a verdict on. It finds nobody where the actor ended meanwhile: the next one tries the event again.
func (b *boss) pass(ctx actor.Context, j *judged) {
	f := j.failure
	policy := b.env.Definitions[f.Projection.Name].Policy
	switch action := policy.Decide(*f, final(f.Err), j.answer); action {
	case projection.ActionRetry:
		if c := b.children[j.pid.Id]; c != nil {
			b.resumeIn(c, retryDelay(policy.Retry, f.Attempt))
		}
	default:
		ctx.Send(j.pid, &messages.Verdict{Position: f.Event.Position, Attempt: f.Attempt, Action: action})
	}
}

// final tells that an event must not be tried again: its handler declared the error to be permanent, or processes die of
// it.
func final(err error) bool {
	return engine.IsPermanent(err) || errors.Is(err, projection.ErrProcessDied)
}

// consult calls decide, for no longer than limit: what has not come back then is left to itself. A panic is an error, and
// so is an answer that is no action.
func consult(ctx context.Context, limit time.Duration, decide func(context.Context, projection.Failure) projection.Action, f projection.Failure) (projection.Action, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type said struct {
		action projection.Action
		err    error
	}
	done := make(chan said, 1)
	go func() {
		s := said{err: errors.New("it ended its goroutine")}
		defer func() {
			if r := recover(); r != nil {
				s.err = fmt.Errorf("it panicked: %v\n%s", r, debug.Stack())
			}
			done <- s
		}()
		s = said{action: decide(ctx, f)}
	}()
	select {
	case s := <-done:
		if s.err == nil && !s.action.Known() {
			s.err = fmt.Errorf("it answered with %v", s.action)
		}
		return s.action, s.err
	case <-ctx.Done():
		return 0, fmt.Errorf("it did not answer within %v: %w", limit, context.Cause(ctx))
	}
}
