package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/growstack"
	"github.com/millrace-go/millrace/internal/window"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
)

const (
	// windowEvents and windowBytes limit the newest events that a feed keeps. A projection that is further behind reads
	// for itself.
	windowEvents = 4096
	windowBytes  = 8 << 20
)

// feed follows the end of one tenant's events for all projections of the tenant on this node. It settles once, reads
// new events once, and sends the same slice to all.
type feed struct {
	deps   *Deps
	log    *zap.Logger
	tenant string
	ref    *feedRef
	subs   map[string]subscriber

	poller engine.TailPoller
	polls  polls
	held   *engine.Held // as observed last
	faults feedFaults

	// known reports whether the settled mark is known. It and the window were read in that incarnation of the server.
	known       bool
	incarnation engine.Incarnation
	// since is when the events began to follow each other without a new beginning.
	since  time.Time
	window window.Window
	share  share       // of the node's memory for windows
	age    *time.Timer // nil while the window is empty
}

// subscriber is a projection that the feed sends events to.
type subscriber struct {
	pid *actor.PID
	// taken is the position up to which it has taken the events, or machine.NotTaking. If it is nil, all events are
	// kept.
	taken *atomic.Int64
}

// polls are the polls of a feed.
type polls struct {
	current *poll       // in progress, nil if there is none
	wanted  int64       // another poll follows the current one, unless that settles up to this position
	next    *time.Timer // of the next poll
	// woken is when the first wake was sent since the last poll began, zero if none was.
	woken time.Time
}

// begin records that a poll begins, which answers all wakes so far.
func (p *polls) begin(current *poll, now time.Time) (began observe.Read) {
	began.Woken = !p.woken.IsZero()
	if began.Woken {
		began.Latency = max(0, now.Sub(p.woken))
	}
	p.current, p.wanted, p.woken = current, 0, time.Time{}
	return began
}

// poll is a poll in progress. A poll that is not the current one any more has no effect.
type poll struct{ cancel context.CancelFunc }

// NewFeed returns the feed of a tenant.
func NewFeed(deps *Deps, tenant string) Behaviour {
	return &feed{
		deps: deps, log: deps.Log.With(zap.String("tenant", tenant)), tenant: tenant, subs: make(map[string]subscriber),
	}
}

func (f *feed) Start(ctx actor.Context) {
	self := ctx.Self()
	f.share.giveWay = func() { f.deps.call(self, f.giveWay) }
	f.poller = f.newPoller()
	f.ref = f.deps.Feeds.add(f.tenant, self)
	f.publish(func(e *FeedEntry) { *e = FeedEntry{} })
	f.poll(ctx)
}

// publish changes the feed's entry in the registry, and amend does if it has one. If the tenant was dropped and created
// again under its name, the entry is that of another feed by now.
func (f *feed) publish(change func(*FeedEntry)) {
	if f.deps.Feeds.find(f.tenant) == f.ref {
		f.deps.Registry.feeds.publish(f.tenant, change)
	}
}

func (f *feed) amend(change func(*FeedEntry)) {
	if f.deps.Feeds.find(f.tenant) == f.ref {
		f.deps.Registry.feeds.amend(f.tenant, change)
	}
}

// newPoller returns a poller that holds a slot during each of its reads, and none while it waits for open transactions.
func (f *feed) newPoller() engine.TailPoller {
	poller := f.deps.Events.TailPoller(f.tenant)
	poller.ReadWithin(f.readSlot)
	return poller
}

// readSlot is the ReadSlot of the poller. The wait for the slot has no limit: if thousands of feeds wait, all of them
// would reach it, and begin again.
func (f *feed) readSlot(ctx context.Context) (limited context.Context, release func(), err error) {
	f.amend(func(e *FeedEntry) { e.Queued = true })
	free, err := f.deps.Limiter.read(ctx, f.deps.Limiter.feed(f.tenant))
	if err != nil {
		return nil, nil, err
	}
	growstack.Grow()
	limited, cancel := context.WithTimeout(ctx, f.deps.Timing.QueryTimeout)
	f.amend(func(e *FeedEntry) { e.Busy, e.Queued = time.Now(), false })
	return limited, func() {
		f.amend(func(e *FeedEntry) { e.Busy = time.Time{} })
		cancel()
		free()
	}, nil
}

func (f *feed) Stop(actor.Context) {
	if f.deps.Feeds.remove(f.tenant, f.ref) {
		f.deps.Registry.feeds.withdraw(f.tenant)
	}
	if f.polls.current != nil {
		f.polls.current.cancel()
	}
	stopTimer(f.polls.next)
	f.observeHeld(nil)
	stopTimer(f.age)
	f.deps.windows.use(&f.share, 0)
	f.deps.Events.Followers().Advanced(f.tenant, nil)
}

func (f *feed) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.Wake:
		at := time.Unix(0, f.ref.wokenAt.Load())
		f.ref.woken.Store(false)
		// The wake before this one may have had its position.
		wanted := f.ref.wanted.Swap(0)
		if f.ref.has(wanted, time.Now()) {
			return
		}
		if f.take(ctx, msg.Own, at) && wanted <= f.window.Mark {
			return
		}
		if f.polls.woken.IsZero() {
			f.polls.woken = at
		}
		f.pollUpTo(ctx, wanted)
	case *messages.Subscribe:
		_, again := f.subs[ctx.Sender().Id]
		first := len(f.subs) == 0
		f.subs[ctx.Sender().Id] = subscriber{pid: ctx.Sender(), taken: msg.Taken}
		f.ref.followed.Store(true)
		if f.known {
			ctx.Send(ctx.Sender(), f.advanced())
		}
		if first || again {
			f.poll(ctx) // without subscribers, wakes were ignored
		}
	case *messages.Unsubscribe:
		delete(f.subs, ctx.Sender().Id)
		f.ref.followed.Store(len(f.subs) > 0)
		if len(f.subs) == 0 { // it polls no more
			f.deps.Events.Followers().Advanced(f.tenant, nil)
		}
	case *messages.Recheck:
		if msg.Gone {
			f.deps.Events.Followers().Gone(f.tenant)
		}
		if msg.Incarnation == 0 || f.known && msg.Incarnation != f.incarnation {
			f.restart(ctx)
		}
		f.poll(ctx)
	case *messages.ServerAnswers:
		f.serverAnswers(ctx, msg.Waited)
	case *messages.Resumed:
		if f.faults.misconfigured {
			f.goOn(ctx)
		}
	}
}

// restart forgets everything, including the result of the poll in progress.
func (f *feed) restart(ctx actor.Context) {
	if f.polls.current != nil {
		f.polls.current.cancel()
	}
	f.poller, f.polls.current = f.newPoller(), nil
	f.drop(ctx)
}

// drop makes the subscribers forget the events that they have, too.
func (f *feed) drop(ctx actor.Context) {
	f.forget()
	// TailDropped takes the same path as the events that were sent before, so it arrives after them.
	for _, sub := range f.subs {
		ctx.Send(sub.pid, &messages.TailDropped{})
	}
}

// forget is called when the settled mark is no longer known.
func (f *feed) forget() {
	f.known = false
	f.observeHeld(nil)
	f.ref.mark.Store(0)
	f.ref.incarnation.Store(0)
	f.ref.newest.Store(nil)
	f.deps.Events.Followers().Advanced(f.tenant, nil)
}

// poll polls for new events. If a poll is in progress, another one follows it.
func (f *feed) poll(ctx actor.Context) { f.pollUpTo(ctx, engine.UnknownPosition) }

// pollUpTo polls for new events. If a poll is in progress, another one follows it, unless that settles up to a
// position.
func (f *feed) pollUpTo(ctx actor.Context, position int64) {
	switch {
	case f.polls.current != nil:
		f.polls.wanted = max(f.polls.wanted, position)
		return
	case f.faults.waiting, len(f.subs) == 0:
		return
	}
	stopTimer(f.polls.next)
	began := time.Now()
	f.ref.polls.Store(true)
	f.amend(func(e *FeedEntry) { e.Polling = true })
	current, poller := &poll{}, f.poller
	read := f.polls.begin(current, began)
	current.cancel = f.deps.runUnbounded(ctx, func(ctx context.Context) func(actor.Context) {
		update, err := poller.Poll(ctx)
		return func(ctx actor.Context) {
			if f.polls.current != current {
				return
			}
			f.polls.current = nil
			if err != nil {
				f.onFailed(ctx, err)
				return
			}
			read.Duration = time.Since(began)
			f.observe(read, update)
			f.onPolled(ctx, update, began)
		}
	})
}

// take takes the events of an append in this process, which woke the feed, as if a poll had found them. It returns
// false if own is nil or a poll is needed. A poll in progress has the poller for itself, and may find these events too.
// An append that began before the feed knew its mark may be that of a tenant that was dropped, and created again under
// its name.
func (f *feed) take(ctx actor.Context, own *engine.Page, woken time.Time) bool {
	if own == nil || f.polls.current != nil || !f.known || len(f.subs) == 0 || own.Asked.Before(f.since) {
		return false
	}
	update, taken := f.poller.Take(own)
	if taken {
		f.observe(observe.Read{Own: true, Woken: true, Latency: max(0, time.Since(woken))}, update)
		f.onPolled(ctx, update, own.Asked)
	}
	return taken
}

// onPolled handles what was asked for at that time.
func (f *feed) onPolled(ctx actor.Context, u engine.TailUpdate, asked time.Time) {
	f.faults = feedFaults{}
	f.publish(func(e *FeedEntry) { *e = FeedEntry{Mark: u.Mark, Held: u.Held} })
	changed := f.known && u.Incarnation != f.incarnation
	fell := f.known && !changed && (u.Gone || u.Mark < f.window.Mark)
	if fell { // the events are gone, and later ones get their positions
		f.deps.Events.Followers().Gone(f.tenant)
		f.drop(ctx)
	}
	if u.Mark > f.window.Mark || !f.known || changed {
		f.extend(ctx, u, asked)
		advanced := f.advanced()
		for _, sub := range f.subs {
			ctx.Send(sub.pid, advanced)
		}
	}
	f.ref.settled(u.Mark, time.Now())
	f.ref.incarnation.Store(int64(u.Incarnation))
	f.ref.polls.Store(u.Again > 0)
	// Positions that were announced meanwhile may have been taken for those of events that are gone.
	follows := f.polls.wanted > u.Mark || changed || fell
	if !follows {
		f.polls.woken = time.Time{} // this poll has answered all wakes
	}
	switch {
	case u.More, follows:
		f.poll(ctx)
	case u.Again > 0:
		f.polls.next = f.deps.After(ctx, u.Again, f.poll)
	}
}

// extend adds the events of a poll to the window, except those that no subscriber needs.
func (f *feed) extend(ctx actor.Context, u engine.TailUpdate, asked time.Time) {
	if !f.known || u.From != f.window.Mark || u.Incarnation != f.incarnation {
		f.known, f.incarnation, f.since = true, u.Incarnation, time.Now()
		f.window.Reset(u.From)
	}
	f.window.Add(u.Events, u.Mark, u.Bytes, asked, time.Now())
	f.window.DropPassed(f.needed())
	f.window.Limit(windowEvents, windowBytes)
	f.account(ctx)
}

// needed is the position up to which all subscribers have taken the events. A subscriber that is so far behind that it
// reads for itself does not count, unless it will reach the window soon. For followers, all events are kept.
func (f *feed) needed() int64 {
	if f.deps.Events.Followers().Followed(f.tenant) {
		return f.window.From
	}
	needed := f.window.Mark
	for _, sub := range f.subs {
		if sub.taken == nil {
			return f.window.From
		}
		if taken := sub.taken.Load(); taken >= f.window.From-windowEvents {
			needed = min(needed, taken)
		}
	}
	return needed
}

// grewOld is called when the oldest events of the window have reached their age.
func (f *feed) grewOld(ctx actor.Context) {
	f.age = nil
	f.shrink(ctx, f.window.DropReadBefore(time.Now().Add(-f.deps.windows.age)))
}

// giveWay is called when other windows of the node need the memory.
func (f *feed) giveWay(ctx actor.Context) {
	f.shrink(ctx, f.window.DropPassed(f.window.Mark))
}

// shrink sends a window that became smaller to the subscribers that still hold the old one.
func (f *feed) shrink(ctx actor.Context, smaller bool) {
	if smaller && f.known {
		advanced := f.advanced()
		for _, sub := range f.subs {
			if sub.taken != nil && sub.taken.Load() < advanced.Mark {
				ctx.Send(sub.pid, advanced)
			}
		}
	}
	f.account(ctx)
}

// account accounts for the window's memory, and sets the timer of its oldest events.
func (f *feed) account(ctx actor.Context) {
	f.deps.windows.use(&f.share, f.window.Size())
	read, _, holds := f.window.Oldest()
	switch {
	case !holds:
		stopTimer(f.age)
		f.age = nil
	case f.age == nil:
		f.age = f.deps.After(ctx, time.Until(read.Add(f.deps.windows.age)), f.grewOld)
	}
}

// advanced returns the window, for the subscribers, for the batches that begin from now on and for the tenant's
// followers.
func (f *feed) advanced() *messages.TailAdvanced {
	advanced := &messages.TailAdvanced{
		Incarnation: f.incarnation, Mark: f.window.Mark, From: f.window.From, Events: f.window.Events,
	}
	_, advanced.Asked, _ = f.window.Oldest()
	f.ref.newest.Store(advanced)
	// Without subscribers it polls no more. A feed that was replaced may have events of a tenant that was dropped.
	if len(f.subs) > 0 && f.deps.Feeds.find(f.tenant) == f.ref {
		f.deps.Events.Followers().Advanced(f.tenant, advanced)
	}
	return advanced
}
