package supervisor

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

func TestRuntimeOutlivesItsNodesActor(t *testing.T) {
	w := start(t, 3, []string{"a"}, attempt)
	ear, heard := w.listen()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	answered := false
	for deadline := time.Now().Add(hangs); !answered; {
		if node := w.child("node"); node != nil {
			w.deps.System.Root.Stop(node)
		}
		// Neither is to be passed on to a node that is not there.
		w.deps.System.Root.RequestWithCustomSender(w.sup.pid, &messages.AdvanceRequest{Op: 7}, ear)
		w.deps.System.Root.RequestWithCustomSender(w.sup.pid, &messages.LeaseLost{}, ear)
		select {
		case <-w.sup.Done():
			t.Fatalf("the runtime ended: %.300v", w.sup.Err())
		case msg := <-heard:
			advanced, ok := msg.(*messages.Advanced)
			answered = ok && !advanced.Moved && advanced.Op == 7
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody answers for the node that is gone")
		}
	}
	w.append()
	w.eventually("the projections go on", func() bool {
		select {
		case <-w.sup.Done():
			t.Fatalf("the runtime ended: %.300v", w.sup.Err())
		default:
		}
		return w.checkpoint(w.ids("a")[0]) == w.head.Load()
	})
	w.noneStuck()
}

func TestProjectionWhoseCheckpointIsBeingMovedGoesOnWhenTheNodeDies(t *testing.T) {
	w := start(t, 3, []string{"a"}, attempt)
	moving, let := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(let) })
	w.during("advance", func(*engine.Lease) {
		moving <- struct{}{}
		<-let
	})
	w.foreign.Store(true)
	w.append()
	<-moving
	w.foreign.Store(false)
	w.deps.System.Root.Stop(w.child("node"))
	w.append()
	w.caughtUp()
	w.noneStuck()
}

func TestWaitingForItsTurnIsNotStandingStill(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for _, busy := range []time.Time{{}, long} {
		e := actors.ProjectionEntry{State: actors.Live, Position: 1, Mark: 2, Changed: long, Busy: busy}
		if !Stuck(e) {
			t.Errorf("it is not stuck though it does not wait for its turn: %+v", e)
		}
		if e.Queued = true; Stuck(e) {
			t.Errorf("it is taken for stuck: %+v", e)
		}
	}
}

// Who is told before the feed would take for news what the feed had handed out before it was told.
func TestProjectionsAreReadAnewBehindTheirFeed(t *testing.T) {
	w := start(t, 3, []string{"a"}, attempt)
	entered, let := make(chan struct{}, 1), make(chan struct{})
	w.during("tail", func(*engine.Lease) {
		entered <- struct{}{}
		<-let
	})
	before := w.reloads.Load()
	w.recheck()
	<-entered
	<-time.After(200 * time.Millisecond)
	if again := w.reloads.Load() - before; again != 0 {
		t.Errorf("%d projections read their leases anew before their feed was told", again)
	}
	close(let)
	w.eventually("all projections read their leases anew", func() bool { return w.reloads.Load()-before >= 3 })
}

func TestFeedHandsOutNothingOldBehindARecheck(t *testing.T) {
	w, tell, heard := follow(t)
	w.head.Store(5)
	tell(&messages.Subscribe{})
	advanced(t, heard, 5)
	polling, answer := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(let)
	w.head.Store(9)
	w.during("poll", func(*engine.Lease) {
		close(polling)
		<-answer
	})
	tell(&messages.Wake{})
	<-polling // it has looked: 9
	w.hook.Store(nil)
	w.head.Store(3)
	tell(&messages.Recheck{})
	msg := next(t, heard)
	if _, ok := msg.(*messages.TailDropped); !ok {
		t.Fatalf("the subscriber is told %T first", msg)
	}
	advanced(t, heard, 3)
	let()
	w.deps.Wait() // the old answer is in the feed's mailbox now
	w.head.Store(4)
	tell(&messages.Wake{})
	advanced(t, heard, 4)
}

func TestSubscriberGetsAtOnceWhatCameWhileNobodyListened(t *testing.T) {
	w, tell, heard := follow(t)
	w.head.Store(1)
	tell(&messages.Subscribe{})
	advanced(t, heard, 1)
	tell(&messages.Unsubscribe{})
	w.head.Store(2)
	tell(&messages.Wake{})
	tell(&messages.Subscribe{})
	advanced(t, heard, 1)
	advanced(t, heard, 2)
}

// hangs is how long something may take that happens within a second: only a hang takes longer.
const hangs = 30 * time.Second

// during hooks into one kind of call.
func (w *world) during(call string, fn func(lease *engine.Lease)) {
	hook := func(name string, lease *engine.Lease) {
		if name == call {
			fn(lease)
		}
	}
	w.hook.Store(&hook)
}

// child finds a child of the supervisor by its name, in whatever incarnation; nil where there is none.
func (w *world) child(name string) *actor.PID {
	for i := range 100 {
		pid := actor.NewPID(w.deps.System.Address(), fmt.Sprintf("%s/%s#%d", w.sup.pid.Id, name, i))
		if _, ok := w.deps.System.ProcessRegistry.Get(pid); ok {
			return pid
		}
	}
	return nil
}

func (w *world) reaches(id projection.ID, want func(actors.ProjectionEntry) bool) {
	w.t.Helper()
	w.eventually("the projection gets there", func() bool {
		e, here := w.deps.Registry.Get(id)
		return here && want(e)
	})
}

// noneStuck makes sure that it was not the watchdog that helped.
func (w *world) noneStuck() {
	w.t.Helper()
	if n := w.deps.Registry.Stuck.Load(); n != 0 {
		w.t.Errorf("%d actors were taken for stuck", n)
	}
}

// listen makes an actor that passes on what it hears.
func (w *world) listen() (pid *actor.PID, heard chan any) {
	heard = make(chan any, 10000)
	pid = w.deps.System.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch msg := ctx.Message().(type) {
		case actor.SystemMessage, actor.AutoReceiveMessage:
		default:
			heard <- msg
		}
	}))
	w.t.Cleanup(func() { _ = w.deps.System.Root.StopFuture(pid).Wait() })
	return pid, heard
}

// follow makes a feed and its one subscriber, with nobody around who polls.
func follow(t *testing.T) (w *world, tell func(msg any), heard chan any) {
	w = &world{fake: &fake{}, t: t}
	w.deps = &actors.Deps{System: actors.NewSystem(zap.NewNop()), Store: w.fake, Log: zap.NewNop(), Limiter: actors.NewLimiter(4, 0, 0, 0),
		Timing: actors.Timing{QueryTimeout: time.Minute}}
	w.deps.Init()
	ear, heard := w.listen()
	feed := w.deps.System.Root.Spawn(actors.NewFeed(w.deps, "a"))
	t.Cleanup(func() {
		_ = w.deps.System.Root.StopFuture(feed).Wait()
		w.deps.GiveUp(errors.New("the test is over"))
		w.deps.Wait()
	})
	return w, func(msg any) { w.deps.System.Root.RequestWithCustomSender(feed, msg, ear) }, heard
}

// next returns nil where nothing comes.
func next(t *testing.T, heard chan any) any {
	t.Helper()
	select {
	case msg := <-heard:
		return msg
	case <-time.After(hangs):
		return nil
	}
}

func advanced(t *testing.T, heard chan any, mark int64) {
	t.Helper()
	msg := next(t, heard)
	if got, ok := msg.(*messages.TailAdvanced); !ok || got.Mark != mark {
		t.Fatalf("heard %T %+v, not of the mark %d", msg, msg, mark)
	}
}
