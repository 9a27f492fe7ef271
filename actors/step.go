package actors

import (
	"context"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
)

// step handles the next batch: it gets a slot, reads where the shared tail does not reach, and runs the batch
// transaction. While that runs, what comes after it is read already.
func (p *projector) step(ctx actor.Context) {
	if len(p.ahead.events) == 0 {
		p.fromTail()
	}
	if len(p.ahead.events) == 0 && p.ahead.to > p.position {
		p.passOver(ctx)
		if p.position >= p.mark {
			return
		}
	}
	p.probe()
	lease, def, here, sizing, mark := p.lease, p.def, p.ahead, p.sizing, p.mark
	recent, yield, fresh := p.recent, p.yielding(), p.fresh
	var counted engine.Begun
	wary := p.wary > 0
	bound := def.Timeout + 5*p.env.Timing.QueryTimeout
	p.do(ctx, bound, p.batchSlot(), func(ctx context.Context) func(actor.Context) {
		read, err := p.reading(ctx, len(here.events) == 0 || lease.ParkedStreams || wary)
		if err != nil {
			return func(ctx actor.Context) { p.fault(ctx, err) }
		}
		defer read()
		if len(here.events) == 0 {
			page, err := p.read(ctx, lease, here.rangeAfter(def, mark))
			if err != nil {
				return func(ctx actor.Context) { p.fault(ctx, err) }
			}
			here.add(page)
			if len(here.events) == 0 {
				return func(ctx actor.Context) {
					p.ahead = here
					p.passOver(ctx)
				}
			}
		}
		aside, err := p.aside(ctx, lease, here.window(def))
		if err != nil {
			return func(ctx actor.Context) { p.fault(ctx, err) }
		}
		batch, full := here.take(def, sizing, aside)
		if full {
			return func(ctx actor.Context) {
				p.ahead = here
				p.full(ctx, here.events[0])
			}
		}
		if wary && len(batch.Events) > 0 {
			// Its attempt is counted first: nobody may be left to do it.
			e := batch.Events[0]
			if lease.Deadly(e.Position, def.Retry) {
				return func(ctx actor.Context) {
					p.ahead = here
					p.died(ctx, e)
				}
			}
			counted = engine.Begun{Position: e.Position, Attempt: lease.CrashAttemptsAt(e.Position) + 1}
			if err := p.env.Store.BeginAttempt(ctx, lease, e.Position, counted.Attempt); err != nil {
				return func(ctx actor.Context) {
					p.begun = counted // it may have been counted all the same
					p.fault(ctx, err)
				}
			}
		}
		batch.FailureWindow, batch.Yield, batch.Fresh = recent, yield, fresh
		next := p.prefetch(ctx, lease, here, len(here.events)-len(batch.Events)-len(batch.BlockedByStream), mark)
		read()
		err = p.apply(ctx, lease, batch)
		found := p.examine(ctx, err)
		page, fetched := <-next
		return func(ctx actor.Context) {
			p.ahead, p.begun = here, counted
			if fetched {
				p.ahead.add(page)
			}
			p.applied(ctx, batch, err, found)
		}
	})
}

// prefetch reads the page after here where less than a batch is left of it and it can be had at once. The page, if any,
// comes on the channel, which is closed then. An error is nobody's concern: the page is read again when it is needed.
func (p *projector) prefetch(ctx context.Context, lease engine.Lease, here ahead, left int, mark int64) <-chan engine.Page {
	next := make(chan engine.Page, 1)
	if left >= p.def.MaxEvents || here.to >= mark || !p.env.Limiter.tryRead() {
		close(next)
		return next
	}
	go func() {
		defer close(next)
		defer p.env.Limiter.doneReading()
		if page, err := p.read(ctx, lease, here.rangeAfter(p.def, mark)); err == nil {
			next <- page
		}
	}()
	return next
}

// aside finds out which of the events that come next are of parked streams. Only this actor, holding the lease, changes that.
func (p *projector) aside(ctx context.Context, lease engine.Lease, window []event.Envelope) (machine.ParkedStreams, error) {
	if !lease.ParkedStreams {
		return machine.ParkedStreams{}, nil
	}
	streams := make([]string, len(window))
	for i := range window {
		streams[i] = window[i].Stream
	}
	slices.Sort(streams)
	parked, err := p.env.Store.ParkedStreams(ctx, lease, slices.Compact(streams))
	return machine.ParkedStreams{Streams: parked, Room: p.def.Room(lease.Parked)}, err
}

// passOver moves on over events that do not concern the projection.
func (p *projector) passOver(ctx actor.Context) {
	p.position = p.ahead.to
	p.publish()
	p.recovered(ctx)
	p.lag(ctx)
}

// applied takes in how a batch ended.
func (p *projector) applied(ctx actor.Context, batch engine.Batch, err error, found finding) {
	batch, over, err := p.partly(ctx, batch, err)
	if over {
		return
	}
	if err == nil {
		p.lease.Checkpoint, p.position = batch.To, batch.To
		p.lease.FailingPosition, p.lease.Attempts, p.lease.CrashCount, p.begun = 0, 0, 0, engine.Begun{}
		p.ahead.passed(p.position)
		if p.lease.Parked += int64(len(batch.BlockedByStream)); len(batch.BlockedByStream) > 0 {
			p.replayIn(ctx, p.def.Replay.Interval)
			p.log.Info("events parked behind others of their streams", zap.Int("events", len(batch.BlockedByStream)), zap.Int64("up to", batch.To))
		}
		p.recent.Handled(len(batch.Events))
		if p.fresh = false; len(batch.Events) > 0 {
			p.sizing.Succeeded()
			p.faults.Forget()
			p.missing = ""
		}
		if p.wary -= len(batch.Events); p.wary > 0 {
			p.sizing.Alone()
		}
		p.recovered(ctx)
		if len(batch.Events) > 0 {
			p.answered()
		}
		p.env.Registry.publish(p.lease.ID, func(e *ProjectionEntry) {
			e.Applied += int64(len(batch.Events))
			e.State, e.Position, e.Mark, e.Reason, e.Busy = p.state, p.position, p.mark, p.reason, time.Time{}
		})
		return
	}
	p.failed(ctx, batch, found)
}
