package supervisor

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// What was looked up before a command was given knows nothing of it, and must not make it be forgotten.
func TestCommandThatComesDuringALookIsNotForgotten(t *testing.T) {
	for _, paused := range []bool{false, true} {
		for _, during := range []string{"command", "reload"} {
			name := during
			if paused {
				name += ", paused"
			}
			t.Run(name, func(t *testing.T) {
				w := start(t, 1, []string{"a"}, attempt)
				id := w.ids("a")[0]
				pid := w.child(id.String())
				send := func(msg any) { w.env.System.Root.Send(pid, msg) }
				if paused {
					send(&messages.Wanted{Paused: true})
					w.reaches(id, func(e actors.Entry) bool { return e.State == actors.Paused })
				}
				var once sync.Once
				var looks atomic.Int64
				looking, held := make(chan struct{}), make(chan struct{})
				let := sync.OnceFunc(func() { close(held) })
				t.Cleanup(let)
				hook := func(call string, lease *projection.Lease) {
					if call == "reload" && paused {
						lease.Wanted = projection.WantPause
					}
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
					send(&messages.Commanded{})
					want = 2
				} else {
					send(&messages.Recheck{})
				}
				<-looking
				send(&messages.Commanded{}) // in the mailbox, before what comes of the look
				let()
				w.eventually("it looks again", func() bool { return looks.Load() >= want })
			})
		}
	}
}
