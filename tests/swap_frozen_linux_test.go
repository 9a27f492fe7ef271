package tests_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/tests/kit"
)

func init() { freeze = func() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) } }

// isFrozen reports whether a process was stopped by SIGSTOP.
func isFrozen(b *kit.Bundle, process *os.Process) bool {
	b.T.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid))
	b.Must(err)
	_, fields, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(fields, "T")
}

// freezing starts a process that runs two versions of the model, and freezes itself at a step of the swap.
func freezing(b *kit.Bundle, step string, version int) *exec.Cmd {
	b.T.Helper()
	process := b.VictimOf(wayOf(frozen+step, version-1, version))
	b.Must(process.Start())
	b.T.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	b.Eventually("the version has caught up", func() bool {
		state, err := b.Plane().Versions(b.Ctx, engine.FullID(modelID(version)), nil)
		return err == nil && !state.Missing
	})
	return process
}

// The process that carries out a swap is frozen. On a store for several nodes another one takes the swap over, and what
// the frozen one does when it continues has no effect. A file stays with its process, which carries the swap out when
// it continues.
func TestSwapOfAFrozenProcess(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		// After the hook, its locks keep readers out until its session is ended.
		for _, step := range []string{"once the earlier version is held", "before the hook", "after the hook",
			afterCommit} {
			t.Run(step, func(t *testing.T) {
				t.Parallel()
				b := kind.New(t)
				newModel(b, 2)
				b.Append("a", 20)
				b.Idle(modelVersion(b, 1))
				process := freezing(b, step, 2)
				swapped := make(chan error, 1)
				go func() { swapped <- requestSwap(b, newAdmin(b), 2) }()
				b.Eventually("the process is frozen", func() bool { return isFrozen(b, process.Process) })
				if kind.Meets(kit.SeveralNodes) {
					rt := b.Another(kit.Quick, modelVersions(b, 1, 2)...)
					stop := b.Start(rt)
					b.Must(<-swapped)
					goesOn(b, rt)
					served(b, 2)
					b.Must(process.Process.Signal(syscall.SIGCONT))
					stop()
				} else {
					b.Must(process.Process.Signal(syscall.SIGCONT))
					b.Must(<-swapped)
				}
				// The process is a node like any other again.
				b.Must(newAdmin(b).WaitFor(b.Ctx, modelID(1), b.AppendTo(b.Store, "b", 3)))
				served(b, 2)
				mustRun(b, "default", 2)
			})
		}
	})
}
