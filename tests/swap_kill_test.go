package tests_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// swapSteps are the steps of a swap at which its process is killed.
var swapSteps = []string{
	"when it takes the operation",
	"when it looks how far the new version is",
	beforeHold,
	"once the earlier version is held",
	"once the new version is held",
	"before the transaction",
	"before the hook",
	"after the hook",
	afterCommit,
}

const (
	beforeHold  = "before the earlier version is held"
	afterCommit = "after the commit"
)

// dyingSwap returns a store whose process is killed, or what else strike does, at a step of a swap.
func dyingSwap(s kit.Store, step string, strike func()) kit.Store {
	named := map[kit.Step]string{kit.Taken: swapSteps[0], kit.Looks: swapSteps[1], kit.Holds: swapSteps[2],
		kit.Held: swapSteps[3],
		kit.Runs: swapSteps[5], kit.Hooks: swapSteps[6], kit.Hooked: swapSteps[7], kit.Committed: afterCommit}
	return kit.AtSteps(s, func(at kit.Step, names []string) {
		if step != "" && named[at] == step || at == kit.Held && len(names) > 1 && step == swapSteps[4] {
			strike()
		}
	})
}

// versionsWay is the way of a process that runs versions of the model until it is killed, also by itself at a step of a
// swap.
const versionsWay = "versions "

func wayOf(step string, versions ...int) string { return fmt.Sprintln(versionsWay, versions) + step }

// frozen begins the step at which a process freezes itself, by freeze, instead of being killed.
const frozen = "frozen "

var freeze = func() {}

// runVersions is TestVictim for versionsWay.
func runVersions(b *kit.Bundle, way string) {
	list, step, _ := strings.Cut(way, "\n")
	var run []int
	for _, field := range strings.Fields(strings.Trim(strings.TrimPrefix(list, versionsWay), " []")) {
		var version int
		_, err := fmt.Sscan(field, &version)
		b.Must(err)
		run = append(run, version)
	}
	strike := kit.Die
	if at, freezes := strings.CutPrefix(step, frozen); freezes {
		step, strike = at, sync.OnceFunc(freeze)
	}
	b.Start(b.Runtime(kit.On(kit.Quick, dyingSwap(b.Store, step, strike)), modelVersions(b, run...)...))
	<-b.Ctx.Done()
}

// child is a process that runs versions of the model.
type child struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
	err  error
	end  func()
}

// spawn starts a process that runs versions, and is killed at a step if that is not empty. end kills it.
func spawn(b *kit.Bundle, step string, versions ...int) *child {
	b.T.Helper()
	c := &child{cmd: b.VictimOf(wayOf(step, versions...)), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	b.Must(c.cmd.Start())
	go func() {
		defer close(c.done)
		c.err = c.cmd.Wait()
	}()
	c.end = sync.OnceFunc(func() {
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.done
		c.wasKilled(b)
	})
	b.T.Cleanup(c.end)
	return c
}

// wasKilled fails the test if the process ended otherwise.
func (c *child) wasKilled(b *kit.Bundle) {
	var exit *exec.ExitError
	if !errors.As(c.err, &exit) || exit.ExitCode() != -1 {
		b.T.Errorf("a process failed by itself: %v: %s", c.err, c.out.String())
	}
}

// dies waits until the process has killed itself.
func (c *child) dies(b *kit.Bundle) {
	b.T.Helper()
	select {
	case <-c.done:
		c.wasKilled(b)
	case <-b.Ctx.Done():
		b.T.Fatalf("the process was not killed: %s", c.out.String())
	}
}

// Versions replace each other while events arrive and readers query, and at each swap the process that carries it out
// is killed at another step.
func TestNoReaderMissesARowWhileVersionsAreSwappedAndProcessesKilled(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.New(t).Patient()
		last := len(swapSteps) + 1
		newModel(b, last)
		// Where one process at a time runs the projections, it runs both versions. Otherwise those of the old release
		// go on.
		together := !kind.Meets(kit.SeveralNodes)
		old := spawn(b, "", 1)
		b.Eventually("version 1 runs", func() bool { return living(b, model) })
		b.Eventually("version 1 has rows", func() bool {
			_, err := b.Plane().Versions(b.Ctx, modelID(1), nil)
			return err == nil
		})
		r, stopReaders := startReaders(b, 3)
		stopLoad := load(b)
		began := time.Now()
		for i, step := range swapSteps {
			swapUnderFire(b, &old, step, i+1, together)
			if t.Failed() {
				t.Fatalf("while version %d replaced version %d, killed %s", i+2, i+1, step)
			}
		}
		stopLoad()
		stopReaders()
		rate := float64(b.Head()) / time.Since(began).Seconds()
		t.Logf("%d events, %.0f/s, %d queries, %d waits", b.Head(), rate, r.queries.Load(), r.follows.Load())
		a, err := admin.New(b.Store)
		b.Must(err)
		b.Must(a.WaitFor(b.Ctx, modelID(1), b.Head()))
		served(b, last)
		untouched(b, last)
	})
}

// swapUnderFire replaces a version by the next one. The process that carries it out is killed at a step. old is the
// process that runs the version, and then the next one.
func swapUnderFire(b *kit.Bundle, old **child, step string, version int, together bool) {
	b.T.Helper()
	run := []int{version + 1}
	if together {
		(*old).end()
		run = []int{version, version + 1}
	}
	next := spawn(b, step, run...)
	a, err := admin.New(b.Store)
	b.Must(err)
	b.Eventually("the next version has rows", func() bool {
		_, err := b.Plane().Versions(b.Ctx, modelID(version+1), nil)
		return err == nil
	})
	b.Must(a.WaitFor(b.Ctx, modelID(1), b.Head()+60)) // both run under load
	swapped := make(chan error, 1)
	go func() { swapped <- requestSwap(b, a, version+1) }()
	next.dies(b)
	if !together && step != afterCommit {
		// Nothing can carry the swap out now, and the earlier version goes on.
		b.Must(a.WaitFor(b.Ctx, modelID(version), b.Head()))
	}
	next = spawn(b, "", run...)
	if err := <-swapped; err != nil {
		b.T.Errorf("swap: %v", err)
	}
	// The old release runs nothing any more, also if it starts again.
	if !together {
		(*old).end()
		*old = spawn(b, "", version)
		b.Eventually("it has started again", func() bool { return living(b, modelID(version).Name) })
		b.Must(a.WaitFor(b.Ctx, modelID(1), b.Head()))
		(*old).end()
	}
	*old = next
}

// living reports whether a living node registers a projection.
func living(b *kit.Bundle, name string) bool {
	nodes, err := b.Plane().Nodes(b.Ctx)
	b.Must(err)
	return slices.ContainsFunc(nodes,
		func(n engine.NodeRow) bool { return n.Alive && slices.Contains(n.Projections, name) })
}

// requestSwap swaps. On a slow machine, the version may be behind the earlier one for longer than that is held.
func requestSwap(b *kit.Bundle, a *admin.Admin, version int) error {
	for {
		err := a.Swap(b.Ctx, modelID(version), admin.SwapOptions{CatchUp: 5 * time.Minute})
		if !errors.Is(err, projection.ErrBehind) {
			return err
		}
	}
}

// untouched checks that the versions that were replaced ended with prefixes of the events, and that only the last one
// is left.
func untouched(b *kit.Bundle, last int) {
	b.T.Helper()
	head := b.Head()
	for v := 1; v < last; v++ {
		s, err := look(b.Ctx, b.Store, tableOf(v))
		b.Must(err)
		if !s.whole() || s.Highest == 0 || s.Highest == head {
			b.T.Errorf("version %d ended with %+v of %d events", v, s, head)
		}
	}
	rows, err := b.Plane().Projections(b.Ctx, engine.ProjectionFilter{})
	b.Must(err)
	if len(rows) != 1 || rows[0].ID.Name != modelID(last).Name {
		b.T.Errorf("rows are left: %+v", rows)
	}
}
