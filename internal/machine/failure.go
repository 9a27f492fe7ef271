package machine

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/policy"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// onBatchFailed decides what to do about a batch that failed.
func (s *step) onBatchFailed(batch engine.Batch, f *faults.Fault, outage bool) {
	switch {
	case f.Class == faults.LeaseLost, len(batch.Events) == 0 && !f.Blocked: // no handler was called without events
		s.fault(f)
		return
	case outage:
		s.outage(batch, f)
		return
	case f.Conflict:
		s.conflict(batch, f)
		return
	case f.Class == faults.Handler && batch.Events[0].Unreadable == nil:
		s.onAnswer()
	}
	if f.Unreachable || f.Class == faults.Unclear {
		s.Crash.CutOff, s.Crash.Events = s.Lease.Incarnation, max(s.Crash.Events, int32(len(batch.Events)))
	}
	at := BatchFault{
		Class: f.Class, Position: batch.Events[0].Position, Alone: batch.Alone(), Unreachable: f.Unreachable,
		Now: s.now,
	}
	switch decision := s.Faults.History.Decide(s.Def.Faults, at); decision {
	case NarrowIt, TryAgain:
		if decision == NarrowIt {
			s.Sizer.Failed(batch.Events, f.Position)
		}
		s.State = Idle{}
		if f.Class == faults.Interrupted {
			s.State = Reconnecting{}
		}
		s.out.log(zap.DebugLevel, "batch failed, nothing counted", zap.String("decision", string(decision)),
			zap.Stringer("class", f.Class),
			zap.Int("events", len(batch.Events)), zap.Int64("position", f.Position), zap.Error(f.Err))
	case CountIt:
		s.Faults.Object = ""
		s.Sizer.Failed(batch.Events, f.Position)
		e := batch.Events[0]
		failure := policy.Count(s.Lease.ID, e, s.Lease.AttemptsAt(e.Position), f.Err, f.Stack)
		s.out.report(observe.Failure{Projection: s.Lease.ID, Position: e.Position, Stream: e.Stream, Type: e.Type,
			Attempt: failure.Attempt,
			Fault:   observe.Fault(f.Class), Err: f.Err}, zap.WarnLevel, "event failed",
			append(eventFields(e, failure.Attempt), zap.Stringer("class", f.Class), zap.Error(f.Err))...)
		s.startIfAllowed(Record{Failure: failure, Retry: backoff.Delay(s.Def.Retry, failure.Attempt, s.jitter)})
	default:
		if f.Class == faults.MissingObject {
			s.waitForObject(batch.Events[0], f)
			return
		}
		s.fault(f)
	}
}

// conflict narrows a batch that was rolled back because of other transactions, unless its handler was not called. It
// waits for a random time, so that two projections do not meet again at once. Nothing is counted.
func (s *step) conflict(batch engine.Batch, f *faults.Fault) {
	s.Faults.InARow++
	if !f.Blocked {
		s.Sizer.Conflicted(len(batch.Events))
	}
	s.Faults.Conflicts = s.Faults.Conflicts.Met(f.Rivals, s.now)
	s.out.logRetry(f, s.Faults.InARow, zap.NamedError("apart", s.Faults.Conflicts.Reason()))
	s.State = EventWait{
		Reason: f,
		Until:  s.now.Add(time.Duration(s.jitter * float64(backoff.Delay(conflictPolicy(), s.Faults.InARow, 0)))),
	}
}

// conflictPolicy is the policy of the longest delays after conflicts. The first is short: the other transaction goes on
// meanwhile.
func conflictPolicy() projection.RetryPolicy {
	return projection.RetryPolicy{Base: 20 * time.Millisecond, Cap: time.Second, Factor: 2}
}

// onRecorded records that a counted failure is in the database.
func (s *step) onRecorded(job Record, first time.Time) {
	f := job.Failure
	f.FirstFailedAt = first
	s.Lease.FailingPosition, s.Lease.Attempts = f.Event.Position, f.Attempt
	s.Lease.FailingSince = first
	s.Crash.Begun, s.Lease.CrashAttempts = engine.Begun{}, 0
	s.askOrDecide(Failing{Failure: f, Retry: job.Retry})
}

// onCrashes handles an event at which processes ended. It is not tried again. Its attempts were counted in advance.
func (s *step) onCrashes(e event.Envelope) {
	s.out.log(zap.WarnLevel, "event crashed processes, not retried", eventFields(e, s.Lease.CrashAttempts)...)
	s.askOrDecide(Failing{Retry: backoff.Delay(s.Def.Retry, s.Lease.CrashAttempts, s.jitter),
		Failure: projection.Failure{Projection: s.Lease.ID, Event: e, Attempt: s.Lease.CrashAttempts,
			Err:           projection.ErrProcessDied,
			FirstFailedAt: s.Lease.FailingSince}})
}

// askOrDecide decides what becomes of a counted failure, or asks the user's FailureHandler first.
func (s *step) askOrDecide(failing Failing) {
	s.State = failing
	if _, asks := projection.RequestedAction(failing.Failure.Err); s.Def.FailureHandler != nil && !asks {
		s.startIfAllowed(Ask(failing))
		return
	}
	s.decide(failing, nil)
}

// decide decides about a failure and begins the job that follows.
func (s *step) decide(failing Failing, answer *projection.Action) {
	s.State = failing
	f := failing.Failure
	c := policy.Circumstances{Policy: &s.Def.Policy, FailureWindow: s.FailureWindow, Parked: s.Lease.ParkedFailures(),
		Answer: answer}
	switch d := c.Decide(f); d.Action {
	case projection.ActionRetry:
		if f.Event.Unreadable != nil { // it is read again
			s.forget()
		}
		f.Event = event.Envelope{Position: f.Event.Position} // the next attempt has the event, too
		s.State = RetryWait{Failure: f, Until: s.now.Add(failing.Retry)}
	case projection.ActionStop:
		s.startIfAllowed(Halt{Reason: d.Halt, Event: &f.Event})
	default:
		s.startIfAllowed(Move{Failure: f, Action: d.Action})
	}
}

// onMoved records that the checkpoint moved over an event that failed.
func (s *step) onMoved(job Move) {
	e := job.Failure.Event
	fields := append(eventFields(e, job.Failure.Attempt), zap.Error(job.Failure.Err))
	decision := s.decision(e, job.Failure.Attempt, job.Action, job.Failure.Err)
	if job.Action == projection.ActionSkip {
		s.out.report(decision, zap.WarnLevel, "event skipped", fields...)
	} else {
		stream := job.Action == projection.ActionParkStream
		s.Replays.plan(s.now, s.Def.Replay.Interval)
		s.Lease.Parked++
		if stream {
			s.parkedStream(e.Stream)
		}
		s.out.report(decision, zap.ErrorLevel, "event parked", append(fields, zap.Bool("blocking", stream))...)
	}
	s.progress(e.Position)
	s.Lease.CrashAttempts = 0
	s.FailureWindow.Failed()
	s.Sizer.Succeeded()
	s.Faults.History.Forget()
	if s.Crash.Quarantine > 0 {
		s.Sizer.Alone()
	}
	s.State = Idle{}
}

// onHalted records that the halt is in the database, where the next owner finds it.
func (s *step) onHalted(job Halt) {
	if e := job.Event; e != nil {
		attempts := s.Lease.AttemptsAt(e.Position)
		s.out.report(s.decision(*e, attempts, projection.ActionStop, job.Reason), zap.ErrorLevel,
			"projection stopped at an event until it is resumed",
			append(eventFields(*e, attempts), zap.Error(job.Reason))...)
	} else {
		if s.Tail != nil && s.Tail.Err != nil {
			s.Tail = nil // the feed reports when that changes
		}
		s.out.report(observe.Decision{Projection: s.Lease.ID, Action: projection.ActionStop, Err: job.Reason},
			zap.ErrorLevel, "projection stopped until it is resumed, events of its tenant are gone",
			zap.Error(job.Reason))
	}
	s.halt(job.Reason, s.now)
}

// eventFields identify an event that failed in the log.
func eventFields(e event.Envelope, attempt int) []zap.Field {
	return []zap.Field{zap.String("stream", e.Stream), zap.String("type", e.Type), zap.Int64("position", e.Position),
		zap.Int("attempt", attempt)}
}

// waitForObject waits for an object or a privilege that the handler needs. The first time, it also writes the reason
// into the database, for other nodes. The wait begins after the write, since a late write would undo the count of a
// later failure.
func (s *step) waitForObject(e event.Envelope, f *faults.Fault) {
	waiting := *f
	waiting.Err = fmt.Errorf("%w: %w", projection.ErrMissingObject, f.Err)
	why := fmt.Sprint(e.Position, waiting.Err)
	if s.Faults.Object == why {
		s.fault(&waiting)
		return
	}
	s.Faults.Object = why
	s.out.log(zap.ErrorLevel, "projection waits for a missing object or privilege", zap.Int64("position", e.Position),
		zap.Duration("limit", s.Def.Faults.MissingObject), zap.Error(f.Err))
	s.State = EventWait{Reason: &waiting}
	s.startIfAllowed(Note{Failure: s.failure(e, waiting.Err), Fault: &waiting})
}

// onNoted begins the wait whose reason was written. If that failed, only other nodes lack the reason.
func (s *step) onNoted(job Note, failed *faults.Fault) {
	switch {
	case failed == nil:
		s.Crash.Begun, s.Lease.CrashAttempts = engine.Begun{}, 0
	case failed.Class == faults.LeaseLost:
		s.fault(failed)
		return
	default:
		s.out.log(zap.DebugLevel, "writing the reason of a wait failed", zap.Error(failed))
	}
	if job.Fault != nil {
		s.fault(job.Fault)
		return
	}
	s.State = OutageWait{Reason: job.Failure.Err, Until: s.now.Add(job.Retry)}
}

// outage records that a batch failed because a service that its handler depends on is down. Nothing is counted against
// an event.
func (s *step) outage(batch engine.Batch, f *faults.Fault) {
	reason := s.countOutage(f)
	if s.Breaker.State() == projection.BreakerOpen {
		s.State = OutageWait{Reason: reason}
		s.startIfAllowed(Note{Failure: s.failure(batch.Events[0], reason), Retry: s.outageDelay(s.jitter)})
		return
	}
	s.State = OutageWait{Reason: reason, Until: s.now.Add(s.outageDelay(s.jitter))}
}

// countOutage counts a failure of the service that the handler depends on, and returns why the projection waits now.
func (s *step) countOutage(f *faults.Fault) error {
	next, opened := s.Breaker.Failed(s.now)
	s.Breaker = next
	cause := f.Err
	if at, ok := cause.(*projection.EventError); ok {
		cause = at.Err // the event is not to blame
	}
	if s.Breaker.State() != projection.BreakerOpen {
		s.out.log(zap.DebugLevel, "dependency of the handler failed", zap.Int("failures", s.Breaker.inARow),
			zap.Error(cause))
		return fmt.Errorf("the service that the handler depends on failed %d times in a row: %w", s.Breaker.inARow,
			cause)
	}
	until := s.Breaker.until.UTC().Format(time.RFC3339)
	reason := fmt.Errorf("circuit breaker open until %s: %s; the last was %w", until, s.Breaker.Why(), cause)
	if opened {
		s.out.log(zap.ErrorLevel, "circuit breaker opened", zap.Int64("position", s.Position), zap.Error(reason))
	} else {
		s.out.log(zap.DebugLevel, "circuit breaker opened again", zap.Error(reason))
	}
	return reason
}

// onAnswer records that the service that the handler depends on has answered.
func (s *step) onAnswer() {
	before := s.Breaker
	s.Breaker = before.Answered()
	if s.Breaker.State() != before.State() {
		s.out.log(zap.InfoLevel, "circuit breaker closed", zap.Duration("after", s.now.Sub(before.opened)))
	}
}

// outageDelay returns how long to wait for the next attempt, or for the next probe of an open breaker.
func (m *Machine) outageDelay(jitter float64) time.Duration {
	if m.Breaker.State() == projection.BreakerOpen {
		// The projections of many tenants, whose breakers opened together, do not all call the service at once when it
		// returns.
		openFor := m.Def.Breaker.OpenFor
		return openFor + time.Duration(jitter*float64(openFor/5))
	}
	return backoff.Delay(m.Def.Retry, m.Breaker.inARow, jitter)
}

// decision is what an observer gets about an event that failed.
func (m *Machine) decision(e event.Envelope, attempts int, action projection.Action, err error) observe.Decision {
	d := observe.Decision{
		Projection: m.Lease.ID, Action: action, Position: e.Position, Stream: e.Stream, Type: e.Type,
		Attempts: attempts, Err: err,
	}
	if action != projection.ActionStop {
		d.Events = 1
	}
	return d
}

// failure returns the failure by which the reason of a wait at an event is written. No attempt is counted.
func (m *Machine) failure(e event.Envelope, reason error) projection.Failure {
	return projection.Failure{Projection: m.Lease.ID, Event: e, Attempt: m.Lease.AttemptsAt(e.Position), Err: reason}
}
