package actors

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// command takes the steps of a command on dead letters, or of one replay of it.
func (w *worker) command(ctx context.Context, r machine.Replaying) machine.Result {
	r, step := r.Begin()
	for {
		if end, ends := step.(machine.EndReplaying); ends {
			return end.Result
		}
		next, following, err := w.commandStep(ctx, r, step)
		if err != nil {
			return r.Refused(w.fault(err))
		}
		r, step = next, following
	}
}

// commandStep does one step of a command and returns the next step.
func (w *worker) commandStep(ctx context.Context, r machine.Replaying, step machine.ReplayStep) (next machine.Replaying, following machine.ReplayStep, err error) {
	store := w.deps.Store
	switch s := step.(type) {
	case machine.ScheduleReplay:
		var found machine.Scheduled
		err = w.briefly(ctx, func() (err error) {
			found.Found, found.Next, err = store.ScheduleReplay(ctx, r.Row, w.def.Replay)
			return err
		})
		next, following = r.Scheduled(found)
	case machine.FindCommand:
		var found engine.ReplayQueue
		err = w.briefly(ctx, func() (err error) {
			found, err = store.NextCommand(ctx, r.Row, s.Discards)
			return err
		})
		next, following = r.Found(found)
	case machine.Discard:
		var n int64
		err = w.briefly(ctx, func() (err error) {
			n, err = store.Discard(ctx, r.Row, s.Command)
			return err
		})
		next, following = r.Discarded(n)
	case machine.BeginReplay:
		var replay *engine.Replay
		err = w.briefly(ctx, func() (err error) {
			replay, err = store.BeginReplay(ctx, r.Row, s.Command, s.Unfinished)
			return err
		})
		next, following = r.Begun(replay)
	case machine.ReadEvent:
		page, err := w.readLetter(ctx, r.Row, s.Range)
		if err != nil {
			found := w.examine(ctx, err)
			next, following = r.Applied(found.fault, found.outage, time.Now())
			break
		}
		next, following = r.Read(page)
	case machine.ApplyReplay:
		found := w.examine(ctx, w.apply(ctx, r.Row, s.Batch))
		next, following = r.Applied(found.fault, found.outage, time.Now())
	case machine.EndReplay:
		err = w.briefly(ctx, func() error { return w.endReplay(ctx, r.Row, s) })
		next, following = r, r.Ended(s)
	}
	return next, following, err
}

func (w *worker) readLetter(ctx context.Context, row engine.Lease, r engine.ReadRange) (engine.Page, error) {
	release, err := w.reading(ctx, true)
	if err != nil {
		return engine.Page{}, err
	}
	defer release()
	return w.read(ctx, row, r)
}

// endReplay writes how a replay ended that failed.
func (w *worker) endReplay(ctx context.Context, row engine.Lease, e machine.EndReplay) error {
	failed := engine.FailedReplay{Replay: e.Replay, Attempt: e.Attempt, Err: e.Fault.Err, Stack: e.Fault.Stack}
	switch e.Action {
	case projection.ActionSkip:
		return w.deps.Store.SkipReplay(ctx, row, failed)
	case projection.ActionStop:
		return w.deps.Store.StopReplay(ctx, row, failed, e.Halt.Error())
	}
	return w.deps.Store.FailReplay(ctx, row, failed)
}
