package actors_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// sacrificed is set in the environment of a second process of this test binary, in which a test ends the process.
const sacrificed = "MILLRACE_TEST_SACRIFICED"

// inSacrificedProcess runs scenario in a process of its own, which must fail with every text of want in its output.
func inSacrificedProcess(t *testing.T, scenario func(r *rig), want ...string) {
	t.Helper()
	if os.Getenv(sacrificed) != "" {
		inBubble(t, scenario)
		return
	}
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+name, "-test.timeout=1m")
	again.Env = append(os.Environ(), sacrificed+"=1")
	out, err := again.CombinedOutput()
	if err == nil {
		t.Errorf("the process survived:\n%s", out)
	}
	for _, text := range want {
		if !strings.Contains(string(out), text) {
			t.Errorf("%q is not in the output of the process (%v):\n%s", text, err, out)
		}
	}
}

type pointerStrategy struct{ strategyFunc }

// A guardian's strategy runs in the goroutine of the failed actor, inside its mailbox's recover. A panic is not caught
// there, and EscalateFailure panics.
func TestGuardianStrategyPanicEndsTheProcess(t *testing.T) {
	for _, test := range []struct {
		name, want string
		strategy   strategyFunc
	}{
		{"panics", "strategy gave up", func(actor.Supervisor, *actor.PID, *actor.RestartStatistics, any) {
			panic("strategy gave up")
		}},
		{"escalates", "guardian cannot escalate failure",
			func(s actor.Supervisor, _ *actor.PID, _ *actor.RestartStatistics, _ any) {
				s.EscalateFailure("up", nil)
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inSacrificedProcess(t, func(r *rig) {
				pid := r.spawn(r.system.Root, "actor", panicAt("bad"),
					actor.WithGuardian(&pointerStrategy{test.strategy}))
				r.send(pid, "bad")
				synctest.Wait()
			}, "panic: boom", test.want, "guardianProcess")
		})
	}
}

// Any positive interval works. It also limits how long the throttle's goroutine lives after the first undelivered
// message.
func TestDeadLetterThrottleIntervalOfZeroEndsTheProcess(t *testing.T) {
	inSacrificedProcess(t, func(r *rig) {
		system := actor.NewActorSystem(silent(), actor.WithDeadLetterThrottleInterval(0))
		system.Root.Send(system.NewLocalPID("missing"), "hello")
		synctest.Wait()
	}, "non-positive interval for NewTicker")
}

// In a ring of one place the second message overwrites the first, and the actor then looks for the first until the
// process ends. Its goroutine cannot be stopped, so the test needs a process of its own.
func TestBoundedDroppingSpins(t *testing.T) {
	if os.Getenv(sacrificed) == "" {
		inSacrificedProcess(t, nil, "the actor spins in its mailbox")
		return
	}
	system := actor.NewActorSystem(silent())
	got := make(chan any, 3)
	gate := make(chan struct{})
	pid := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if text, ok := ctx.Message().(string); ok {
			got <- text
			<-gate
		}
	}, actor.WithMailbox(actor.BoundedDropping(1))))
	system.Root.Send(pid, "hold")
	<-got
	system.Root.Send(pid, "first")
	system.Root.Send(pid, "second")
	close(gate)

	sights := 0
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for sights < 100 {
		select {
		case text := <-got:
			fmt.Println("the actor got", text)
			return
		case <-ticker.C:
			if strings.Contains(stacks(), "boundedMailboxQueue).Pop") {
				sights++
			}
		}
	}
	fmt.Println("the actor spins in its mailbox")
	os.Exit(1)
}

func stacks() string {
	text := make([]byte, 1<<20)
	return string(text[:runtime.Stack(text, true)])
}
