package supervisor

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
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
