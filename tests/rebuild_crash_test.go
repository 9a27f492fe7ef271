package tests_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/tests/kit"
)

// rebuildSteps are the moments of a rebuild at which its process is killed.
var rebuildSteps = map[string]kit.Step{
	"rebuild: when it has taken the operation":          kit.Taken,
	"rebuild: when it has asked the owners to stop":     kit.Holding,
	"rebuild: when the projection stands still":         kit.Held,
	"rebuild: in the hook":                              kit.Hooks,
	"rebuild: in the hook, after its writes":            kit.Hooked,
	"rebuild: when it has committed, before it says so": kit.Committed,
}

// rebuildingVictim runs the projection p until it dies during the rebuild of it.
func rebuildingVictim(b *kit.Bundle, last kit.Step) {
	config := kit.On(kit.Quick, kit.AtSteps(b.Store, func(step kit.Step, _ []string) {
		if step == last {
			kit.Die()
		}
	}))
	b.Start(b.Runtime(config, b.Rebuildable("p")))
	<-b.Ctx.Done()
}

// A process that is killed at any step of a rebuild leaves it to the next one. The projection stands still no longer
// than the rebuild lasts, and each event is applied once.
func TestRebuildSurvivesTheEndOfItsProcess(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for step := range maps.Keys(rebuildSteps) {
			t.Run(step, func(t *testing.T) {
				t.Parallel()
				b := kind.New(t)
				b.Append("s", 20)
				b.Idle(b.Rebuildable("p"))
				a, err := admin.New(b.Again())
				b.Must(err)
				ended := make(chan error, 1)
				ctx, cancel := context.WithTimeout(b.Ctx, time.Minute)
				defer cancel()
				go func() { ended <- a.Rebuild(ctx, p, admin.ResetOptions{}) }()
				b.Kill(step)
				b.Append("s", 5)
				rt := b.Running(kit.Quick, b.Rebuildable("p"))
				b.Must(<-ended)
				b.Reaches(rt, "p", 25)
				b.Verify("p")
				if s := b.Status(rt, "p"); s.Operation != nil || s.Rebuild != nil {
					t.Errorf("afterwards: %+v, %+v", s.Operation, s.Rebuild)
				}
			})
		}
	})
}

// Hooks that end every process that runs them do not end the fleet: the rebuild fails, and the projection continues.
func TestHookThatEndsItsProcess(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 20)
		b.Idle(b.Rebuildable("p"))
		a, err := admin.New(b.Again())
		b.Must(err)
		ended := make(chan error, 1)
		go func() { ended <- a.Rebuild(b.Ctx, p, admin.ResetOptions{}) }()
		for range 5 {
			b.Kill("rebuild: in the hook")
		}
		deadly := b.Rebuildable("p")
		deadly.Reset = b.Store.Hook(func(context.Context, kit.Tx) error {
			t.Error("the hook ran again")
			return nil
		})
		rt := b.Running(kit.Quick, deadly)
		if err := <-ended; err == nil ||
			err.Error() != "rebuild default/p: 5 runs of its hook ended with their nodes or connections" {
			t.Errorf("the rebuild returned %v", err)
		}
		b.Append("s", 1)
		b.Applied(rt, 21, "p")
	})
}

// unendable returns a store that fails to record the failure of an operation once, as in an outage.
func unendable(s kit.Store) kit.Store {
	var once atomic.Bool
	return kit.Tracing(s, func() kit.Trace {
		return kit.Trace{Statement: func(name string, _ []any) error {
			if name == "end_operation" && once.CompareAndSwap(false, true) {
				return &faults.Fault{Class: faults.Infrastructure, Err: errors.New("no space left")}
			}
			return nil
		}}
	})
}

// The failure of an operation names the fault that each run of its hook met, also if the outage kept it from being
// recorded at first.
func TestHookThatMeetsAnOutageInEachRun(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		full := b.Rebuildable("p")
		var last atomic.Value
		full.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			err := b.Kind.Outages["disk full"](ctx, tx)
			last.Store(err.Error())
			return err
		})
		config := kit.On(kit.Quick, unendable(b.Store))
		rt := b.Running(config, full)
		b.Reaches(rt, "p", 5)
		err := rt.Rebuild(b.Ctx, p, admin.ResetOptions{})
		if err == nil || !strings.Contains(err.Error(), "5 runs of its hook") ||
			!strings.Contains(err.Error(), last.Load().(string)) {
			t.Errorf("the rebuild returned %v", err)
		}
	})
}

// While a rebuild's node is killed, the nodes that are left carry it out, and what they own continues.
func TestRebuildIsTakenOver(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		for step := range maps.Keys(rebuildSteps) {
			b.Append(fmt.Sprint("s", step), 3)
			rt := b.Another(kit.Quick, b.Rebuildable("p"), b.Recorders("q")[0])
			victim := b.VictimOf(step)
			b.Must(victim.Start())
			b.Eventually("both nodes are there",
				func() bool { nodes := b.Summary(rt).Nodes; return len(nodes) > 0 && nodes[len(nodes)-1].Alive })
			stop := b.Start(rt)
			b.Reaches(rt, "q", b.Head())
			ctx, cancel := context.WithTimeout(b.Ctx, time.Minute)
			if err := rt.Rebuild(ctx, p, admin.ResetOptions{}); err != nil {
				t.Errorf("%s: %v", step, err)
			}
			cancel()
			b.Applied(rt, b.Head(), "p", "q")
			b.Must(victim.Process.Kill())
			_ = victim.Wait()
			stop()
		}
	}, kit.SeveralNodes)
}
