package actors_test

import (
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/actors"
)

// The processes of the actor library itself are found in the registry that NewSystem makes smaller.
func TestSmallRegistryFindsItsProcesses(t *testing.T) {
	system := actors.NewSystem(zap.NewNop())
	defer system.Shutdown()
	pids := []*actor.PID{actor.NewPID(system.Address(), "eventstream"), actor.NewPID(system.Address(), "deadletter")}
	for range 1000 {
		pids = append(pids, system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {})))
	}
	for _, pid := range pids {
		if _, found := system.ProcessRegistry.Get(pid); !found {
			t.Errorf("%s is not found", pid)
		}
	}
	if n := len(system.ProcessRegistry.LocalPIDs.LocalPIDs); n > 16 {
		t.Errorf("the registry has %d buckets of 32 maps, want at most 16", n)
	}
}

func TestMessageToAStoppedActorIsNotLoggedAsDeadLetter(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	system := actors.NewSystem(zap.New(core))
	defer system.Shutdown()
	pid := system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
	if err := system.Root.StopFuture(pid).Wait(); err != nil {
		t.Fatal(err)
	}
	system.Root.Send(pid, "late")
	if n := logs.FilterMessage("message to a stopped actor").FilterLevelExact(zap.DebugLevel).Len(); n != 1 {
		t.Errorf("logged %d messages to a stopped actor, want one: %v", n, logs.All())
	}
	if n := logs.FilterMessageSnippet("DeadLetter").Len(); n != 0 {
		t.Errorf("logged %d dead letters, but no event was parked", n)
	}
}
