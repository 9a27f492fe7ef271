package actors

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/messages"
)

func TestShareThatGrewLeastRecentlyIsEmptiedFirst(t *testing.T) {
	b := newBudget(100)
	var gave []int
	shares := make([]share, 4)
	for i := range shares {
		shares[i].giveWay = func() { gave = append(gave, i) }
	}
	use := func(i, bytes int, want ...int) {
		t.Helper()
		gave = nil
		b.use(&shares[i], bytes)
		sum := 0
		for i := range shares {
			sum += shares[i].bytes
		}
		if !slices.Equal(gave, want) || b.used != sum || sum > b.most {
			t.Fatalf("%v gave way for %d bytes of %d, want %v; %d are used, all shares use %d", gave, bytes, i, want,
				b.used, sum)
		}
	}
	use(0, 40)
	use(1, 40)
	use(0, 45)
	use(1, 35) // a share that shrinks keeps its place in the order
	use(2, 20)
	use(3, 40, 1, 0)
	use(3, 0)
	use(1, 80)
	use(0, 101, 2, 1, 0)
}

// tails is a store whose tails return the events that the test sets.
type tails struct {
	*memory
	polls chan func() engine.TailUpdate
	mark  *atomic.Int64
}

func (s tails) TailPoller(string) engine.TailPoller { return s }

func (tails) ReadWithin(engine.ReadSlot) {}

func (tails) Take(*engine.Page) (engine.TailUpdate, bool) { return engine.TailUpdate{}, false }

func (s tails) Poll(context.Context) (engine.TailUpdate, error) {
	select {
	case poll := <-s.polls:
		u := poll()
		s.mark.Store(u.Mark)
		return u, nil
	default:
		mark := s.mark.Load()
		return engine.TailUpdate{From: mark, Mark: mark, Again: time.Millisecond}, nil
	}
}

// fed is a feed whose only subscriber is the test.
type fed struct {
	*outside
	pid   *actor.PID
	polls chan func() engine.TailUpdate
	taken atomic.Int64
}

// feed makes a feed, of a store of its own, with the first event.
func (o *outside) feed(tenant string) *fed {
	f := &fed{outside: o, polls: make(chan func() engine.TailUpdate, 1000)}
	spawned := make(chan *actor.PID)
	o.deps.Events = tails{o.store, f.polls, new(atomic.Int64)}
	o.in(func(ctx actor.Context) { spawned <- mustSpawn(o.t, o.deps, ctx, NewFeed(o.deps, tenant)) })
	f.read(0, 1)
	f.pid = <-spawned
	o.send(f.pid, &messages.Subscribe{Taken: &f.taken})
	f.mustGet(0, 1)
	return f
}

// update is what the feed finds in its next poll: events of 100 bytes each.
func update(from, to int64) engine.TailUpdate {
	return engine.TailUpdate{
		From: from, Mark: to, Events: envelopes(to)[from:], Bytes: 100 * int(to-from), Again: time.Millisecond,
	}
}

func (f *fed) read(from, to int64) {
	f.polls <- func() engine.TailUpdate { return update(from, to) }
}

// mustGet waits until the feed sends exactly the events after from up to mark.
func (f *fed) mustGet(from, mark int64) {
	f.t.Helper()
	for {
		got, ok := receive(f.outside, f.heard).(*messages.TailAdvanced)
		if ok && got.Mark == mark {
			if got.From != from || len(got.Events) != int(mark-from) {
				f.t.Fatalf("the window after %d has %d events, not those after %d", got.From, len(got.Events), from)
			}
			return
		}
	}
}

func TestFeedKeepsOnlyWhatSubscribersNeed(t *testing.T) {
	o := surround(t)
	f := o.feed("a")
	f.read(1, 3)
	f.mustGet(0, 3)
	f.taken.Store(3)
	f.read(3, 5)
	f.mustGet(3, 5)
	f.read(5, 6)
	f.mustGet(3, 6)
	f.taken.Store(machine.NotTaking)
	f.read(6, 9)
	f.mustGet(9, 9)
}

func TestSubscriberThatIsFarBehindDoesNotKeepTheWindow(t *testing.T) {
	o := surround(t)
	f := o.feed("a")
	const far = 10 * windowEvents
	f.read(far, far)
	f.mustGet(far, far)
	f.read(far, far+1)
	f.mustGet(far+1, far+1)
}

func TestFeedDropsOldEventsWhileNewOnesCome(t *testing.T) {
	o := surround(t)
	o.deps.windows.age = 100 * time.Millisecond
	f := o.feed("a")
	// The subscriber takes nothing, so that only age can end it.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	hang := time.After(hangs)
	for at := int64(1); ; {
		select {
		case msg := <-f.heard:
			if got, ok := msg.(*messages.TailAdvanced); ok && got.From > 0 {
				if first := got.From + 1; len(got.Events) > 0 && got.Events[0].Position != first {
					t.Errorf("the first event is %d, want %d", got.Events[0].Position, first)
				}
				return
			}
		case <-tick.C:
			f.read(at, at+1)
			at++
		case <-hang:
			t.Fatal("the first event is never dropped")
		}
	}
}

func TestFeedsShareOneBudget(t *testing.T) {
	o := surround(t)
	a, b := o.feed("a"), o.feed("b")
	o.deps.windows.most = 3 * (100 + 2*int(unsafe.Sizeof(event.Envelope{})))
	a.read(1, 2)
	a.mustGet(0, 2)
	b.read(1, 3)
	o.eventually("the feed that grew last has all", func() bool {
		o.deps.windows.mu.Lock()
		defer o.deps.windows.mu.Unlock()
		return o.deps.windows.shares.Len() == 1 && o.deps.windows.used <= o.deps.windows.most
	})
	a.mustGet(2, 2) // the other feed is emptied
}

func TestFeedSendsNothingOldAfterARecheck(t *testing.T) {
	f := surround(t).feed("a")
	polling, answer, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.polls <- func() engine.TailUpdate {
		defer close(answered)
		close(polling)
		<-answer
		return update(1, 9)
	}
	<-polling
	f.send(f.pid, &messages.Recheck{})
	if _, ok := receive(f.outside, f.heard).(*messages.TailDropped); !ok {
		t.Fatal("TailDropped did not come first")
	}
	f.read(0, 3)
	f.mustGet(0, 3)
	close(answer)
	<-answered
	for at := int64(3); at < 6; at++ {
		f.read(at, at+1)
		if got, ok := receive(f.outside, f.heard).(*messages.TailAdvanced); !ok || got.Mark != at+1 {
			t.Fatalf("got %+v, want the mark %d", got, at+1)
		}
	}
}

func TestNewSubscriberGetsEarlierEventsAtOnce(t *testing.T) {
	f := surround(t).feed("a")
	f.send(f.pid, &messages.Unsubscribe{})
	f.send(f.pid, &messages.Wake{}) // without effect
	f.send(f.pid, &messages.Subscribe{Taken: &f.taken})
	f.mustGet(0, 1)
	f.read(1, 2)
	f.mustGet(0, 2)
}

// While the leases of a tenant are free, its events may be redacted. A node need not know that it has lost its own
// ones.
func TestProjectionTakesNothingThatWasReadBeforeIt(t *testing.T) {
	o := surround(t)
	f := o.feed("a")
	o.store.change(func(m *memory) {
		m.events = envelopes(2)
		m.events[0].Body = []byte(`"redacted"`)
	})
	handled := make(chan event.Envelope, 10)
	o.def.Batches.Apply = func(_ context.Context, _ engine.Lease, batch engine.Batch) error {
		for _, e := range batch.Events {
			handled <- e
		}
		return nil
	}
	o.in(func(ctx actor.Context) { mustSpawn(t, o.deps, ctx, NewProjection(o.deps, o.def, o.lease, f.pid, true)) })
	if e := receive(o, handled); string(e.Body) != `"redacted"` {
		t.Errorf("%+v", e)
	}
	f.read(1, 2)
	if e := receive(o, handled); e.Position != 2 {
		t.Errorf("%+v", e)
	}
}

// The tenant was dropped and created again under its name, and a poll of the old feed ends late.
func TestFeedThatWasReplacedPublishesNothing(t *testing.T) {
	o := surround(t)
	old := &feed{deps: o.deps, tenant: "a", ref: o.deps.Feeds.add("a", o.pid)}
	replaced := &feed{deps: o.deps, tenant: "a", ref: o.deps.Feeds.add("a", o.pid)}
	replaced.publish(func(e *FeedEntry) { e.Mark = 1 })
	for _, change := range []func(func(*FeedEntry)){old.publish, old.amend} {
		change(func(e *FeedEntry) { e.Err = errors.New("the old one is gone") })
	}
	if e := o.deps.Registry.Feeds()["a"]; e.Err != nil || e.Mark != 1 {
		t.Errorf("%+v", e)
	}
}

// informed are followers that keep what they were given last.
type informed struct {
	followed atomic.Bool
	last     atomic.Pointer[engine.Tail]
	gone     atomic.Bool
}

func (i *informed) Followed(string) bool { return i.followed.Load() }

func (i *informed) Advanced(_ string, w *engine.Tail) { i.last.Store(w) }

func (i *informed) Gone(string) { i.gone.Store(true) }

// A feed without subscribers polls no more, so followers read for themselves. They must not be given its window again
// when that ages.
func TestFeedWithoutSubscribersGivesFollowersNothing(t *testing.T) {
	o := surround(t)
	o.deps.windows.age = 100 * time.Millisecond
	o.store.followers = &informed{}
	o.store.followers.followed.Store(true)
	f := o.feed("a")
	f.read(1, 3)
	f.mustGet(0, 3)
	if w := o.store.followers.last.Load(); w == nil || w.Mark != 3 {
		t.Fatalf("followers were given %+v", w)
	}
	f.send(f.pid, &messages.Unsubscribe{})
	o.eventually("the followers are told", func() bool { return o.store.followers.last.Load() == nil })
	o.eventually("the window is empty",
		func() bool { newest := o.deps.Feeds.newest("a"); return newest != nil && newest.From == 3 })
	if w := o.store.followers.last.Load(); w != nil {
		t.Errorf("a feed without subscribers gave followers %+v", w)
	}
}

// Followers of a tenant whose events are gone must not go on, even if there are as many events again when they look.
func TestFeedTellsFollowersThatEventsAreGone(t *testing.T) {
	for name, update := range map[string]engine.TailUpdate{"lower": {From: 1, Mark: 1},
		"as many again": {From: 5, Mark: 5, Gone: true}} {
		t.Run(name, func(t *testing.T) {
			o := surround(t)
			o.store.followers = &informed{}
			o.store.followers.followed.Store(true)
			f := o.feed("a")
			f.read(1, 3)
			f.mustGet(0, 3)
			f.polls <- func() engine.TailUpdate { return update }
			o.eventually("the followers are told", o.store.followers.gone.Load)
		})
	}
}
