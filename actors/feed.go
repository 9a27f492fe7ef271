package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

const (
	// windowEvents and windowBytes bound what a feed keeps of the events it read last. A projection that is further
	// behind reads for itself.
	windowEvents = 4096
	windowBytes  = 8 << 20
	// windowIdle is how long a feed keeps them when nothing new comes.
	windowIdle = 5 * time.Second
)

// feed follows the end of one tenant's events for all projections of the tenant on this node: it settles once, reads
// new events once, and hands the same slice to all.
type feed struct {
	env    *Env
	tenant string
	ref    *feedRef
	log    *zap.Logger

	tail    projection.Tail
	subs    map[string]*actor.PID
	known   bool // the mark is known
	waiting bool // for Resume, after a fault
	faulted bool // the supervisor counts faults
	polling bool
	op      int  // numbers polls, so that one that is not waited for any more is told apart
	wanted  bool // another poll is wanted when this one is back
	cancel  context.CancelFunc
	again   *time.Timer
	idle    *time.Timer

	incarnation projection.Incarnation // of the server in which what follows was read

	mark   int64
	from   int64 // the window holds all events with from < position <= mark
	window []event.Envelope
	bytes  int
}

// NewFeed makes the feed of a tenant.
func NewFeed(env *Env, tenant string) *actor.Props {
	log := env.Log.With(zap.String("tenant", tenant))
	return Props("feed "+tenant, log, &feed{env: env, tenant: tenant, log: log, subs: make(map[string]*actor.PID)})
}

// polled is what a poll posts back.
type polled struct {
	op     int
	update projection.TailUpdate
	err    error
}

// windowDue is sent when nothing came for a while.
type windowDue struct{}

func (f *feed) Start(ctx actor.Context) {
	f.tail = f.newTail()
	f.ref = f.env.Feeds.add(f.tenant, ctx.Self())
	f.env.Board.publishFeed(f.tenant, func(e *FeedEntry) { *e = FeedEntry{} })
	f.poll(ctx)
}

// newTail makes a tail that takes a slot for each of its reads, and none while it waits for others.
func (f *feed) newTail() projection.Tail {
	tail := f.env.Store.Tail(f.tenant)
	tail.ReadWithin(f.env.Slots.read)
	return tail
}

func (f *feed) Stop(actor.Context) {
	f.env.Feeds.remove(f.tenant, f.ref)
	f.env.Board.withdrawFeed(f.tenant)
	if f.cancel != nil {
		f.cancel()
	}
	stopTimer(f.again)
	stopTimer(f.idle)
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

func (f *feed) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.Wake:
		f.ref.woken.Store(false)
		f.poll(ctx)
	case *messages.Subscribe:
		f.subs[ctx.Sender().Id] = ctx.Sender()
		if f.known {
			ctx.Send(ctx.Sender(), f.tailAdvanced())
		}
		f.poll(ctx) // while nobody listened, wakes were passed over
	case *messages.Unsubscribe:
		delete(f.subs, ctx.Sender().Id)
	case *messages.Recheck:
		if msg.Incarnation == 0 || f.known && msg.Incarnation != f.incarnation {
			f.drop(ctx)
		}
		f.poll(ctx)
	case *messages.Resume:
		f.waiting = false
		f.poll(ctx)
	case *polled:
		f.polled(ctx, msg)
	case *windowDue:
		f.from, f.window, f.bytes = f.mark, nil, 0
	}
}

// drop forgets everything, and whatever a poll under way finds.
func (f *feed) drop(ctx actor.Context) {
	if f.cancel != nil {
		f.cancel()
	}
	f.tail, f.known, f.polling = f.newTail(), false, false
	f.op++
	f.env.Board.publishFeed(f.tenant, func(e *FeedEntry) { e.Busy = time.Time{} })
	// It goes the same way as what was handed out before, so that it takes that back.
	for _, sub := range f.subs {
		ctx.Send(sub, &messages.TailDropped{})
	}
}

// poll looks for new events, unless a look is under way; then another follows it.
func (f *feed) poll(ctx actor.Context) {
	switch {
	case f.polling:
		f.wanted = true
		return
	case f.waiting, len(f.subs) == 0:
		return
	}
	stopTimer(f.again)
	f.polling, f.wanted = true, false
	f.op++
	tail, op := f.tail, f.op
	f.env.Board.publishFeed(f.tenant, func(e *FeedEntry) { e.Busy = time.Now() })
	f.cancel = f.env.run(ctx.Self(), f.env.Timing.Call, func(ctx context.Context) any {
		update, err := tail.Poll(ctx)
		return &polled{op: op, update: update, err: err}
	})
}

func (f *feed) polled(ctx actor.Context, msg *polled) {
	if msg.op != f.op {
		return
	}
	f.polling, f.cancel = false, nil
	if msg.err != nil {
		f.failed(ctx, msg.err)
		return
	}
	if f.faulted {
		f.faulted = false
		ctx.Request(ctx.Parent(), &messages.Recovered{})
	}
	u := msg.update
	f.env.Board.publishFeed(f.tenant, func(e *FeedEntry) { *e = FeedEntry{Mark: u.Mark, Held: u.Held} })
	if u.Mark > f.mark || !f.known || u.Incarnation != f.incarnation {
		f.extend(ctx, u)
		advanced := f.tailAdvanced()
		for _, sub := range f.subs {
			ctx.Send(sub, advanced)
		}
	}
	f.ref.mark.Store(u.Mark)
	f.ref.incarnation.Store(int64(u.Incarnation))
	switch {
	case u.More, f.wanted:
		f.poll(ctx)
	case u.Again > 0:
		f.again = f.env.after(u.Again, ctx.Self(), &messages.Wake{})
	}
}

// extend adds what was read to the window, and lets go of the oldest where there is too much of it. Slices that were
// handed out stay as they are: elements are only ever added behind their ends.
func (f *feed) extend(ctx actor.Context, u projection.TailUpdate) {
	if !f.known || u.From != f.mark || u.Incarnation != f.incarnation {
		f.incarnation = u.Incarnation
		f.known, f.from, f.window, f.bytes = true, u.From, nil, 0
	}
	f.window = append(f.window, u.Events...)
	for i := range u.Events {
		f.bytes += u.Events[i].Size()
	}
	f.mark = u.Mark
	drop := 0
	for drop < len(f.window) && (len(f.window)-drop > windowEvents || f.bytes > windowBytes) {
		f.bytes -= f.window[drop].Size()
		f.from = f.window[drop].Position
		drop++
	}
	f.window = f.window[drop:]
	if len(f.window) > 0 {
		if f.idle == nil {
			f.idle = f.env.after(windowIdle, ctx.Self(), &windowDue{})
		} else {
			f.idle.Reset(windowIdle)
		}
	}
}

func (f *feed) tailAdvanced() *messages.TailAdvanced {
	return &messages.TailAdvanced{Incarnation: f.incarnation, Mark: f.mark, From: f.from, Events: f.window}
}

func (f *feed) failed(ctx actor.Context, err error) {
	f.waiting, f.faulted = true, true
	fault := f.env.Store.Classify(err)
	f.env.Board.publishFeed(f.tenant, func(e *FeedEntry) { *e = FeedEntry{Mark: f.mark, Err: err} })
	if fault.Class == projection.Configuration {
		for _, sub := range f.subs {
			ctx.Send(sub, &messages.TailFailed{Err: err})
		}
	}
	f.known = false
	ctx.Request(ctx.Parent(), &messages.Faulted{Fault: fault})
}
