package machine

import (
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/policy"
	"github.com/millrace-go/millrace/projection"
)

// maxUndone is how many consecutive replays may have no outcome. After one more the command continues with the next
// dead letter, since the event may be the cause after all.
const maxUndone = 10

// CommandRun is the next command on dead letters: a whole discard, or one replay. The shell takes its steps in one
// goroutine, as those of a BatchRun. Each method handles the result of a step and returns the next step.
type CommandRun struct {
	Lease engine.Lease
	// Discards is true if no replay may begin now. Schedule is true if a due dead letter becomes a command first.
	Discards, Schedule bool

	def       *engine.Definition
	queue     ReplayQueue // as it was at the beginning
	faults    FaultHistory
	scheduled Scheduled
	found     engine.NextCommand
	replay    engine.Replay
	event     event.Envelope
	fresh     bool
}

// Scheduled is the result of ScheduleReplay.
type Scheduled struct {
	// Made is true if a due dead letter became a command. Else one is due in Next, or none ever if Next is 0.
	Made bool
	Next time.Duration
}

// ReplayStep is what the shell does next: ScheduleReplay, FindCommand, Discard, BeginReplay, ReadEvent, ApplyReplay,
// RecordFailedReplay or EndCommandRun.
type ReplayStep interface{ isReplayStep() }

type (
	// ScheduleReplay makes a command of the dead letter that has been due for longest.
	ScheduleReplay struct{}
	// FindCommand finds the oldest command.
	FindCommand struct{ Discards bool }
	// Discard discards the dead letters of a command.
	Discard struct{ Command int64 }
	// BeginReplay counts the next replay of a command before it runs.
	BeginReplay struct{ Command, Unfinished int64 }
	// ReadEvent reads the event of the dead letter.
	ReadEvent struct{ Range engine.ReadRange }
	// ApplyReplay applies the event, and resolves the dead letter with it.
	ApplyReplay struct{ Batch engine.Batch }
	// RecordFailedReplay writes the outcome of a failed replay. Attempt is the number of the attempt, 0 if it is not
	// counted.
	RecordFailedReplay struct {
		Replay  engine.Replay
		Attempt int
		Action  projection.Action
		Fault   *faults.Fault
		// Halt is why the projection stops, nil if it does not.
		Halt error
	}
	// EndCommandRun ends the command with its result.
	EndCommandRun struct{ Result ReplayResult }
)

// ReplayEnd says how a command, or one replay of it, ended.
type ReplayEnd int

const (
	// ReplayFaulted means that a statement failed before a replay began.
	ReplayFaulted ReplayEnd = iota
	// ReplayNothing means that there is no command.
	ReplayNothing
	// ReplayDiscarded means that the dead letters of a command were discarded.
	ReplayDiscarded
	// ReplayOver means that the command had no dead letters left.
	ReplayOver
	// ReplayUndone means that a replay began and has no outcome.
	ReplayUndone
	// ReplayDone means that a dead letter's event was applied.
	ReplayDone
	// ReplayFailed means that a replay failed: its dead letter stays parked, or is skipped, or halts the projection.
	ReplayFailed
	// ReplayOutOfOrder means that a replay did not begin, since the projection has handled later events of the stream.
	// Its dead letter stays parked.
	ReplayOutOfOrder
)

// ReplayResult is the result of Command.
type ReplayResult struct {
	End ReplayEnd
	// Next is the result of FindCommand.
	Next      engine.NextCommand
	Scheduled Scheduled
	Discarded int64
	Replay    engine.Replay
	Fault     *faults.Fault
	// Action is what becomes of the dead letter after a failed replay. Halt is why the projection stops, nil if it does
	// not.
	Action projection.Action
	Halt   error
	Faults FaultHistory
}

// Begin returns the first step.
func (r CommandRun) Begin() (CommandRun, ReplayStep) {
	if r.Schedule {
		return r, ScheduleReplay{}
	}
	return r, FindCommand{Discards: r.Discards}
}

// Scheduled handles the result of ScheduleReplay.
func (r CommandRun) Scheduled(s Scheduled) (CommandRun, ReplayStep) {
	r.scheduled = s
	return r, FindCommand{Discards: r.Discards}
}

// FoundCommand handles the next command.
func (r CommandRun) FoundCommand(found engine.NextCommand) (CommandRun, ReplayStep) {
	r.found = found
	switch {
	case found.Command == nil:
		return r, r.end(ReplayResult{End: ReplayNothing})
	case found.Command.Replay:
		return r, BeginReplay{Command: found.Command.ID, Unfinished: r.queue.Unfinished}
	}
	return r, Discard{Command: found.Command.ID}
}

// Discarded records how many dead letters were discarded.
func (r CommandRun) Discarded(n int64) (CommandRun, ReplayStep) {
	return r, r.end(ReplayResult{End: ReplayDiscarded, Discarded: n})
}

// Begun handles the replay that began, nil if the command has no dead letters left.
func (r CommandRun) Begun(replay *engine.Replay) (CommandRun, ReplayStep) {
	if replay == nil {
		return r, r.end(ReplayResult{End: ReplayOver})
	}
	if replay.OutOfOrder {
		return r, r.end(ReplayResult{End: ReplayOutOfOrder, Replay: *replay})
	}
	r.replay = *replay
	if replay.Deadly() {
		return r, r.fail(&faults.Fault{Class: faults.Handler, Err: projection.ErrProcessDied}, true)
	}
	return r, r.apply()
}

// Read handles the event of the dead letter.
func (r CommandRun) Read(page engine.Page) (CommandRun, ReplayStep) {
	if len(page.Events) == 0 {
		return r, r.fail(&faults.Fault{Class: faults.Handler, Err: projection.ErrEventGone}, true)
	}
	if e := page.Events[0]; e.Unreadable != nil {
		return r, r.fail(unreadable(e), true)
	}
	r.event = page.Events[0]
	return r, r.apply()
}

// apply returns the step that applies the event. If the event was not read yet, it returns the step that reads it.
func (r CommandRun) apply() ReplayStep {
	replay := r.replay
	if r.event.Position == 0 {
		return ReadEvent{Range: engine.ReadRange{After: replay.Position - 1, UpTo: replay.Position, Limit: 1}}
	}
	return ApplyReplay{
		Batch: engine.Batch{Events: events{r.event}, To: r.Lease.Checkpoint, Replay: &replay, Fresh: r.fresh},
	}
}

// Applied handles the end of a replay, or of the read before it. fault is nil if the replay succeeded. After a fault
// that may pass with the connection, the replay is tried once more at once.
func (r CommandRun) Applied(fault *faults.Fault, outage bool, now time.Time) (CommandRun, ReplayStep) {
	if fault == nil {
		r.faults.Forget()
		return r, r.end(ReplayResult{End: ReplayDone, Replay: r.replay})
	}
	if outage {
		return r, r.fail(fault, false)
	}
	at := BatchFault{
		Class: fault.Class, Position: r.replay.Position, Alone: true, Unreachable: fault.Unreachable, Now: now,
	}
	decision := r.faults.Decide(r.def.Faults, at)
	if decision == TryAgain {
		r.fresh = true
		return r, r.apply()
	}
	return r, r.fail(fault, decision == CountIt)
}

// fail decides what becomes of a failed replay. If it is not counted it has no outcome, and is repeated a limited
// number of times.
func (r CommandRun) fail(fault *faults.Fault, counts bool) ReplayStep {
	end := RecordFailedReplay{Replay: r.replay, Fault: fault, Action: projection.ActionPark}
	switch {
	case counts:
		end.Action = policy.ReplayAction(&r.def.Policy, fault.Err)
		at := event.Envelope{Position: r.replay.Position, Stream: r.replay.Stream}
		failure := policy.Count(r.Lease.ID, at, r.replay.Attempts, fault.Err, fault.Stack)
		end.Attempt = failure.Attempt
		if end.Action == projection.ActionStop {
			end.Halt = policy.Error(&failure)
		}
	case r.queue.Undone < maxUndone, fault.Unreachable, fault.Class == faults.LeaseLost:
		return r.undone(fault)
	}
	return end
}

func (r CommandRun) undone(fault *faults.Fault) EndCommandRun {
	return r.end(ReplayResult{End: ReplayUndone, Replay: r.replay, Fault: fault})
}

// Ended records that the end of a replay was written.
func (r CommandRun) Ended(e RecordFailedReplay) EndCommandRun {
	return r.end(ReplayResult{End: ReplayFailed, Replay: r.replay, Fault: e.Fault, Action: e.Action, Halt: e.Halt})
}

// Faulted ends the command at a step that failed. A replay that was begun has no outcome then.
func (r CommandRun) Faulted(fault *faults.Fault) ReplayResult {
	if r.replay.DeadLetter != 0 {
		return r.undone(fault).Result
	}
	return r.end(ReplayResult{End: ReplayFaulted, Fault: fault}).Result
}

func (r CommandRun) end(result ReplayResult) EndCommandRun {
	result.Next, result.Faults, result.Scheduled = r.found, r.faults, r.scheduled
	return EndCommandRun{Result: result}
}
