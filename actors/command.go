package actors

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// command takes the steps of a command on dead letters, or of one replay of it.
func (w *worker) command(ctx context.Context, r machine.CommandRun) machine.Result {
	r, step := r.Begin()
	for {
		var err error
		switch s := step.(type) {
		case machine.EndCommandRun:
			return s.Result
		case machine.ReadEvent:
			r, step = w.readParked(ctx, r, s)
		case machine.ApplyReplay:
			found := w.examine(ctx, w.apply(ctx, r.Lease, s.Batch))
			r, step = r.Applied(found.fault, found.outage, time.Now())
		default:
			r, step, err = w.commandStatement(ctx, r, step)
		}
		if err != nil {
			return r.Faulted(w.fault(err))
		}
	}
}

// readParked reads the event of a dead letter. An error counts like one of the replay.
func (w *worker) readParked(ctx context.Context, r machine.CommandRun,
	s machine.ReadEvent) (machine.CommandRun, machine.ReplayStep) {
	page, err := func() (page engine.Page, err error) {
		release, err := w.beside(w.readSlot, true)(ctx)
		if err != nil {
			return page, err
		}
		defer release()
		return w.read(ctx, r.Lease.Incarnation, s.Range)
	}()
	if err != nil {
		found := w.examine(ctx, err)
		return r.Applied(found.fault, found.outage, time.Now())
	}
	return r.Read(page)
}

// commandStatement takes a step that is a short statement on the control schema.
func (w *worker) commandStatement(ctx context.Context, r machine.CommandRun,
	step machine.ReplayStep) (next machine.CommandRun, following machine.ReplayStep, err error) {
	release, err := w.beside(w.ackSlot, true)(ctx)
	if err != nil {
		return r, nil, err
	}
	defer release()
	plane := w.deps.Plane
	switch s := step.(type) {
	case machine.ScheduleReplay:
		var made machine.Scheduled
		made.Made, made.Next, err = plane.ScheduleReplay(ctx, r.Lease, w.def.Replay, w.def.AnyOrder)
		next, following = r.Scheduled(made)
	case machine.FindCommand:
		var found engine.NextCommand
		found, err = plane.NextCommand(ctx, r.Lease, s.Discards)
		next, following = r.FoundCommand(found)
	case machine.Discard:
		var discarded int64
		discarded, err = plane.Discard(ctx, r.Lease, s.Command)
		next, following = r.Discarded(discarded)
	case machine.BeginReplay:
		var replay *engine.Replay
		replay, err = plane.BeginReplay(ctx, r.Lease,
			engine.ReplayRequest{
				Command: s.Command, LastBegun: s.Unfinished, Types: w.def.Types, AnyOrder: w.def.AnyOrder,
			})
		next, following = r.Begun(replay)
	case machine.RecordFailedReplay:
		err = w.recordFailedReplay(ctx, r.Lease, s)
		next, following = r, r.Ended(s)
	}
	if err != nil {
		return r, nil, err
	}
	return next, following, nil
}

// recordFailedReplay records how a replay ended that failed.
func (w *worker) recordFailedReplay(ctx context.Context, lease engine.Lease, e machine.RecordFailedReplay) error {
	failed := engine.FailedReplay{Replay: e.Replay, Attempt: e.Attempt, Err: e.Fault.Err, Stack: e.Fault.Stack}
	if e.Action == projection.ActionSkip {
		return w.deps.Plane.SkipReplay(ctx, lease, failed)
	}
	if e.Halt != nil {
		failed.Halt = e.Halt.Error()
	}
	return w.deps.Plane.FailReplay(ctx, lease, failed)
}
