package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// desk is where a projection's actor works off what is to be done with dead letters, between its batches. What it meets
// there keeps no batch waiting: it has a wait of its own.
type desk struct {
	// due tells that it is time to look for letters that are to be replayed by themselves.
	due   bool
	timer *time.Timer
	// dueAt is when timer tells so.
	dueAt time.Time
	// quiet tells that nothing is to be discarded, which is all that can be done while replays have to wait.
	quiet bool
	// turn is since when something has been done with dead letters without a batch in between, zero where nothing has.
	turn time.Time
	// again tells that a command was told of since the last look at the database began, which may not have seen it.
	again bool
	// replaying is the letter whose replay was begun last and of which nothing is known yet.
	replaying int64
	// resting is the wait after something could not be done, nil while there is none; vain counts how often in a row.
	resting *time.Timer
	vain    int
	// faults are the uncounted faults of the letter that is being replayed.
	faults machine.FaultHistory
}

// What the desk is sent.
type (
	// replayDue tells that it is to be looked for letters that are to be replayed by themselves.
	replayDue struct{}
	// rested tells that it is to be tried again what could not be done.
	rested struct{}
)

const (
	// deskTurn is how long batches wait for what is done with dead letters, and one replay longer. Of a stream that is being
	// replayed each batch may park many events, and one replay a batch would never get to the end of them.
	deskTurn = 100 * time.Millisecond
	// restMost is how many times as long as the first a rest is at the most.
	restMost = 300
	// vainMost is how often in a row a replay may come to nothing, through no fault of its event as it seems, until the command
	// goes on without it: it may be of that one event all the same.
	vainMost = 10
)

// replayIn has it looked for letters to be replayed by themselves after a delay, or sooner where that was to be anyway.
func (p *projector) replayIn(ctx actor.Context, delay time.Duration) {
	at := time.Now().Add(delay)
	if p.def.Replay.Interval == 0 || p.desk.timer != nil && p.desk.dueAt.Before(at) {
		return
	}
	stopTimer(p.desk.timer)
	p.desk.timer, p.desk.dueAt = p.env.after(delay, ctx.Self(), &replayDue{}), at
}

// noReplays tells that no handler may be called for a dead letter now.
func (p *projector) noReplays() bool {
	state := p.breaker.State()
	return p.state == Paused || p.desk.resting != nil || state == projection.BreakerOpen || state == projection.BreakerHalfOpen && p.position < p.mark
}

// mayObey tells whether there is something to do with dead letters and it can be done now: also while an event waits for
// its next attempt, or for what the handler depends on, and while the projection has stopped at one, but not while it waits
// for the database. While it has stopped, nothing is replayed without a command.
func (p *projector) mayObey() bool {
	switch p.state {
	case Live, CatchUp, Paused:
	case Waiting:
		if p.away {
			return false
		}
	case Failed:
		if !p.lease.Halted {
			return false
		}
	default:
		return false
	}
	if p.recheck && p.state != Waiting || !p.env.Trusted() {
		return false
	}
	if p.lease.HasCommands {
		return !(p.noReplays() && p.desk.quiet)
	}
	return p.desk.due && p.lease.Parked > 0 && !p.lease.Halted && !p.noReplays()
}

// yields tells that it is a batch's turn.
func (p *projector) yields() bool {
	waiting := (p.state == Live || p.state == CatchUp) && !p.lease.Halted && p.known && p.position < p.mark
	return waiting && !p.desk.turn.IsZero() && time.Since(p.desk.turn) >= deskTurn
}

// obey does the next thing that is to be done with dead letters: one replay, or one command to discard.
func (p *projector) obey(ctx actor.Context) {
	if p.desk.turn.IsZero() {
		p.desk.turn = time.Now()
	}
	p.desk.again = false
	discards := p.noReplays()
	schedule := p.desk.due && !discards && !p.lease.HasCommands && !p.lease.Halted
	lease, mine, vain, faults := p.lease, p.desk.replaying, p.desk.vain, p.desk.faults
	p.do(ctx, p.def.Timeout+5*p.env.Timing.QueryTimeout, p.batchSlot(), func(ctx context.Context) func(actor.Context) {
		fails := func(err error) func(actor.Context) {
			return func(ctx actor.Context) { p.disobeyed(ctx, err) }
		}
		scheduled, next := false, time.Duration(0)
		var found engine.ReplayQueue
		err := p.briefly(ctx, func() (err error) {
			if schedule {
				if scheduled, next, err = p.env.Store.ScheduleReplay(ctx, lease, p.def.Replay); err != nil {
					return err
				}
			}
			found, err = p.env.Store.NextCommand(ctx, lease, discards)
			return err
		})
		switch {
		case err != nil:
			return fails(err)
		case found.Command == nil:
			return func(ctx actor.Context) {
				if p.recovered(ctx); !discards {
					p.obeyed(ctx)
				}
				p.lease.Parked, p.lease.ParkedStreams = found.Parked, found.ParkedStreams
				if schedule {
					if p.desk.due = scheduled; next > 0 {
						p.replayIn(ctx, max(next, p.def.Replay.Interval/4))
					}
				}
				p.desk.quiet = !p.desk.again
				p.lease.HasCommands = p.lease.HasCommands && (discards || p.desk.again)
			}
		case found.Command.Replay:
			commanded := p.replay(ctx, lease, found.Command.ID, mine, vain, &faults)
			return func(ctx actor.Context) {
				p.lease.HasCommands, p.desk.faults = true, faults // until a look finds nothing
				commanded(ctx)
			}
		}
		var discarded int64
		if err := p.briefly(ctx, func() (err error) {
			discarded, err = p.env.Store.Discard(ctx, lease, found.Command.ID)
			return err
		}); err != nil {
			return fails(err)
		}
		return func(ctx actor.Context) {
			p.lease.Parked -= discarded
			p.recovered(ctx)
			p.replayIn(ctx, p.def.Replay.Interval)
			p.log.Warn("dead letters discarded", zap.Int64("letters", discarded), zap.Int64("command", found.Command.ID))
		}
	})
}

// replay makes the next replay of a command.
func (p *projector) replay(ctx context.Context, lease engine.Lease, command, mine int64, vain int, faults *machine.FaultHistory) func(actor.Context) {
	var replay *engine.Replay
	err := p.briefly(ctx, func() (err error) {
		replay, err = p.env.Store.BeginReplay(ctx, lease, command, mine)
		return err
	})
	if err != nil {
		return func(ctx actor.Context) { p.disobeyed(ctx, err) }
	}
	if replay == nil {
		return func(ctx actor.Context) { p.obeyed(ctx) }
	}
	undone := func(err error) func(actor.Context) {
		return func(ctx actor.Context) {
			p.desk.replaying = replay.Letter // this process has not died of it
			p.cutOff = p.cutOff || p.env.Store.Classify(err).Unreachable
			p.disobeyed(ctx, err)
		}
	}
	action := projection.ActionPark
	var stop error
	fault, counts := p.again(ctx, lease, replay, faults)
	if fault != nil {
		if !counts && (vain < vainMost || fault.Unreachable || fault.Class == engine.LeaseLost) {
			return undone(fault)
		}
		if counts {
			action = p.def.DecideReplay(fault.Err, engine.IsPermanent(fault.Err))
		}
		err := p.briefly(ctx, func() error {
			switch action {
			case projection.ActionSkip:
				return p.env.Store.SkipReplay(ctx, lease, *replay, fault.Err, fault.Stack)
			case projection.ActionStop:
				stop = asError(replay.Failure(lease.ID, fault.Err, fault.Stack))
				return p.env.Store.StopReplay(ctx, lease, *replay, fault.Err, fault.Stack, stop.Error())
			}
			return p.env.Store.FailReplay(ctx, lease, *replay, fault.Err, fault.Stack, counts)
		})
		if err != nil {
			return undone(err)
		}
	}
	return func(ctx actor.Context) {
		p.desk.replaying = 0
		p.obeyed(ctx)
		p.replayIn(ctx, p.def.Replay.Interval)
		fields := []zap.Field{zap.Int64("position", replay.Position), zap.String("stream", replay.Stream), zap.Int64("letter", replay.Letter)}
		switch {
		case stop != nil:
			p.stopped(stop, fields)
			return
		case action == projection.ActionSkip:
			p.lease.Parked--
			p.log.Warn("parked event skipped on its replay", append(fields, zap.Error(fault.Err))...)
			return
		case fault != nil:
			p.log.Warn("replay failed; the event stays parked", append(fields, zap.Error(fault.Err))...)
			return
		}
		p.lease.Parked--
		p.log.Info("parked event replayed", fields...)
		p.env.Registry.publish(p.lease.ID, func(e *ProjectionEntry) { e.Applied++ })
	}
}

// again applies a dead letter's event, and once more if the fault calls for an immediate retry. If it fails, counts reports
// whether that is an attempt.
func (p *projector) again(ctx context.Context, lease engine.Lease, replay *engine.Replay, faults *machine.FaultHistory) (fault *engine.Fault, counts bool) {
	for fresh := false; ; fresh = true {
		found := p.examine(ctx, p.applyLetter(ctx, lease, replay, fresh))
		if fault = found.fault; fault == nil {
			faults.Forget()
			return nil, false
		}
		if found.outage {
			return fault, false
		}
		at := machine.BatchFault{Class: fault.Class, Position: replay.Position, Alone: true, Unreachable: fault.Unreachable, Now: time.Now()}
		if decision := faults.Decide(p.def.Faults, at); decision != machine.TryAgain {
			return fault, decision == machine.CountIt
		}
	}
}

// applyLetter applies a dead letter's event in a batch of its own, which resolves the letter and moves no checkpoint.
func (p *projector) applyLetter(ctx context.Context, lease engine.Lease, replay *engine.Replay, fresh bool) error {
	if replay.Deadly() {
		return &engine.Fault{Class: engine.HandlerFault, Err: projection.ErrProcessDied}
	}
	read, err := p.reading(ctx, true)
	if err != nil {
		return err
	}
	page, err := p.read(ctx, lease, engine.ReadRange{After: replay.Position - 1, UpTo: replay.Position, Limit: 1})
	if read(); err != nil {
		return err
	}
	if len(page.Events) == 0 {
		return &engine.Fault{Class: engine.HandlerFault, Err: projection.ErrEventGone}
	}
	return p.apply(ctx, lease, engine.Batch{Events: page.Events, To: lease.Checkpoint, Replay: replay, Fresh: fresh})
}

// obeyed takes in that a replay came to an end, or that none is wanted. A look for discards in a rest, and a discard, say
// nothing of what the rest is for.
func (p *projector) obeyed(ctx actor.Context) {
	p.desk.vain = 0
	p.recovered(ctx)
}

// disobeyed takes in that something could not be done with dead letters, through no fault of theirs. It is tried again after a
// rest; batches go on meanwhile, unless the database cannot be worked with at all.
func (p *projector) disobeyed(ctx actor.Context, err error) {
	if errors.Is(err, projection.ErrLeaseLost) || errors.Is(err, projection.ErrIncarnationChanged) {
		p.recheck = true // the lease's row knows
		if p.state == Waiting {
			p.become(Starting, nil)
		}
		return
	}
	p.desk.vain++
	p.desk.quiet = true // until then
	stopTimer(p.desk.resting)
	delay := p.env.Timing.Rest * time.Duration(min(restMost, 1<<min(p.desk.vain-1, 10)))
	p.desk.resting = p.env.after(delay, ctx.Self(), &rested{})
	p.log.Debug("dead letters have to wait", zap.Duration("for", delay), zap.Error(err))
	if fault := p.env.Store.Classify(err); (fault.Probe || fault.Unreachable) && p.state != Paused && !p.lease.Halted {
		p.fault(ctx, err)
	}
}
