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

const (
	// replayTurn is how long batches wait for commands on dead letters, plus one replay. While a stream is replayed,
	// each batch may park many of its events, so with one replay between two batches a command might never end.
	replayTurn = 100 * time.Millisecond
	// backoffDoubles is how often the delay after replays without an outcome doubles at most.
	backoffDoubles = 8
)

// Commands says which commands for dead letters may be open.
type Commands int8

const (
	// NoCommands means that no command is open.
	NoCommands Commands = iota
	// ReplaysOnly means that replays may be open, but no discard.
	ReplaysOnly
	// CommandsOpen means that any command may be open.
	CommandsOpen
)

// ReplayQueue is the state of commands for dead letters and of replays. Faults of theirs do not delay batches.
type ReplayQueue struct {
	// Parked are the parked streams, as far as they are known.
	Parked   *ParkedStreams
	Commands Commands
	// Failed counts consecutive replays without an outcome.
	Failed int32
	// Seen counts the notifications of commands.
	Seen int
	// DueAt is when to check for dead letters that are due for a replay; zero means never.
	DueAt time.Time
	// BackoffUntil is the time until which no replay is made, after replays without an outcome.
	BackoffUntil time.Time
	// Turn is when batches began to wait for commands; zero means that they do not wait.
	Turn time.Time
	// Unfinished is the dead letter whose replay began last and has no outcome. 0 means none.
	Unfinished int64
	// Faults are those of the dead letter that was replayed last.
	Faults FaultHistory
}

// replayIn plans a check for due dead letters after the delay, unless an earlier one is planned.
func (s *step) replayIn(delay time.Duration) {
	at, planned := s.now.Add(delay), s.Replays.DueAt
	if s.Def.Replay.Interval > 0 && (planned.IsZero() || at.Before(planned)) {
		s.Replays.DueAt = at
	}
}

// replaysBlocked reports whether no handler may be called for a dead letter now. Discards are carried out all the same.
func (s *step) replaysBlocked() bool {
	breaker := s.Breaker.State()
	behind := s.Tail == nil || s.Position < s.Tail.Mark
	return s.now.Before(s.Replays.BackoffUntil) || breaker == projection.BreakerOpen ||
		breaker == projection.BreakerHalfOpen && behind
}

// replayDue reports whether it is time to check for due dead letters.
func (s *step) replayDue() bool {
	return !s.Replays.DueAt.IsZero() && !s.now.Before(s.Replays.DueAt)
}

// mayReplay reports whether a command for dead letters may begin, and whether there may be one. It may begin while the
// projection waits for the feed's first message, for the next attempt at an event, for a service that the handler
// depends on, or for a user, but not while it waits for the server. While the projection is halted, nothing is replayed
// without a command.
func (s *step) mayReplay() bool {
	switch s.State.(type) {
	case AwaitingTail, Idle, Reconnecting, RetryWait, OutageWait, EventWait, Halted:
	default:
		return false
	}
	if !s.confirmed() {
		return false
	}
	switch s.Replays.Commands {
	case CommandsOpen:
		return true
	case ReplaysOnly:
		return !s.replaysBlocked()
	}
	return s.replayDue() && s.Row.Parked > 0 && !s.Row.Halted && !s.replaysBlocked()
}

// batchTurn reports whether a batch has waited long enough for commands.
func (s *step) batchTurn() bool {
	return !s.Replays.Turn.IsZero() && s.now.Sub(s.Replays.Turn) >= replayTurn
}

// endBackoff ends the delay after replays without an outcome. No command to replay was looked up meanwhile.
func (s *step) endBackoff() {
	if s.Replays.BackoffUntil.IsZero() || s.now.Before(s.Replays.BackoffUntil) {
		return
	}
	s.Replays.BackoffUntil = time.Time{}
	if s.Replays.Commands == ReplaysOnly {
		s.Replays.Commands = CommandsOpen
	}
}

// command begins the next command, or one replay of it.
func (s *step) command() {
	if s.Replays.Turn.IsZero() {
		s.Replays.Turn = s.now
	}
	blocked := s.replaysBlocked()
	schedule := s.replayDue() && !blocked && s.Replays.Commands == NoCommands && !s.Row.Halted
	s.start(Command{Replay: Replaying{Row: s.Row, Discards: blocked, Schedule: schedule,
		def: s.Def, queue: s.Replays, faults: s.Replays.Faults}})
}

// onCommand handles how a command, or one replay of it, ended.
func (s *step) onCommand(job Replaying, r ReplayResult) {
	s.Replays.Faults = r.Faults
	if r.Found.Command != nil && r.Found.Command.Replay {
		s.Replays.Commands = CommandsOpen // until a lookup finds none
	}
	if r.End == ReplayNothing || s.Replays.Parked.known() {
		s.Replays.Parked = nil // it may have released streams, or one before it whose outcome is not known
	}
	switch r.End {
	case ReplayRefused:
		s.putOff(job, r.Fault)
	case ReplayNothing:
		s.onNoCommand(job, r)
	case ReplayDiscarded:
		s.Row.SetParked(s.Row.Parked - r.Discarded)
		s.recordSuccess()
		s.replayIn(s.Def.Replay.Interval)
		s.log(zap.WarnLevel, "dead letters discarded", zap.Int64("deadletters", r.Discarded),
			zap.Int64("command", r.Found.Command.ID))
	case ReplayOver:
		s.onReplayEnd()
	case ReplayUndone:
		s.Replays.Unfinished = r.Replay.DeadLetter // this process did not crash during it
		if r.Fault.Unreachable {
			s.Crash.CutOff = s.Row.Incarnation
		}
		s.putOff(job, r.Fault)
	case ReplayDone, ReplayFailed, ReplayOutOfOrder:
		s.onReplayed(r)
	}
}

// onNoCommand records that a lookup found no command.
func (s *step) onNoCommand(job Replaying, r ReplayResult) {
	s.recordSuccess()
	if !job.Discards {
		s.Replays.Failed = 0
	}
	s.Row.SetParked(r.Found.Parked)
	s.Row.ParkedStreams = r.Found.ParkedStreams
	if job.Schedule && !r.Scheduled.Found {
		s.Replays.DueAt = time.Time{}
		if next := r.Scheduled.Next; next > 0 {
			s.replayIn(max(next, s.Def.Replay.Interval/4))
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
	s.Row.SetParked(s.Row.Parked) // it is not parked any more, or has failed now
	s.onReplayEnd()
	if r.End != ReplayOutOfOrder {
		s.replayIn(s.Def.Replay.Interval)
	}
	fields := []zap.Field{zap.Int64("position", r.Replay.Position), zap.String("stream", r.Replay.Stream),
		zap.Int64("deadletter", r.Replay.DeadLetter)}
	outcome := observe.Replay{Projection: s.Row.ID, Position: r.Replay.Position, Stream: r.Replay.Stream}
	switch {
	case r.End == ReplayDone:
		s.Row.SetParked(s.Row.Parked - 1)
		s.applied++
		s.report(outcome, zap.InfoLevel, "parked event replayed", fields...)
	case r.End == ReplayOutOfOrder:
		outcome.Err, outcome.Action = projection.ErrOutOfOrder, projection.ActionPark
		s.report(outcome, zap.WarnLevel, "replay refused: later events of the stream are handled, event stays parked",
			fields...)
	case r.Halt != nil:
		outcome.Err, outcome.Action = r.Halt, projection.ActionStop
		s.report(outcome, zap.ErrorLevel, "projection stopped by a replay until it is resumed",
			append(fields, zap.Error(r.Halt))...)
		s.waitForResume(r.Halt)
	case r.Action == projection.ActionSkip:
		s.Row.SetParked(s.Row.Parked - 1)
		outcome.Err, outcome.Action = r.Fault.Err, projection.ActionSkip
		s.report(outcome, zap.WarnLevel, "parked event skipped on its replay",
			append(fields, zap.Error(r.Fault.Err))...)
	default:
		outcome.Err, outcome.Action = r.Fault.Err, projection.ActionPark
		s.report(outcome, zap.WarnLevel, "replay failed, event stays parked", append(fields, zap.Error(r.Fault.Err))...)
	}
}

// onReplayEnd forgets the replays without an outcome, since one had an outcome.
func (s *step) onReplayEnd() {
	s.Replays.Failed = 0
	s.recordSuccess()
}

// putOff records that a command could not be carried out, for a reason that is not a dead letter's fault. It is tried
// again after a delay. Discards that were commanded meanwhile do not wait for that. Batches continue, unless the server
// cannot be worked with.
func (s *step) putOff(job Replaying, f *faults.Fault) {
	if errors.Is(f, projection.ErrLeaseLost) || f.Class == faults.LeaseLost ||
		errors.Is(f, event.ErrIncarnationChanged) {
		s.order = max(s.order, Resume) // the row knows
		return
	}
	delay := s.ReplayBackoff << min(s.Replays.Failed, backoffDoubles)
	s.Replays.Failed++
	s.Replays.BackoffUntil = s.now.Add(delay)
	if s.Replays.Commands == CommandsOpen && s.Replays.Seen == job.queue.Seen {
		s.Replays.Commands = ReplaysOnly
	}
	s.log(zap.DebugLevel, "dead letters wait", zap.Duration("delay", delay), zap.Error(f.Err))
	if (f.Probe || f.Unreachable) && !s.Row.Halted {
		s.fault(f)
	}
}
