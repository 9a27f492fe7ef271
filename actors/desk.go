package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/projection"
)

// desk is where a projection's actor works off what is to be done with dead letters, between its batches.
type desk struct {
	// due tells that it is time to look for letters that are to be replayed by themselves.
	due   bool
	timer *time.Timer
	// quiet tells that a paused projection has nothing to do but replays, for which it waits to be resumed.
	quiet bool
	// turn is since when batches have waited for it, zero where they have not.
	turn time.Time
	// again tells that a command was told of since the last look at the database began, which may not have seen it.
	again bool
	// replaying is the letter whose replay was begun last and of which nothing is known yet.
	replaying int64
}

// replayDue is sent when it is to be looked for letters that are to be replayed by themselves.
type replayDue struct{}

func (p *projector) replayDue(ctx actor.Context) {
	p.desk.due = true
	p.desk.timer = p.env.after(p.def.Replay.Interval, ctx.Self(), &replayDue{})
}

// mayObey tells whether there is something to do with dead letters and it can be done now: also while an event waits for
// its next attempt, and while the projection has stopped at one, but not while nothing can be done at all.
func (p *projector) mayObey() bool {
	if p.recheck || !p.env.Trusted() || !p.lease.Commanded && !(p.desk.due && p.lease.Parked > 0 && p.state != Paused) {
		return false
	}
	switch p.state {
	case Live, CatchUp:
		return true
	case Waiting:
		return p.failing != nil
	case Failed:
		return p.lease.Halted
	case Paused:
		return !p.desk.quiet
	}
	return false
}

// deskTurn is how long batches wait for what is done with dead letters, and one replay longer. Of a stream that is being
// replayed each batch may park many events, and one replay a batch would never get to the end of them.
const deskTurn = 100 * time.Millisecond

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
	p.probe()
	p.desk.again = false
	lease, paused, due, mine := p.lease, p.state == Paused, p.desk.due, p.desk.replaying
	p.do(ctx, p.def.Deadline+5*p.env.Timing.Call, p.batchSlot(), func(ctx context.Context) func(actor.Context) {
		fails := func(err error) func(actor.Context) {
			return func(ctx actor.Context) { p.disobeyed(ctx, err) }
		}
		if due && !paused {
			var err error
			if due, err = p.env.Store.ScheduleReplay(ctx, lease, p.def.Replay); err != nil {
				return fails(err)
			}
		}
		found, err := p.env.Store.NextCommand(ctx, lease, paused)
		if err != nil {
			return fails(err)
		}
		if found.Command == nil {
			return func(ctx actor.Context) {
				p.recovered(ctx)
				p.lease.Parked, p.lease.ParkedStreams = found.Parked, found.ParkedStreams
				p.desk.due, p.desk.quiet = due, paused && !p.desk.again
				p.lease.Commanded = p.lease.Commanded && (paused || p.desk.again)
			}
		}
		if !found.Command.Replay {
			discarded, err := p.env.Store.Discard(ctx, lease, found.Command.ID)
			if err != nil {
				return fails(err)
			}
			return func(ctx actor.Context) {
				p.lease.Parked -= discarded
				p.recovered(ctx)
				p.log.Warn("dead letters discarded", zap.Int64("letters", discarded), zap.Int64("command", found.Command.ID))
			}
		}
		return p.replay(ctx, lease, found.Command.ID, mine)
	})
}

// replay makes the next replay of a command.
func (p *projector) replay(ctx context.Context, lease projection.Lease, command, mine int64) func(actor.Context) {
	replay, err := p.env.Store.BeginReplay(ctx, lease, command, mine)
	if err != nil {
		return func(ctx actor.Context) { p.disobeyed(ctx, err) }
	}
	if replay == nil {
		return func(actor.Context) {}
	}
	stack := ""
	if err = p.again(ctx, lease, replay); err != nil {
		fault := p.env.Store.Classify(err)
		if fault.Class != projection.HandlerFault {
			return func(ctx actor.Context) {
				p.desk.replaying = replay.Letter // this process has not died of it
				p.disobeyed(ctx, err)
			}
		}
		if p.outage(err) {
			return func(ctx actor.Context) {
				p.desk.replaying = replay.Letter
				p.unansweredReplay(ctx, fault)
			}
		}
		err, stack = fault.Err, fault.Stack
		if told := p.env.Store.FailReplay(ctx, lease, *replay, err, stack); told != nil {
			return func(ctx actor.Context) {
				p.desk.replaying = replay.Letter
				p.disobeyed(ctx, told)
			}
		}
	}
	return func(ctx actor.Context) {
		p.desk.replaying = 0
		p.lease.Commanded = true // also when nothing is parked any more: it is the next look that ends the command
		p.answered()
		p.recovered(ctx)
		fields := []zap.Field{zap.Int64("position", replay.Position), zap.String("stream", replay.Stream), zap.Int64("letter", replay.Letter)}
		if err != nil {
			p.log.Warn("replay failed; the event stays parked", append(fields, zap.Error(err))...)
			return
		}
		p.lease.Parked--
		p.log.Info("parked event replayed", fields...)
		p.env.Board.publish(p.lease.ID, func(e *Entry) { e.Applied++ })
	}
}

// again applies a dead letter's event in a batch of its own, which resolves the letter and moves no checkpoint.
func (p *projector) again(ctx context.Context, lease projection.Lease, replay *projection.Replay) error {
	if replay.Deadly() {
		return &projection.Fault{Class: projection.HandlerFault, Err: projection.ErrProcessDied}
	}
	page, err := p.read(ctx, projection.ReadRange{After: replay.Position - 1, UpTo: replay.Position, Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Events) == 0 {
		return &projection.Fault{Class: projection.HandlerFault, Err: projection.ErrEventGone}
	}
	return p.def.Apply(ctx, lease, projection.Batch{Events: page.Events, To: lease.Checkpoint, Replay: replay})
}

// disobeyed takes in that something could not be done with dead letters, through no fault of theirs.
func (p *projector) disobeyed(ctx actor.Context, err error) {
	if errors.Is(err, projection.ErrLeaseLost) {
		p.recheck = true // the lease's row knows
		if p.state == Waiting {
			p.become(Starting, nil)
		}
		return
	}
	p.fault(ctx, err)
}
