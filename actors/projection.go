package actors

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// projector runs one projection: it owns the lease and the checkpoint, and has at most one piece of work under way.
type projector struct {
	env  *Deps
	def  *engine.Definition
	feed *actor.PID
	log  *zap.Logger

	lease engine.Lease
	// position is how far events were handled or passed over; lease.Checkpoint may lag behind it by what did not concern
	// the projection.
	position int64
	sizing   machine.BatchSizer
	// faults are the uncounted faults of the next event. fresh reports whether the next batch needs a new connection. missing
	// is why the projection waits for an object, as written in the database.
	faults  machine.FaultHistory
	fresh   bool
	missing string
	ahead   ahead
	breaker machine.Breaker

	// What the feed told last.
	known  bool
	in     engine.Incarnation
	mark   int64
	from   int64
	window []event.Envelope
	// taken is the position up to which the projection has taken the feed's events.
	taken *atomic.Int64

	state  State
	reason error
	op     int
	busy   bool
	cancel context.CancelFunc
	// failing is a failure that was counted and waits for the supervisor's word; verdict is that word, to be carried out.
	failing  *projection.Failure
	verdict  *messages.Verdict
	desk     desk
	recent   engine.FailureWindow
	yield    chan struct{} // see yielding
	recheck  bool
	draining bool
	drained  bool
	advance  *time.Timer
	// advancing tells that the node was asked to move the checkpoint; trust is when to look for a heartbeat again.
	advancing bool
	trust     *time.Timer
	// mended is when to look whether somebody resumed the projection after it was halted.
	mended *time.Timer
	// changed reports that the incarnation changed and that nothing has succeeded since.
	changed bool
	// cutOff reports that the server went away while a handler was under way.
	cutOff bool
	// asking reports whether the node was asked for the lease.
	asking bool
	// wary is how many more events are tried one by one, since one of them may be deadly to the process.
	wary int
	// begun is an attempt that was counted before it was made.
	begun engine.Begun
	// kept is the reason for which the projection waits for somebody, as the database has it; keeping tells that it is
	// being written.
	kept    string
	keeping bool
	// away tells that it waits for the database, or for what else is no event's fault; faulted that the supervisor counts
	// faults of this projection; tailFailed that its feed cannot go on.
	away       bool
	faulted    bool
	tailFailed bool
	// gone is the error for which the projection stops until it is resumed: events that it has handled no longer exist.
	gone error
	// long is whether the last delivery took long; it is set where that ran, outside of the actor.
	long atomic.Bool
	// cut ends the delivery that is under way, nil while there is none.
	cut atomic.Pointer[context.CancelCauseFunc]
}

// NewProjection makes the actor of a projection whose lease this node holds. fresh tells that the lease was just read;
// else the actor reads it anew before anything else.
func NewProjection(env *Deps, def *engine.Definition, lease engine.Lease, feed *actor.PID, fresh bool) *actor.Props {
	log := env.Log.With(zap.String("tenant", lease.ID.Tenant), zap.String("projection", lease.ID.Name),
		zap.Int("partition", lease.ID.Partition), zap.Int64("epoch", lease.Epoch))
	return Props("projection "+lease.ID.String(), log, &projector{
		env: env, def: def, feed: feed, log: log, lease: lease, recheck: !fresh, breaker: machine.NewBreaker(def.Breaker), taken: new(atomic.Int64)})
}

func (p *projector) Start(ctx actor.Context) {
	p.adopt(p.lease)
	p.state = Starting
	switch {
	case !p.lease.Desired.Runs():
		p.state = Paused
	case p.lease.Halted:
		p.state, p.reason = Failed, errors.New(p.lease.Failed)
	}
	p.publish()
	ctx.Request(p.feed, &messages.Subscribe{Taken: p.taken})
	p.desk.due = p.def.Replay.Interval > 0
	p.log.Info("projection started", zap.Int64("checkpoint", p.lease.Checkpoint))
}

// adopt takes over a lease as the database has it.
func (p *projector) adopt(lease engine.Lease) {
	crashed := p.cutOff && lease.Incarnation != p.lease.Incarnation
	if p.begun.Attempt > 0 && p.begun.Position == lease.CrashPosition && p.begun.Attempt == lease.CrashAttempts && !crashed {
		lease.CrashAttempts-- // neither the process nor the server has died of it
	}
	if p.cutOff = false; crashed {
		// One of the events that were under way may be what crashed the server. An attempt that was counted stays counted.
		p.wary, p.begun, p.desk.replaying = p.def.MaxEvents, engine.Begun{}, 0
	}
	if !p.keeping {
		p.kept = lease.Failed
	}
	if p.lease.Halted && !lease.Halted && p.state == Failed {
		p.become(Starting, nil) // somebody resumed it
	}
	p.lease, p.position = lease, lease.Checkpoint
	if p.sizing.Size() == 0 {
		p.sizing = machine.NewBatchSizer(p.def.MaxEvents)
	}
	p.ahead = ahead{to: lease.Checkpoint, average: p.ahead.average}
	p.taken.Store(lease.Checkpoint)
	if lease.Quarantined() {
		p.wary = max(p.wary, p.def.MaxEvents)
	}
	if lease.FailingPosition > lease.Checkpoint || p.wary > 0 {
		p.sizing.Alone()
	}
	p.failing = nil
}

func (p *projector) Stop(ctx actor.Context) {
	ctx.Request(p.feed, &messages.Unsubscribe{})
	if p.cancel != nil {
		p.cancel()
	}
	stopTimer(p.advance)
	stopTimer(p.trust)
	stopTimer(p.mended)
	stopTimer(p.desk.timer)
	stopTimer(p.desk.resting)
	p.env.Registry.withdraw(p.lease.ID)
}

func (p *projector) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.TailAdvanced:
		p.known, p.in, p.mark, p.from, p.window = true, msg.Incarnation, msg.Mark, msg.From, msg.Events
		p.recheck = p.recheck || p.in != p.lease.Incarnation
		if p.state == Paused || p.state == Failed {
			p.dropWindow()
		}
		if p.tailFailed && p.state == Failed {
			p.become(Starting, nil)
		}
		p.tailFailed = false
	case *messages.TailFailed:
		p.known, p.tailFailed = false, true
		if errors.Is(msg.Err, projection.ErrRestored) && !p.lease.Halted {
			p.gone = msg.Err
		}
		if p.state != Paused && !p.lease.Halted {
			p.become(Failed, msg.Err)
		}
	case *messages.TailDropped:
		p.known, p.recheck = false, true
		p.dropWindow()
	case *messages.Confirm:
		p.confirm(msg.Lease)
	case *messages.Unanswered:
		if p.advancing || p.asking {
			p.advancing, p.asking, p.busy, p.recheck = false, false, false, true
			p.op++
		}
	case *messages.LeaseRead:
		if msg.Op == p.op && p.asking {
			p.busy, p.asking = false, false
			p.reloaded(ctx, msg.Lease, msg.Err)
			if !p.busy {
				p.publish()
			}
		}
	case *messages.Wanted:
		p.wanted(msg.Paused)
		p.recheck = p.recheck || p.busy // what is under way may bring an older answer
	case *messages.Doubt:
		p.recheck = true
		p.cutShort()
		if p.state == Waiting {
			p.become(Starting, nil)
		}
	case *messages.Resume:
		switch p.state {
		case Waiting, Failed:
			p.recheck = true
			p.become(Starting, nil)
			if msg.Lease != nil && !p.busy && p.lease.Check(*msg.Lease, true) == nil {
				p.recheck = false
				lease := *msg.Lease // from before what came since
				lease.HasCommands = lease.HasCommands || p.lease.HasCommands
				p.reloaded(ctx, lease, nil)
			}
		case Paused:
			p.recheck = true // it may be wanted to run by now
		}
	case *messages.Verdict:
		p.verdict = msg
	case *messages.Commanded:
		p.lease.HasCommands, p.desk.again, p.desk.quiet = true, true, false
	case *replayDue:
		p.desk.due, p.desk.timer = true, nil
	case *rested:
		p.desk.resting, p.desk.quiet = nil, false
	case *messages.Drain:
		p.draining = true
		p.rest()
	case *messages.Advanced:
		p.advanced(msg)
	case *trustDue:
		if p.untrusted() {
			p.become(Starting, nil)
		}
	case *mendedDue:
		p.mended, p.recheck = nil, p.recheck || p.lease.Halted
	case *kept:
		p.keeping = false
	case *advanceDue:
		p.askToAdvance(ctx)
	case *done:
		if msg.op != p.op {
			return
		}
		p.busy, p.cancel = false, nil
		msg.then(ctx)
		if !p.busy {
			p.publish()
		}
	}
	p.next(ctx)
	p.publishTaken()
}

// publishTaken publishes to the feed which of its events are still needed. A projection that is paused or waits needs none:
// it begins anew from its checkpoint.
func (p *projector) publishTaken() {
	switch p.state {
	case Paused, Failed, Waiting:
		p.taken.Store(notTaking)
	default:
		p.taken.Store(p.ahead.to)
	}
}

// done is what work under way posts back: then goes on with it, in the actor.
type done struct {
	op   int
	then func(ctx actor.Context)
}

// do waits for a slot, runs work in a goroutine and then, in the actor, what it returns. limit bounds the work; the wait
// for its turn is bounded by nothing but the end of the actor or of the runtime.
func (p *projector) do(ctx actor.Context, limit time.Duration, slot slotFunc, work func(ctx context.Context) func(ctx actor.Context)) {
	p.op++
	op, id := p.op, p.lease.ID
	p.busy = true
	p.env.Registry.publish(id, func(e *ProjectionEntry) { e.Queued = true })
	p.cancel = p.env.runUnbounded(ctx.Self(), func(ctx context.Context) any {
		turn, stop := context.WithCancel(p.env.accept)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		release, err := slot(turn)
		if err != nil {
			return &done{op: op, then: func(ctx actor.Context) { p.fault(ctx, err) }}
		}
		defer release()
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		p.env.Registry.amend(id, func(e *ProjectionEntry) { e.Busy, e.Limit, e.Queued = time.Now(), limit, false })
		return &done{op: op, then: work(ctx)}
	})
}

// slotFunc waits for a slot.
type slotFunc func(ctx context.Context) (release func(), err error)

// batchSlot waits for a slot for a batch, or for a delivery, of this projection's tenant. Events at which a process ended go one
// by one, so that it becomes known which of them did it.
func (p *projector) batchSlot() slotFunc {
	tenant := p.lease.ID.Tenant
	slot := func(ctx context.Context) (func(), error) { return p.env.Limiter.batch(ctx, tenant) }
	if p.def.Leased {
		slot = func(ctx context.Context) (func(), error) { return p.env.Limiter.delivery(ctx, tenant, p.long.Load()) }
	}
	if p.wary > 0 && p.lease.CrashPosition > p.lease.Checkpoint && p.lease.CrashAttempts > 0 {
		return func(ctx context.Context) (func(), error) { return p.env.Limiter.suspect(ctx, slot) }
	}
	return slot
}

// next begins what is to be done next, if nothing is under way.
func (p *projector) next(ctx actor.Context) {
	p.keep(ctx)
	if p.verdict != nil && !p.busy {
		p.judged(ctx, p.verdict)
	}
	switch {
	case p.busy, p.drained:
	case p.draining:
		stopTimer(p.advance)
		advance := engine.Advance{Lease: p.lease, To: p.position, Begun: p.begun, Replaying: p.desk.replaying}
		p.draining, p.drained = false, true
		p.become(Waiting, nil)
		ctx.Request(ctx.Parent(), &messages.Drained{ID: p.lease.ID, Advance: advance})
	case p.mayObey() && !p.yields():
		p.obey(ctx)
	case p.state == Waiting && !p.untrusted():
		// Until the supervisor has its word: it will.
	case p.recheck:
		p.reload(ctx)
	case p.gone != nil && !p.lease.Halted:
		p.haltFor(ctx, p.gone, "projection stopped, since events of its tenant are gone; it waits to be resumed")
	case p.lease.Halted:
		p.halted(ctx)
	case p.state == Paused, p.state == Waiting, p.state == Failed, !p.known:
	case p.position < p.mark && !p.env.Trusted():
		p.become(Waiting, errUntrusted)
		stopTimer(p.trust)
		p.trust = p.env.after(p.env.Timing.HeartbeatInterval, ctx.Self(), &trustDue{})
	case p.position < p.mark:
		if p.mark-p.position > int64(p.def.MaxEvents) {
			p.become(CatchUp, nil)
		} else {
			p.become(Live, nil)
		}
		p.desk.turn = time.Time{}
		p.step(ctx)
	default:
		p.dropWindow()
		p.become(Live, nil)
		p.wary = 0
		if !p.mayObey() {
			p.recovered(ctx)
		}
		p.lag(ctx)
	}
	switch {
	case p.busy, p.drained:
	case p.mayObey():
		p.obey(ctx)
	case !p.env.Trusted() && !p.untrusted() && (p.lease.HasCommands || p.desk.due && p.lease.Parked > 0):
		stopTimer(p.trust)
		p.trust = p.env.after(p.env.Timing.HeartbeatInterval, ctx.Self(), &trustDue{})
	}
	if !p.busy {
		p.keep(ctx) // an idle projection may get no message for long
	}
}

// dropWindow lets go of the shared events, which are kept by nobody who does not need them soon. What lies below the mark
// must then be read: should the checkpoint be found further back, an empty window would pass for one with nothing in it.
func (p *projector) dropWindow() { p.from, p.window = p.mark, nil }

// trustDue is sent when a heartbeat may have arrived again.
type trustDue struct{}

// errUntrusted is why a projection waits while its node cannot be sure of its leases.
var errUntrusted = errors.New("no heartbeat of this node arrived for nearly as long as its leases last")

// untrusted tells that the projection waits for a heartbeat, and not for the supervisor.
func (p *projector) untrusted() bool { return p.state == Waiting && errors.Is(p.reason, errUntrusted) }

// become changes the state and publishes it where it is news.
func (p *projector) become(state State, reason error) {
	if p.state == state && (reason == nil && p.reason == nil || errors.Is(reason, errUntrusted) && p.untrusted()) {
		return
	}
	if p.state, p.reason = state, reason; state != Waiting {
		p.away = false
	}
	p.publish()
}

// shown is the state as others see it.
func (p *projector) shown() State {
	if p.state == Waiting && errors.Is(p.reason, projection.ErrMissingObject) {
		return MissingObject
	}
	return p.state
}

func (p *projector) publish() {
	p.env.Registry.publish(p.lease.ID, func(e *ProjectionEntry) {
		e.State, e.Position, e.Mark, e.Reason, e.Halted = p.shown(), p.position, p.mark, p.reason, p.lease.Halted
		e.Breaker = p.breaker.State()
		if !p.busy {
			e.Busy, e.Queued = time.Time{}, false
		}
	})
}

// kept tells that the database was told, or could not be.
type kept struct{}

// keep lets everybody know, by the database, that the projection waits for somebody, or does not any more. Where that does
// not succeed, the lease tells when it is read anew what there is still to be told.
func (p *projector) keep(ctx actor.Context) {
	if p.lease.Halted {
		return // That is taken back by whoever resumes the projection, and by nobody else.
	}
	reason := p.kept
	switch p.state {
	case Failed:
		if reason = text(p.reason); reason == "" {
			reason = projection.ErrFailed.Error()
		}
	case Live, CatchUp, Paused:
		reason = ""
	}
	if reason == p.kept || p.keeping || p.drained {
		return
	}
	p.kept, p.keeping = reason, true
	lease := p.lease
	p.env.run(ctx.Self(), p.env.Timing.QueryTimeout, func(ctx context.Context) any {
		release, err := p.env.Limiter.read(ctx)
		if err == nil {
			defer release()
			err = p.env.Store.SetFailed(ctx, lease, reason)
		}
		if err != nil {
			p.log.Debug("state not kept", zap.String("reason", reason), zap.Error(err))
		}
		return &kept{}
	})
}

func (p *projector) wanted(paused bool) {
	switch {
	case paused && p.state != Paused:
		p.log.Info("projection paused")
		p.rest()
		p.failing = nil
		p.become(Paused, nil)
	case !paused && p.state == Paused:
		p.log.Info("projection resumed")
		p.recheck = true
		p.become(Starting, nil)
	}
}

// fault tells the supervisor of a fault that is no event's.
func (p *projector) fault(ctx actor.Context, err error) {
	if errors.Is(err, projection.ErrIncarnationChanged) && !p.changed {
		// The first time at once. Where two servers answer by turns, the supervisor's delays keep this from spinning.
		p.changed = true
		p.log.Info("server crashed or was replaced; everything is read anew", zap.Error(err))
		p.recheck, p.failing, p.gone = true, nil, nil
		if p.state == Waiting {
			p.become(Starting, nil)
		}
		return
	}
	fault := p.env.Store.Classify(err)
	// While the server answers, replays go on though one event fails.
	p.failing, p.away = nil, fault.Unreachable || fault.Probe || fault.Class != engine.Unclear && fault.Class != engine.MissingObject
	switch fault.Class {
	case engine.LeaseLost:
		p.log.Info("lease lost", zap.Error(err))
		ctx.Request(ctx.Parent(), &messages.Ended{Lease: p.lease, Reason: err})
		ctx.Stop(ctx.Self())
		p.become(Waiting, err)
	case engine.Configuration:
		p.faulted = true
		p.become(Failed, err)
		ctx.Request(ctx.Parent(), &messages.Faulted{Fault: fault})
	default:
		p.faulted = true
		if p.state != Paused {
			p.become(Waiting, err)
		}
		ctx.Request(ctx.Parent(), &messages.Faulted{Fault: fault})
	}
}

// advanceDue is sent when the checkpoint is to follow the position.
type advanceDue struct{}

// told tells that the lease's row says where the projection is, and nothing of deaths once it is at rest.
func (p *projector) told() bool {
	return p.position <= p.lease.Checkpoint && (p.lease.CrashCount == 0 || p.position < p.mark)
}

// lag arranges that the checkpoint follows over what did not concern the projection. All of the node's projections do
// that at the same instants, so that one statement moves them all.
func (p *projector) lag(ctx actor.Context) {
	if p.advance != nil || p.told() {
		return
	}
	every := p.env.Timing.AdvanceEvery
	p.advance = p.env.after(every-p.env.sinceStart()%every, ctx.Self(), &advanceDue{})
}

func (p *projector) askToAdvance(ctx actor.Context) {
	p.advance = nil
	if p.busy || p.recheck || p.state == Failed || p.state == Waiting || p.told() {
		p.lag(ctx)
		return
	}
	// No batch begins until the answer is there: it would start from a checkpoint that is about to move.
	p.op++
	p.busy, p.advancing = true, true
	p.env.Registry.publish(p.lease.ID, func(e *ProjectionEntry) { e.Busy, e.Limit = time.Now(), 2*p.env.Timing.QueryTimeout })
	ctx.Request(ctx.Parent(), &messages.AdvanceRequest{Advance: engine.Advance{Lease: p.lease, To: p.position}})
}

func (p *projector) advanced(msg *messages.Advanced) {
	if !p.advancing {
		return
	}
	p.busy, p.advancing = false, false
	if msg.Moved {
		if msg.To == p.lease.Checkpoint {
			p.lease.CrashCount = 0
		}
		p.lease.Checkpoint = msg.To
	} else {
		p.recheck = true
	}
	p.publish()
}

// recovered tells the supervisor that things work again, where it counts faults.
func (p *projector) recovered(ctx actor.Context) {
	p.changed = false
	if p.faulted {
		p.faulted = false
		ctx.Request(ctx.Parent(), &messages.Recovered{})
	}
}
