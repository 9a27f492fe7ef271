package supervisor

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// What was looked up before a command was given knows nothing of it, and must not make it be forgotten.
func TestCommandThatComesDuringALookIsNotForgotten(t *testing.T) {
	for _, during := range []string{"command", "reload"} {
		t.Run(during, func(t *testing.T) {
			w := start(t, 1, []string{"a"}, attempt)
			id := w.ids("a")[0]
			pid := w.child(id.String())
			send := func(msg any) { w.deps.System.Root.Send(pid, msg) }
			var once sync.Once
			var looks atomic.Int64
			looking, held := make(chan struct{}), make(chan struct{})
			let := sync.OnceFunc(func() { close(held) })
			t.Cleanup(let)
			hook := func(call string, _ *engine.Lease) {
				if call == during {
					once.Do(func() {
						close(looking)
						<-held
					})
				}
				if call == "command" {
					looks.Add(1)
				}
			}
			w.hook.Store(&hook)
			want := int64(1)
			if during == "command" {
				send(&messages.CommandPending{})
				want = 2
			} else {
				send(&messages.Revalidate{}) // which differs from its own
			}
			<-looking
			send(&messages.CommandPending{}) // in the mailbox, before what comes of the look
			let()
			w.eventually("it looks again", func() bool { return looks.Load() >= want })
		})
	}
}

// A replay that comes to nothing through no fault of its event is made again, but not for ever: it may be that event's fault
// all the same. It is not counted then, and looks in between that find nothing to discard take nothing back.
func TestReplayInVainIsGivenUpUncounted(t *testing.T) {
	var tries atomic.Int64
	var vain atomic.Bool
	w := start(t, 1, []string{"a"}, func(*fake, projection.ID) error {
		if !vain.Load() {
			return nil
		}
		tries.Add(1)
		return &engine.Fault{Class: engine.Infrastructure, Err: errors.New("a deadlock, again")}
	})
	pid := w.child(w.ids("a")[0].String())
	w.counted.Store(true)
	vain.Store(true)
	w.replay.Store(true)
	w.deps.System.Root.Send(pid, &messages.CommandPending{})
	w.eventually("the command goes on without it", func() bool {
		w.deps.System.Root.Send(pid, &messages.CommandPending{})
		return !w.replay.Load()
	})
	if n := tries.Load(); n != 11 || w.counted.Load() {
		t.Errorf("it was made %d times, want 11; counted: %v", n, w.counted.Load())
	}
}
