package machine

import (
	"errors"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// takeOver takes over the row as the database has it. It releases the lease of a projection that is paused, as by a
// Drain.
func (s *step) takeOver(lease engine.Lease) {
	s.adopt(lease)
	if !s.Lease.Desired.Runs() {
		s.order = Release
	}
}

// onLoaded handles the row that a Load has read.
func (s *step) onLoaded(job Load, lease engine.Lease) {
	s.takeOver(lease)
	if s.Replays.Seen != job.Commands {
		s.Replays.Commands = CommandsOpen // notified after the read began
	}
	if s.Tail != nil && s.Tail.Err == nil && s.Tail.Incarnation != lease.Incarnation {
		// The feed does not know the incarnation yet, or its message is under way.
		s.Tail = nil
		s.out.do(Subscribe{Recheck: lease.Incarnation})
	}
}

// revalidate compares the row with the row in the database. The job under way may have changed it since: then the fence
// decides.
func (s *step) revalidate(lease engine.Lease) {
	over := s.Lease.Check(lease, true) != nil || lease.Incarnation != s.Lease.Incarnation
	if over {
		s.out.do(CutShort{})
	}
	moved := lease.Checkpoint != s.Lease.Checkpoint && s.under() == nil
	if over || moved || lease.Halted != s.Lease.Halted {
		s.after(Reload)
	}
	if lease.HasCommands {
		s.Replays.Commands = CommandsOpen // the notification of a command may have been lost
	}
}

// onServerAnswers records that the server answers. If it did before, the fault is this projection's own, and is tried
// again after a delay. After an outage the first fault costs no delay, so that all projections go on at once.
func (s *step) onServerAnswers(in ServerAnswers) {
	st, waits := s.State.(AtGate)
	if !waits {
		return // a user ended the wait
	}
	if !in.Waited {
		s.out.logRetry(st.Fault, s.Faults.InARow)
		s.State = FaultWait{
			Reason: st.Fault, Until: s.now.Add(backoff.Delay(FaultPolicy(), s.Faults.InARow, in.Jitter)),
		}
		return
	}
	if s.Faults.InARow > 1 {
		if at := st.Since.Add(backoff.Delay(FaultPolicy(), s.Faults.InARow-1, in.Jitter)); s.now.Before(at) {
			s.State = FaultWait{Reason: st.Fault, Until: at}
			return
		}
	}
	s.State = AwaitingTail{}
	if in.Lease == nil || s.Lease.Check(*in.Lease, true) != nil || s.outdated(*in.Lease) {
		s.after(Reload)
		return
	}
	commands := s.Replays.Commands // the row's value is older than this one
	s.onLoaded(Load{Commands: s.Replays.Seen}, *in.Lease)
	s.Replays.Commands = max(s.Replays.Commands, commands)
}

// FaultPolicy is the policy of delays after faults that are not an event's.
func FaultPolicy() projection.RetryPolicy {
	return projection.RetryPolicy{Base: 50 * time.Millisecond, Cap: 5 * time.Second, Factor: 2, Jitter: 0.3}
}

// fault handles a fault that is not counted against an event, and decides what the projection waits for.
func (s *step) fault(f *faults.Fault) {
	s.State = Idle{}
	if errors.Is(f.Err, event.ErrIncarnationChanged) && s.Faults.Changes == 0 {
		// The first change is followed at once. Where two servers answer in turns, delays keep this from spinning.
		s.Faults.Changes++
		s.out.log(zap.InfoLevel, "server crashed or was replaced, reading everything again", zap.Error(f.Err))
		if s.Tail != nil && s.Tail.Err != nil {
			s.Tail = nil
			s.out.do(Subscribe{})
		}
		s.order = max(s.order, Resume)
		return
	}
	switch f.Class {
	case faults.LeaseLost: // only the row knows: an earlier write of this node may have moved the checkpoint
		s.out.log(zap.InfoLevel, "write refused by the fence", zap.Error(f.Err))
		s.order = max(s.order, Resume)
	case faults.Configuration:
		s.Faults.Misconfigured++
		if s.Faults.Misconfigured == 1 {
			s.out.log(StoppedLevel(f.Err), "projection stopped by its configuration, retrying", zap.Error(f.Err))
		}
		s.State = Misconfigured{Reason: f, Until: s.now.Add(checkEvery)}
	default:
		s.Faults.InARow++
		if answers := f.Class == faults.Unclear || f.Class == faults.MissingObject; !answers || f.Unreachable ||
			f.Probe {
			s.State = AtGate{Fault: f, Since: s.now}
			s.out.do(AskGate{Fault: f})
			return
		}
		s.out.logRetry(f, s.Faults.InARow)
		s.State = EventWait{Reason: f, Until: s.now.Add(backoff.Delay(FaultPolicy(), s.Faults.InARow, s.jitter))}
	}
}

// StoppedLevel is the level at which it is logged that an error of the configuration has stopped something. A tenant
// that is not found was dropped, and this node does not know that yet.
func StoppedLevel(err error) zapcore.Level {
	if errors.Is(err, tenancy.ErrUnknown) {
		return zap.InfoLevel
	}
	return zap.ErrorLevel
}
