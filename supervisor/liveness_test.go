package supervisor

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/messages"
)

func TestRuntimeOutlivesItsNodesActor(t *testing.T) {
	w := start(t, 3, []string{"a"}, nil)
	ear, heard := w.listen()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	answered := false
	for deadline := time.Now().Add(hangs); !answered; {
		if node := w.child("node"); node != nil {
			w.deps.System.Root.Stop(node)
		}
		// While there is no node, these messages cannot be passed on.
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
			t.Fatal("there is no answer in place of the node")
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

func TestProjectionContinuesIfTheNodeCrashesDuringItsAdvance(t *testing.T) {
	w := start(t, 3, []string{"a"}, nil)
	moving, let := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(let) })
	w.during("advance", func() {
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

// hangs is a limit that only a hang exceeds.
const hangs = 30 * time.Second

// during makes the store call fn in each call of that name.
func (w *world) during(call string, fn func()) {
	hook := func(name string) {
		if name == call {
			fn()
		}
	}
	w.hook.Store(&hook)
}

// child returns the child of the supervisor with that name, nil if there is none.
func (w *world) child(name string) *actor.PID {
	for i := range 100 {
		pid := actor.NewPID(w.deps.System.Address(), fmt.Sprintf("%s/%s#%d", w.sup.pid.Id, name, i))
		if _, ok := w.deps.System.ProcessRegistry.Get(pid); ok {
			return pid
		}
	}
	return nil
}

// noneStuck checks that the watchdog restarted no actor.
func (w *world) noneStuck() {
	w.t.Helper()
	if n := w.deps.Registry.Stuck.Load(); n != 0 {
		w.t.Errorf("%d actors were stuck", n)
	}
}

// listen returns an actor, and the messages that it gets.
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
