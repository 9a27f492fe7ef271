package actors

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
)

// pollable is a store of one tenant. Each poll begins with a value of begin, and settles up to head, as it is at that
// moment.
type pollable struct {
	engine.Events
	begin chan struct{}
	head  atomic.Int64
	polls atomic.Int64 // that were called
	takes atomic.Int64
}

func (p *pollable) TailPoller(string) engine.TailPoller { return p }
func (p *pollable) Followers() engine.Followers         { return unfollowed{} }
func (p *pollable) ReadWithin(engine.ReadSlot)          {}

func (p *pollable) Take(own *engine.Page) (u engine.TailUpdate, taken bool) {
	p.takes.Add(1)
	from := p.head.Load()
	if own.Events[0].Position != from+1 {
		return u, false
	}
	p.head.Store(from + 1)
	return engine.TailUpdate{Mark: from + 1, From: from, Incarnation: 1, Events: own.Events, Bytes: own.Bytes}, true
}

func (p *pollable) Poll(ctx context.Context) (engine.TailUpdate, error) {
	p.polls.Add(1)
	select {
	case <-p.begin:
		return engine.TailUpdate{Mark: p.head.Load(), Incarnation: 1}, nil
	case <-ctx.Done():
		return engine.TailUpdate{}, ctx.Err()
	}
}

// polledFeed starts a feed with a subscriber, and reports its polls as they end.
func polledFeed(t *testing.T) (store *pollable, deps *Deps, ended chan observe.Read) {
	store, deps, ended, _ = leftFeed(t)
	return store, deps, ended
}

// leftFeed is polledFeed with a function that ends the subscription.
func leftFeed(t *testing.T) (store *pollable, deps *Deps, ended chan observe.Read, leave func()) {
	store, ended = &pollable{begin: make(chan struct{})}, make(chan observe.Read, 10)
	deps = &Deps{Store: Store{Events: store, Plane: control.On(outage{})}, Log: zap.NewNop(),
		System: NewSystem(zap.NewNop()), Limiter: NewLimiter(Limits{Connections: 4}),
		Observer: observe.Observer{EventsRead: func(r observe.Read) { ended <- r }}}
	deps.Init()
	feed := mustSpawn(t, deps, deps.System.Root, NewFeed(deps, "a"))
	sub := deps.System.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch msg := ctx.Message().(type) {
		case *actor.Started:
			ctx.Request(feed, &messages.Subscribe{})
		case *messages.Unsubscribe:
			ctx.Request(feed, msg)
		}
	}))
	t.Cleanup(func() {
		deps.GiveUp(context.Canceled)
		for _, pid := range []*actor.PID{feed, sub} {
			if err := deps.System.Root.StopFuture(pid).Wait(); err != nil {
				t.Error(err)
			}
		}
		deps.Wait()
	})
	return store, deps, ended, func() { deps.System.Root.Send(sub, &messages.Unsubscribe{}) }
}

// An append in this process is announced directly and by its NOTIFY, which arrives during the read or after it.
func TestEventIsReadOnceHoweverOftenItIsAnnounced(t *testing.T) {
	t.Parallel()
	store, deps, ended := polledFeed(t)
	store.begin <- struct{}{}
	<-ended
	if deps.Feeds.find("a") == nil {
		t.Fatal("no feed")
	}
	began := time.Now()
	for event := int64(1); event <= 20; event++ {
		store.head.Store(event)
		before := began // the feed may receive a wake of the previous event only now
		began = time.Now()
		deps.Feeds.Wake("a", event)
		select {
		case store.begin <- struct{}{}:
		case <-ended:
			t.Fatalf("a poll ended that did not begin after event %d", event)
		}
		deps.Feeds.Wake("a", event)
		if r := <-ended; !r.Woken || r.Latency > time.Since(before) {
			t.Fatalf("the read of event %d: %+v", event, r)
		}
		deps.Feeds.Wake("a", event)
		select {
		case store.begin <- struct{}{}:
			t.Fatalf("event %d is read again", event)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestPollFollowsForEventsThatTheCurrentOneMayMiss(t *testing.T) {
	t.Parallel()
	for name, announced := range map[string]int64{"a higher position": 2, "no position": engine.UnknownPosition} {
		store, deps, ended := polledFeed(t)
		store.begin <- struct{}{}
		<-ended
		store.head.Store(1)
		deps.Feeds.Wake("a", 1)
		for store.polls.Load() < 2 { // until the poll is in progress
			<-time.After(time.Millisecond)
		}
		deps.Feeds.Wake("a", announced)
		for deps.Feeds.find("a").woken.Load() {
			<-time.After(time.Millisecond)
		}
		store.begin <- struct{}{}
		<-ended
		store.head.Store(2)
		select {
		case store.begin <- struct{}{}:
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: no poll follows", name)
		}
		if r := <-ended; r.Mark != 2 {
			t.Errorf("%s: the second poll settled up to %d", name, r.Mark)
		}
	}
}

// A tenant that was restored to an earlier state draws positions again that its feed has settled.
func TestPositionThatWasSettledBeforeIsReadAgain(t *testing.T) {
	t.Parallel()
	ref, now := &feedRef{}, time.Now()
	ref.settled(5, now.Add(-2*knownFor))
	ref.settled(7, now)
	for position, want := range map[int64]bool{1: false, 5: false, 6: true, 7: true, 8: false,
		engine.UnknownPosition: false} {
		if ref.has(position, now.Add(knownFor/2)) != want {
			t.Errorf("position %d is known: %v", position, !want)
		}
	}
	if ref.has(7, now.Add(knownFor)) {
		t.Error("a position is known for ever")
	}
	ref.settled(2, now) // events are gone
	ref.settled(6, now)
	for position, want := range map[int64]bool{2: false, 3: true, 6: true, 7: false} {
		if ref.has(position, now) != want {
			t.Errorf("position %d is known after the mark fell: %v", position, !want)
		}
	}
}

func TestSubscribersForgetEventsThatAreGone(t *testing.T) {
	t.Parallel()
	store, deps, ended := polledFeed(t)
	received := make(chan any, 10)
	store.head.Store(5)
	store.begin <- struct{}{}
	<-ended
	sub := deps.System.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch msg := ctx.Message().(type) {
		case *actor.Started:
			ctx.Request(deps.Feeds.find("a").pid, &messages.Subscribe{})
		case *messages.TailAdvanced, *messages.TailDropped:
			received <- msg
		}
	}))
	t.Cleanup(func() { _ = deps.System.Root.StopFuture(sub).Wait() })
	mark := func(want int64) {
		t.Helper()
		if got, is := (<-received).(*messages.TailAdvanced); !is || got.Mark != want {
			t.Fatalf("got %+v, want the mark %d", got, want)
		}
	}
	mark(5)
	store.head.Store(2)
	deps.Feeds.Wake("a", engine.UnknownPosition)
	store.begin <- struct{}{}
	if msg := <-received; *msg.(*messages.TailDropped) != (messages.TailDropped{}) {
		t.Fatalf("got %+v", msg)
	}
	mark(2)
	store.head.Store(3)
	store.begin <- struct{}{} // another poll follows
	mark(3)
}

func TestEventsThatTheirFeedKnowsAreNoNews(t *testing.T) {
	t.Parallel()
	feeds := newRouter(NewSystem(zap.NewNop()).Root)
	tenants := []string{"t0", "t1", "t2", "t3", "t4"}
	for _, tenant := range tenants {
		ref := feeds.add(tenant, &actor.PID{})
		ref.mark.Store(1)
		ref.incarnation.Store(7)
	}
	feeds.find("t1").polls.Store(true)    // it waits for an open transaction
	feeds.find("t2").incarnation.Store(0) // it could not read
	heads := engine.Heads{Positions: map[string]int64{"t0": 2, "t1": 2, "t2": 2, "t3": 1, "t4": 0}, Incarnation: 7}
	if news := feeds.compare(tenants, feeds.marks(tenants), heads); !slices.Equal(news, []string{"t0"}) {
		t.Errorf("news of %v, want t0", news)
	}
}

func TestRouterKnowsWhenNotificationsArrived(t *testing.T) {
	t.Parallel()
	feeds := newRouter(NewSystem(zap.NewNop()).Root)
	feeds.add("a", &actor.PID{})
	began := time.Now()
	if at, exists := feeds.Noticed("a"); !exists || !at.Before(began) {
		t.Errorf("before a notification: %v, a feed %v", at, exists)
	}
	feeds.Wake("a", engine.UnknownPosition)
	if at, exists := feeds.Noticed("a"); !exists || at.Before(began) {
		t.Errorf("a notification at %v, a feed %v", at, exists)
	}
	if _, exists := feeds.Noticed("b"); exists {
		t.Error("a tenant without a feed has one")
	}
}
