package actors

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// ownEvent is what an append of one event hands over.
func ownEvent(position int64) *engine.Page {
	return &engine.Page{Events: []event.Envelope{{Position: position}}, Incarnation: 1, Asked: time.Now()}
}

// until waits until a condition is true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !is(); <-time.After(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestFeedTakesOwnEventsWithoutARead(t *testing.T) {
	t.Parallel()
	store, deps, ended := polledFeed(t)
	if deps.Feeds.Rests("a") || deps.Feeds.Rests("other") {
		t.Error("a feed rests that has read nothing")
	}
	store.head.Store(5)
	store.begin <- struct{}{}
	<-ended
	received := subscribed(t, deps)
	<-received
	for position := int64(6); position < 9; position++ {
		until(t, "the feed rests", func() bool { return deps.Feeds.Rests("a") })
		deps.Feeds.Appended("a", position, ownEvent(position))
		if got := <-received; got.Mark != position || len(got.Events) != int(position-5) ||
			got.Events[position-6].Position != position {
			t.Fatalf("got %+v after %d was appended", got, position)
		}
		if r := <-ended; !r.Own || !r.Woken || r.Events != 1 || r.Mark != position {
			t.Errorf("%+v", r)
		}
		deps.Feeds.Wake("a", position) // its NOTIFY
	}
	if polls := store.polls.Load(); polls != 1 {
		t.Errorf("%d polls", polls)
	}
	// What does not follow is read, and so is what was announced beside it.
	deps.Feeds.Appended("a", 10, ownEvent(10))
	store.head.Store(10)
	store.begin <- struct{}{}
	<-received
	if r := <-ended; r.Own || r.Mark != 10 {
		t.Errorf("%+v", r)
	}
	ref := deps.Feeds.find("a")
	ref.wanted.Store(12)
	deps.System.Root.Send(ref.pid, &messages.Wake{Own: ownEvent(11)})
	if r := <-ended; !r.Own || r.Mark != 11 {
		t.Errorf("%+v", r)
	}
	store.head.Store(12)
	store.begin <- struct{}{}
	if r := <-ended; r.Own || r.Mark != 12 {
		t.Errorf("%+v", r)
	}
}

// subscribed subscribes to the feed of tenant a.
func subscribed(t *testing.T, deps *Deps) (received chan *messages.TailAdvanced) {
	t.Helper()
	received = make(chan *messages.TailAdvanced, 10)
	sub := deps.System.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch msg := ctx.Message().(type) {
		case *actor.Started:
			ctx.Request(deps.Feeds.find("a").pid, &messages.Subscribe{})
		case *messages.TailAdvanced:
			received <- msg
		}
	}))
	t.Cleanup(func() { _ = deps.System.Root.StopFuture(sub).Wait() })
	return received
}

// What was asked for before the feed had found its mark may belong to a tenant that was dropped, and created again
// under its name.
func TestFeedTakesNoEventsThatWereAskedForBeforeItsMark(t *testing.T) {
	t.Parallel()
	early := ownEvent(6)
	store, deps, ended := polledFeed(t)
	store.head.Store(5)
	store.begin <- struct{}{}
	<-ended
	received := subscribed(t, deps)
	<-received
	until(t, "the feed rests", func() bool { return deps.Feeds.Rests("a") })
	deps.Feeds.Appended("a", 6, early)
	until(t, "the feed has looked at it", func() bool { return store.polls.Load() == 2 || len(ended) > 0 })
	if store.takes.Load() != 0 {
		t.Fatal("the feed takes it")
	}
	store.head.Store(6)
	store.begin <- struct{}{}
	if r := <-ended; r.Own || r.Mark != 6 {
		t.Errorf("%+v", r)
	}
}

// A poll uses the tail in another goroutine.
func TestFeedThatReadsTakesNoOwnEvents(t *testing.T) {
	t.Parallel()
	store, deps, ended := polledFeed(t)
	store.begin <- struct{}{}
	<-ended
	until(t, "the feed rests", func() bool { return deps.Feeds.Rests("a") })
	deps.Feeds.Wake("a", 1)
	until(t, "a poll is in progress", func() bool { return store.polls.Load() == 2 })
	if deps.Feeds.Rests("a") {
		t.Error("a feed rests while it reads")
	}
	deps.Feeds.Appended("a", 1, ownEvent(1))
	until(t, "the wake is handled", func() bool { return !deps.Feeds.find("a").woken.Load() })
	store.head.Store(1)
	store.begin <- struct{}{}
	if r := <-ended; r.Own || r.Mark != 1 {
		t.Errorf("%+v", r)
	}
	if n := store.takes.Load(); n != 0 {
		t.Errorf("the tail was asked %d times to take events during its poll", n)
	}
}

func TestFeedWithoutProjectionsTakesNoOwnEvents(t *testing.T) {
	t.Parallel()
	store, deps, ended, leave := leftFeed(t)
	store.begin <- struct{}{}
	<-ended
	until(t, "the feed rests", func() bool { return deps.Feeds.Rests("a") })
	leave()
	until(t, "no projection is left", func() bool { return !deps.Feeds.Rests("a") })
	for range 2 { // when the second wake is handled, the first was
		deps.Feeds.Appended("a", 1, ownEvent(1))
		until(t, "the wake is handled", func() bool { return !deps.Feeds.find("a").woken.Load() })
	}
	if n := store.takes.Load(); n != 0 {
		t.Errorf("the tail was asked %d times to take events", n)
	}
}
