package machine

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// command begins the next command, or one replay of it.
func (s *step) command() {
	if s.Replays.Turn.IsZero() {
		s.Replays.Turn = s.now
	}
	blocked := s.replaysBlocked(s.now)
	schedule := s.Replays.due(s.now) && !blocked && s.Replays.Commands == NoCommands && !s.Lease.Halted
	s.startIfAllowed(Command{Replay: CommandRun{Lease: s.Lease, Discards: blocked, Schedule: schedule,
		def: s.Def, queue: s.Replays, faults: s.Replays.Faults}})
}

// onCommand handles how a command, or one replay of it, ended.
func (s *step) onCommand(job CommandRun, r ReplayResult) {
	s.Replays.Faults = r.Faults
	if r.Next.Command != nil && r.Next.Command.Replay {
		s.Replays.Commands = CommandsOpen // until a lookup finds none
	}
	if r.End == ReplayNothing || s.Replays.Parked.known() {
		s.Replays.Parked = nil // it may have released streams, or one before it whose outcome is not known
	}
	switch r.End {
	case ReplayFaulted:
		s.putOff(job, r.Fault)
	case ReplayNothing:
		s.onNoCommand(job, r)
	case ReplayDiscarded:
		s.Lease.SetParked(s.Lease.Parked - r.Discarded)
		s.Faults.endStreaks()
		s.Replays.plan(s.now, s.Def.Replay.Interval)
		s.out.log(zap.WarnLevel, "dead letters discarded", zap.Int64("deadletters", r.Discarded),
			zap.Int64("command", r.Next.Command.ID))
	case ReplayOver:
		s.onOutcome()
	case ReplayUndone:
		s.Replays.Unfinished = r.Replay.DeadLetter // this process did not crash during it
		if r.Fault.Unreachable {
			s.Crash.CutOff = s.Lease.Incarnation
		}
		s.putOff(job, r.Fault)
	case ReplayDone, ReplayFailed, ReplayOutOfOrder:
		s.onReplayed(r)
	}
}

// onOutcome resets the count of replays without an outcome.
func (m *Machine) onOutcome() {
	m.Replays.Undone = 0
	m.Faults.endStreaks()
}

// onNoCommand records that a lookup found no command.
func (s *step) onNoCommand(job CommandRun, r ReplayResult) {
	s.Faults.endStreaks()
	if !job.Discards {
		s.Replays.Undone = 0
	}
	s.Lease.SetParked(r.Next.Parked)
	s.Lease.ParkedStreams = r.Next.ParkedStreams
	if job.Schedule && !r.Scheduled.Made {
		s.Replays.DueAt = time.Time{}
		if next := r.Scheduled.Next; next > 0 {
			s.Replays.plan(s.now, max(next, s.Def.Replay.Interval/4))
		}
	}
	switch {
	case s.Replays.Seen != job.queue.Seen: // notified after the lookup began
	case job.Discards:
		s.Replays.Commands = ReplaysOnly
	default:
		s.Replays.Commands = NoCommands
	}
}

// onReplayed records that a replay has an outcome.
func (s *step) onReplayed(r ReplayResult) {
	s.Replays.Unfinished = 0
	s.Lease.SetParked(s.Lease.Parked) // it is not parked any more, or has failed now
	s.onOutcome()
	if r.End != ReplayOutOfOrder {
		s.Replays.plan(s.now, s.Def.Replay.Interval)
	}
	fields := []zap.Field{zap.Int64("position", r.Replay.Position), zap.String("stream", r.Replay.Stream),
		zap.Int64("deadletter", r.Replay.DeadLetter)}
	outcome := observe.Replay{Projection: s.Lease.ID, Position: r.Replay.Position, Stream: r.Replay.Stream}
	switch {
	case r.End == ReplayDone:
		s.Lease.SetParked(s.Lease.Parked - 1)
		s.applied++
		s.out.report(outcome, zap.InfoLevel, "parked event replayed", fields...)
	case r.End == ReplayOutOfOrder:
		outcome.Err, outcome.Action = projection.ErrOutOfOrder, projection.ActionPark
		s.out.report(outcome, zap.WarnLevel, "replay refused: later events of the stream are handled, event stays parked",
			fields...)
	case r.Halt != nil:
		outcome.Err, outcome.Action = r.Halt, projection.ActionStop
		s.out.report(outcome, zap.ErrorLevel, "projection stopped by a replay until it is resumed",
			append(fields, zap.Error(r.Halt))...)
		s.halt(r.Halt, s.now)
	case r.Action == projection.ActionSkip:
		s.Lease.SetParked(s.Lease.Parked - 1)
		outcome.Err, outcome.Action = r.Fault.Err, projection.ActionSkip
		s.out.report(outcome, zap.WarnLevel, "parked event skipped on its replay",
			append(fields, zap.Error(r.Fault.Err))...)
	default:
		outcome.Err, outcome.Action = r.Fault.Err, projection.ActionPark
		s.out.report(outcome, zap.WarnLevel, "replay failed, event stays parked",
			append(fields, zap.Error(r.Fault.Err))...)
	}
}

// putOff records that a command could not be carried out, for a reason that is not a dead letter's fault. It is tried
// again after a delay. Discards that were commanded meanwhile do not wait for that. Batches continue, unless the server
// cannot be worked with.
func (s *step) putOff(job CommandRun, f *faults.Fault) {
	if errors.Is(f, projection.ErrLeaseLost) || f.Class == faults.LeaseLost ||
		errors.Is(f, event.ErrIncarnationChanged) {
		s.order = max(s.order, Resume) // the row knows
		return
	}
	delay := s.Replays.backOff(s.now, s.ReplayBackoff)
	if s.Replays.Commands == CommandsOpen && s.Replays.Seen == job.queue.Seen {
		s.Replays.Commands = ReplaysOnly
	}
	s.out.log(zap.DebugLevel, "dead letters wait", zap.Duration("delay", delay), zap.Error(f.Err))
	if (f.Probe || f.Unreachable) && !s.Lease.Halted {
		s.fault(f)
	}
}
