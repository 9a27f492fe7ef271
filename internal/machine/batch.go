package machine

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/policy"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// onDone handles the end of a job.
func (s *step) onDone(job Job, result Result) {
	if faulted, is := result.(Faulted); is {
		s.onFaulted(job, faulted.Fault)
		return
	}
	switch job := job.(type) {
	case Load:
		s.onLoaded(job, result.(Loaded).Lease)
	case Apply:
		s.onRan(result.(RunResult))
	case Record:
		s.onRecorded(job, result.(Recorded).First)
	case Note:
		s.onNoted(job, nil)
	case Ask:
		s.decide(Failing(job), result.(Answer).Action)
	case Move:
		s.onMoved(job)
	case Halt:
		s.onHalted(job)
	case Advance:
		s.onAdvanced(job, result.(Advanced).Moved)
	case Command:
		s.onCommand(job.Replay, result.(ReplayResult))
	}
}

// onFaulted handles a job that ended with a fault.
func (s *step) onFaulted(job Job, f *faults.Fault) {
	switch job := job.(type) {
	case Load:
		if f.Class == faults.LeaseLost {
			s.out.log(zap.InfoLevel, "lease lost", zap.Error(f.Err))
			s.State = Lost{Reason: f}
			s.out.do(LeaseLost{})
			return
		}
	case WriteReason:
		s.out.log(zap.DebugLevel, "failure reason not saved", zap.String("reason", job.Reason), zap.Error(f.Err))
		return
	case Note:
		s.onNoted(job, f)
		return
	case Ask:
		s.decide(Failing(job), nil)
		return
	case Advance:
		s.order = max(s.order, Reload)
		return
	case Command:
		s.putOff(job.Replay, f)
		return
	}
	s.fault(f)
}

// batch begins the next batch. waited reports that the projection has just waited.
func (s *step) batch(waited bool) {
	if len(s.Buffer.Events) == 0 {
		var taken bool
		s.Buffer, taken = s.Buffer.fromTail(s.Def, s.Lease.Share, s.Tail)
		if taken {
			s.Tail = s.Tail.dropped()
		}
	}
	if len(s.Buffer.Events) == 0 && s.Buffer.To > s.Position {
		s.passOver()
		if s.Position >= s.Tail.Mark {
			s.idle(s.now)
			return
		}
	}
	s.Breaker = s.Breaker.Probe()
	if s.Breaker.State() == projection.BreakerHalfOpen {
		s.Sizer.Alone()
	}
	_, fresh := s.State.(Reconnecting)
	s.Replays.Turn = time.Time{}
	s.startIfAllowed(Apply{Run: BatchRun{
		Lease: s.Lease, Buffer: s.Buffer, Sizer: s.Sizer, Quarantine: int(s.Crash.Quarantine), Fresh: fresh,
		Apart: s.Faults.Conflicts.Rows(), Live: !s.behind(), Parked: s.Replays.Parked,
		def: s.Def, careful: waited || s.Faults.InARow > 0, mark: s.Tail.Mark, failures: s.FailureWindow,
	}})
}

// onRan handles the end of a batch.
func (s *step) onRan(r RunResult) {
	s.Replays.Parked = r.Parked
	s.Lease.Blocked = r.Blocked
	if r.End == RunFaulted {
		if r.Attempt.Attempt != 0 {
			s.Crash.Begun = r.Attempt // it may have been counted all the same
		}
		s.fault(r.Fault)
		return
	}
	s.State, s.Buffer = Idle{}, r.Buffer
	switch r.End {
	case RunEmpty:
		s.passOver()
	case RunFull:
		e := r.Buffer.Events[0]
		s.startIfAllowed(Halt{Reason: policy.FullOfBlocked(s.Lease.Blocked, e.Position), Event: &e})
	case RunCrashed:
		s.onCrashes(r.Batch.Events[0])
	case RunApplied:
		s.Crash.Begun = r.Attempt
		if r.Next != nil {
			if r.Fault == nil && r.Partial == nil {
				s.Buffer = s.Buffer.passed(r.Batch.To) // usually all of it, and then the page is not copied
			}
			s.Buffer = s.Buffer.add(*r.Next)
		}
		s.onBatchEnded(r)
	}
	if r.NoRoom {
		s.dropBuffer()
	}
}

// onBatchEnded handles the part of a batch that is done, and the fault of the rest. The rest of a delivery is its next
// event alone.
func (s *step) onBatchEnded(r RunResult) {
	batch := r.Batch
	if p := r.Partial; p != nil {
		done, left := p.Split(batch)
		if p.To > s.Lease.Checkpoint {
			s.onSuccess(done, r.Took)
			s.FailureWindow = p.FailureWindow
			s.Lease.Parked += int64(len(p.Rejected))
		}
		if len(p.Rejected) != 0 {
			s.onAnswer() // the service that the handler depends on refused an event, so it is not down
		}
		for _, letter := range p.Rejected {
			s.Replays.plan(s.now, s.Def.Replay.Interval)
			action := projection.ActionPark
			if letter.ParkStream {
				action = projection.ActionParkStream
				s.parkedStream(letter.Stream)
			}
			e := event.Envelope{Position: letter.Position, Stream: letter.Stream, Type: letter.Type}
			s.out.report(s.decision(e, letter.Attempts, action, errors.New(letter.Error)), zap.ErrorLevel,
				"event parked, rejected by its handler",
				append(eventFields(e, letter.Attempts), zap.Bool("blocking", letter.ParkStream),
					zap.String("error", letter.Error))...)
		}
		if p.Err == nil {
			return
		}
		batch = left
	} else if r.Fault == nil {
		s.onSuccess(batch, r.Took)
		return
	}
	s.onBatchFailed(batch, r.Fault, r.Outage)
}

// onSuccess records that a batch was committed after a time.
func (s *step) onSuccess(batch engine.Batch, took time.Duration) {
	s.progress(batch.To)
	n := len(batch.Events)
	if blocked := len(batch.BlockedByStream); blocked > 0 {
		s.Lease.Block(int64(blocked))
		s.Replays.plan(s.now, s.Def.Replay.Interval)
		s.out.report(observe.Decision{
			Projection: s.Lease.ID, Action: projection.ActionParkStream, Events: blocked, Position: batch.To,
		},
			zap.InfoLevel, "events parked after others of their streams", zap.Int("events", blocked),
			zap.Int64("position", batch.To))
	}
	s.FailureWindow.Handled(n)
	if n > 0 {
		if len(s.Buffer.Events) == 0 {
			s.Sent.Status.Oldest = batch.Events[n-1].Time // the next event is hardly older
		}
		s.Sizer.Applied(n, took)
		s.Faults.History.Forget()
		s.Faults.Object = ""
		s.onAnswer()
	}
	s.Crash.Quarantine = max(0, s.Crash.Quarantine-int32(n))
	if s.Crash.Quarantine > 0 {
		s.Sizer.Alone()
	}
	s.Faults.endStreaks()
	s.applied += n
}

// onAdvanced records whether the checkpoint followed the position.
func (s *step) onAdvanced(job Advance, moved bool) {
	if !moved {
		s.order = max(s.order, Reload)
		return
	}
	if job.To == s.Lease.Checkpoint {
		s.Lease.CrashCount = 0
	}
	s.checkpoint(job.To)
}
