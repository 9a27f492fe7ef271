package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

const (
	// windowEvents and windowBytes bound what a feed keeps of the events it read last. A projection that is further
	// behind reads for itself.
	windowEvents = 4096
	windowBytes  = 8 << 20
	// windowAge is how long a feed keeps an event after it was read. A projection that is slower reads it again.
	windowAge = 5 * time.Second
)

// feed follows the end of one tenant's events for all projections of the tenant on this node: it settles once, reads
// new events once, and hands the same slice to all.
type feed struct {
	deps   *Deps
	tenant string
	ref    *feedRef

	tail    engine.Tail
	subs    map[string]subscriber
	known   bool // the mark is known
	waiting bool // for Resume, after a fault
	faulted bool // the supervisor counts faults
	polling bool
	op      int  // numbers polls, so that one that is not waited for any more is told apart
	wanted  bool // another poll is wanted when this one is back
	cancel  context.CancelFunc
	again   *time.Timer
	age     *time.Timer // nil while the window is empty

	incarnation engine.Incarnation // of the server in which what follows was read

	window window
	share  share // of the node's memory for windows
}

// subscriber is a projection that the feed sends events to.
type subscriber struct {
	pid *actor.PID
	// taken is the position up to which it has taken the events that it was sent, or machine.NotTaking.
	taken *atomic.Int64
}

// NewFeed makes the feed of a tenant.
func NewFeed(deps *Deps, tenant string) *actor.Props {
	log := deps.Log.With(zap.String("tenant", tenant))
	return Props("feed "+tenant, log, &feed{deps: deps, tenant: tenant, subs: make(map[string]subscriber)})
}

// polled is what a poll posts back.
type polled struct {
	op     int
	update engine.TailUpdate
	err    error
}

type (
	// windowDue is sent when the oldest events of the window are as old as they may get.
	windowDue struct{}
	// giveWay is sent when other windows of the node need the memory.
	giveWay struct{}
)

func (f *feed) Start(ctx actor.Context) {
	self := ctx.Self()
	f.share.giveWay = func() { f.deps.System.Root.Send(self, &giveWay{}) }
	f.tail = f.newTail()
	f.ref = f.deps.Feeds.add(f.tenant, ctx.Self())
	f.deps.Registry.publishFeed(f.tenant, func(e *FeedEntry) { *e = FeedEntry{} })
	f.poll(ctx)
}

// newTail makes a tail that takes a slot for each of its reads, and none while it waits for others.
func (f *feed) newTail() engine.Tail {
	tail := f.deps.Store.Tail(f.tenant)
	tail.ReadWithin(f.deps.Limiter.read)
	return tail
}

func (f *feed) Stop(actor.Context) {
	f.deps.Feeds.remove(f.tenant, f.ref)
	f.deps.Registry.withdrawFeed(f.tenant)
	if f.cancel != nil {
		f.cancel()
	}
	stopTimer(f.again)
	stopTimer(f.age)
	f.deps.windows.use(&f.share, 0)
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
		f.subs[ctx.Sender().Id] = subscriber{pid: ctx.Sender(), taken: msg.Taken}
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
		f.age = nil
		f.shrink(ctx, f.window.readBefore(time.Now().Add(-f.deps.windowAge)))
	case *giveWay:
		f.shrink(ctx, f.window.passed(f.window.mark))
	}
}

// drop forgets everything, including the result of a poll under way.
func (f *feed) drop(ctx actor.Context) {
	if f.cancel != nil {
		f.cancel()
	}
	f.tail, f.polling = f.newTail(), false
	f.forget()
	f.op++
	f.deps.Registry.publishFeed(f.tenant, func(e *FeedEntry) { e.Busy = time.Time{} })
	// TailDropped takes the same path as the events that were sent before, so it arrives after them.
	for _, sub := range f.subs {
		ctx.Send(sub.pid, &messages.TailDropped{})
	}
}

// forget is called when the mark is no longer known.
func (f *feed) forget() {
	f.known = false
	f.ref.mark.Store(0)
	f.ref.incarnation.Store(0)
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
	f.deps.Registry.publishFeed(f.tenant, func(e *FeedEntry) { e.Busy = time.Now() })
	f.cancel = f.deps.run(ctx.Self(), f.deps.Timing.QueryTimeout, func(ctx context.Context) any {
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
	f.deps.Registry.publishFeed(f.tenant, func(e *FeedEntry) { *e = FeedEntry{Mark: u.Mark, Held: u.Held} })
	if u.Mark > f.window.mark || !f.known || u.Incarnation != f.incarnation {
		f.extend(ctx, u)
		advanced := f.tailAdvanced()
		for _, sub := range f.subs {
			ctx.Send(sub.pid, advanced)
		}
	}
	f.ref.mark.Store(u.Mark)
	f.ref.incarnation.Store(int64(u.Incarnation))
	switch {
	case u.More, f.wanted:
		f.poll(ctx)
	case u.Again > 0:
		f.again = f.deps.after(u.Again, ctx.Self(), &messages.Wake{})
	}
}

// extend adds the events of a poll to the window, except those that no subscriber needs. A projection that is far behind
// reads for itself.
func (f *feed) extend(ctx actor.Context, u engine.TailUpdate) {
	if !f.known || u.From != f.window.mark || u.Incarnation != f.incarnation {
		f.known, f.incarnation = true, u.Incarnation
		f.window.reset(u.From)
	}
	f.window.add(u.Events, u.Mark, u.Bytes, time.Now())
	f.window.passed(f.needed())
	f.window.limit(windowEvents, windowBytes)
	f.keep(ctx)
}

// needed is the position up to which all subscribers have taken the events. One that is so far behind that it reads for itself
// does not count, unless it will reach the window soon.
func (f *feed) needed() int64 {
	needed := f.window.mark
	for _, sub := range f.subs {
		if sub.taken == nil {
			return f.window.from
		}
		if taken := sub.taken.Load(); taken >= f.window.from-windowEvents {
			needed = min(needed, taken)
		}
	}
	return needed
}

// shrink is called when the window may have become smaller. It sends the rest to the subscribers that still hold the old one.
func (f *feed) shrink(ctx actor.Context, smaller bool) {
	if smaller {
		advanced := f.tailAdvanced()
		for _, sub := range f.subs {
			if f.known && sub.taken != nil && sub.taken.Load() < advanced.Mark {
				ctx.Send(sub.pid, advanced)
			}
		}
	}
	f.keep(ctx)
}

// keep accounts for the window's memory, and schedules its release.
func (f *feed) keep(ctx actor.Context) {
	f.deps.windows.use(&f.share, f.window.size())
	switch {
	case len(f.window.pages) == 0:
		stopTimer(f.age)
		f.age = nil
	case f.age == nil:
		f.age = f.deps.after(time.Until(f.window.pages[0].read.Add(f.deps.windowAge)), ctx.Self(), &windowDue{})
	}
}

func (f *feed) tailAdvanced() *messages.TailAdvanced {
	return &messages.TailAdvanced{Incarnation: f.incarnation, Mark: f.window.mark, From: f.window.from, Events: f.window.events}
}

func (f *feed) failed(ctx actor.Context, err error) {
	f.waiting, f.faulted = true, true
	fault := f.deps.Store.Classify(err)
	f.deps.Registry.publishFeed(f.tenant, func(e *FeedEntry) { *e = FeedEntry{Mark: f.window.mark, Err: err} })
	if fault.Class == engine.Configuration {
		for _, sub := range f.subs {
			ctx.Send(sub.pid, &messages.TailFailed{Err: err})
		}
	}
	f.forget()
	ctx.Request(ctx.Parent(), &messages.Faulted{Fault: fault})
}
