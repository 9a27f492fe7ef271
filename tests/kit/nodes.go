package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
)

// Owners returns how many leases each living node holds, and how many leases no living node holds.
func (b *Bundle) Owners(rt *millrace.Runtime) (held map[string]int, free int) {
	b.T.Helper()
	held = make(map[string]int)
	for _, n := range b.Summary(rt).Nodes {
		if n.Alive {
			held[n.ID] = 0
		}
	}
	for _, p := range b.StatusOf(rt).Projections {
		if _, alive := held[p.Owner]; alive {
			held[p.Owner]++
		} else {
			free++
		}
	}
	return held, free
}

// Balanced reports whether that many nodes share all leases, none of them with more than one lease above another's.
func (b *Bundle) Balanced(rt *millrace.Runtime, nodes int) bool {
	b.T.Helper()
	held, free := b.Owners(rt)
	least, most := 1<<30, 0
	for _, n := range held {
		least, most = min(least, n), max(most, n)
	}
	return len(held) == nodes && free == 0 && most > 0 && most-least <= 1
}

// Sharing returns how many of n running nodes share the projections: all of them, or one if the others stand by.
func (k *Kind) Sharing(n int) int {
	if k.Meets(SeveralNodes) {
		return n
	}
	return 1
}

// Share waits until that many nodes share all leases.
func (b *Bundle) Share(rt *millrace.Runtime, nodes int) {
	b.T.Helper()
	b.Eventually(fmt.Sprintf("%d nodes share all", nodes), func() bool { return b.Balanced(rt, nodes) })
}

// Epochs returns the sum of all epochs, which grows by one with each claim.
func (b *Bundle) Epochs(rt *millrace.Runtime) (sum int64) {
	b.T.Helper()
	for _, p := range b.StatusOf(rt).Projections {
		sum += p.Epoch
	}
	return sum
}

// Flow appends one event after another until the test ends or it is stopped, and returns the last position then.
func (b *Bundle) Flow() (stop func() int64) {
	ctx, cancel := context.WithCancel(b.Ctx)
	done := make(chan int64, 1)
	go func() {
		var last int64
		defer func() { done <- last }()
		for i := 0; ctx.Err() == nil; i++ {
			result, err := b.Store.Append(b.Ctx, fmt.Sprint("s", i%17), event.Any, event.Event{Type: "counted"})
			if err != nil {
				b.T.Errorf("append: %v", err)
				return
			}
			last = result.Positions[0]
			Pass(ctx, 2*time.Millisecond)
		}
	}()
	b.T.Cleanup(cancel)
	return func() int64 {
		cancel()
		return <-done
	}
}

// These environment variables make TestVictim of the package run a handler that kills its process as Try requires.
const (
	victimKind  = "MILLRACE_TEST_VICTIM_KIND"
	victimPlace = "MILLRACE_TEST_VICTIM_PLACE"
	victimWay   = "MILLRACE_TEST_VICTIM_WAY"
)

// Victim returns the store of a process that Try started, and the way to kill that process. In every other
// process it skips the test.
func Victim(t *testing.T) (b *Bundle, way string) {
	t.Helper()
	if os.Getenv(victimWay) == "" {
		t.Skip("runs in a process of its own, which another test starts and which is killed")
	}
	return KindOf(os.Getenv(victimKind)).At(t, os.Getenv(victimPlace)), os.Getenv(victimWay)
}

// VictimOf returns the command that runs TestVictim on the bundle's store.
func (b *Bundle) VictimOf(way string) *exec.Cmd {
	victim := exec.CommandContext(b.Ctx, os.Args[0], "-test.run=^TestVictim$")
	victim.Env = append(os.Environ(), victimKind+"="+b.Kind.Name, victimPlace+"="+b.Place, victimWay+"="+way)
	return victim
}

// Try runs a victim, and reports whether it was killed. Otherwise the victim has applied everything and ended by
// itself.
func (b *Bundle) Try(way string) (killed bool) {
	b.T.Helper()
	out, err := b.VictimOf(way).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1 || b.Ctx.Err() != nil) {
		b.T.Fatalf("%s: the victim failed by itself: %v: %s", way, err, out)
	}
	return err != nil
}

// Kill runs a victim until it is killed.
func (b *Bundle) Kill(way string) {
	b.T.Helper()
	if !b.Try(way) {
		b.T.Fatalf("%s: the victim was not killed", way)
	}
}

// Die kills this process.
func Die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}
