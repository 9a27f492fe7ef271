//go:build race

package actors_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/scheduler"
)

// races runs scenario in a process of its own, and wants a data race to be reported in the given function.
func races(t *testing.T, function string, scenario func(r *rig)) {
	t.Helper()
	inSacrificedProcess(t, scenario, "WARNING: DATA RACE", function)
}

// unhurried does not restart the receive timeout.
type unhurried struct{}

func (unhurried) NotInfluenceReceiveTimeout() {}

func TestReceiveTimeoutRacesWithItsActor(t *testing.T) {
	races(t, "receiveTimeoutHandler", func(r *rig) {
		pid := r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			switch ctx.Message().(type) {
			case *actor.Started:
				ctx.SetReceiveTimeout(time.Second)
			case unhurried:
				<-time.After(outlastTimers)
			}
		}))
		r.system.Root.Send(pid, unhurried{})
		<-time.After(2 * outlastTimers)
		synctest.Wait()
		r.stop(pid)
	})
}

func TestSendRepeatedlyRacesWithItsCancel(t *testing.T) {
	races(t, "scheduler.startTimer", func(r *rig) {
		pid := r.spawn(r.system.Root, "actor", nil)
		cancel := scheduler.NewTimerScheduler(r.system.Root).SendRepeatedly(time.Second, time.Second, pid, "tick")
		<-time.After(1500 * time.Millisecond)
		cancel()
		synctest.Wait()
		r.stop(pid)
	})
}
