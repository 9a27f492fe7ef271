package tests_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// slowVersion returns version 2 of the model, whose handler fails, and is not tried again, until sound is true.
func slowVersion(b *kit.Bundle, sound *atomic.Bool) millrace.Projection {
	v2 := modelVersion(b, 2)
	v2.Retry = projection.RetryPolicy{MaxAttempts: 1000, Base: time.Hour, Cap: time.Hour}
	v2.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
		if !sound.Load() {
			return kit.ErrOnPurpose
		}
		return writeModel(ctx, tx, tableOf(2), events)
	})
	return v2
}

// openOperation returns the open operation of a projection, or one with the number 0.
func openOperation(b *kit.Bundle, id millrace.ProjectionID) engine.Operation {
	b.T.Helper()
	o, err := b.Plane().OpenOperation(b.Ctx, id)
	if !errors.Is(err, projection.ErrOperationNotFound) {
		b.Must(err)
	}
	return o
}

// A rolling deployment stops one node after the other, each of which carries out the same swap. That does not end the
// swap.
func TestSwapOutlivesNodesThatStopInOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		b.Append("a", 2000) // so far behind that version 1 is not held yet
		b.Idle(modelVersion(b, 1))
		var sound atomic.Bool
		a := newAdmin(b)
		swapped := make(chan error, 1)
		for i := range 7 {
			stop := b.Start(b.Another(kit.Quick, modelVersion(b, 1), slowVersion(b, &sound)))
			if i == 0 {
				b.Eventually("version 2 has rows", func() bool { return len(existing(b)) == 2 })
				go func() { swapped <- a.Swap(b.Ctx, modelID(2), admin.SwapOptions{CatchUp: time.Hour}) }()
			}
			b.Eventually("the node carries the swap out", func() bool {
				if len(swapped) > 0 {
					t.Fatalf("after %d nodes stopped, the swap returned %v", i, <-swapped)
				}
				return openOperation(b, modelID(2)).Epoch > int64(i)
			})
			stop()
		}
		sound.Store(true)
		rt := b.Running(kit.Quick, modelVersion(b, 1), slowVersion(b, &sound))
		b.Must(rt.Resume(b.Ctx, modelID(2)))
		b.Must(<-swapped)
		goesOn(b, rt)
		served(b, 2)
	})
}

// A node that stops while it runs a hook rolls the hook back after the grace period. That does not count against the
// hook.
func TestRebuildOutlivesNodesThatStopInItsHook(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		config := kit.Quick
		config.GracePeriod = 10 * time.Millisecond
		rebuilt := make(chan error, 1)
		go func() { rebuilt <- newAdmin(b).Rebuild(b.Ctx, p, admin.ResetOptions{}) }()
		for i := range 7 {
			began := make(chan bool, 1)
			stuck := b.Rebuildable("p")
			stuck.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
				err := tx.Erase(ctx, "p")
				began <- true
				<-ctx.Done()
				return errors.Join(err, kit.ErrOnPurpose)
			})
			stop := b.Start(b.Another(config, stuck))
			select {
			case <-began:
			case err := <-rebuilt:
				t.Fatalf("after %d nodes stopped, the rebuild returned %v", i, err)
			}
			stop()
			if o := openOperation(b, p); o.Number == 0 || o.Node != "" {
				t.Errorf("after a node stopped, the operation is %+v", o)
			}
			if at := b.Positions("p"); len(at) != 5 {
				t.Errorf("after a node stopped, the rows are %v", at)
			}
		}
		rt := b.Running(kit.Quick, b.Rebuildable("p"))
		b.Must(<-rebuilt)
		b.Applied(rt, b.Head(), "p")
	})
}

// A node that stops lets a hook in progress finish, as it does with batches, while its other projections move to other
// nodes.
func TestStopWaitsForAHook(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		hooked, done := make(chan bool), make(chan bool)
		rebuilt := b.Rebuildable("p")
		rebuilt.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			close(hooked)
			select {
			case <-done:
				return tx.Erase(ctx, "p")
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		config := kit.Quick
		config.GracePeriod = time.Hour
		rt := b.Another(config, rebuilt, b.Recorders("q")[0])
		stop := b.Start(rt)
		b.Reaches(rt, "p", 5)
		b.Reaches(rt, "q", 5)
		ended := make(chan error, 1)
		go func() { ended <- newAdmin(b).Rebuild(b.Ctx, p, admin.ResetOptions{}) }()
		<-hooked
		stopped := make(chan bool)
		go func() {
			defer close(stopped)
			stop()
		}()
		b.Eventually("the leases are released", func() bool {
			rows, err := b.Plane().Projections(b.Ctx, engine.ProjectionFilter{Names: []string{"q"}})
			return err == nil && rows[0].Owner == ""
		})
		close(done)
		<-stopped
		b.InTime("the rebuild has ended with its node", func() { b.Must(<-ended) })
		if at := b.Positions("p"); len(at) > 0 {
			t.Errorf("after the rebuild, the rows are %v", at)
		}
		b.Idle(b.Rebuildable("p"), b.Recorders("q")[0])
		b.Verify("p")
	}, kit.ConcurrentWrites)
}

// What counts against a hook are runs that began and have not returned.
func TestRunsOfAHook(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		o := newOperator(b)
		begins := func(op engine.Operation, run int64, want int) {
			t.Helper()
			if others, err := o.Plane().BeginHook(b.Ctx, op, run); err != nil || others != want {
				t.Errorf("when run %d begins, %d others have not returned, want %d; %v", run, others, want, err)
			}
		}
		first := o.take()
		begins(first, 1, 0)
		begins(first, 1, 0) // its answer was lost
		second := o.take()
		if _, err := o.Plane().BeginHook(b.Ctx, first, 2); !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("the earlier node begins the hook: %v", err)
		}
		begins(second, 1<<62, 1)
		b.Must(o.Plane().HookReturned(b.Ctx, second, 1<<62))
		begins(second, 3, 1)
		b.Must(o.Plane().HookReturned(b.Ctx, first, 1)) // it was frozen, and lives
		b.Must(o.Plane().ReleaseOperation(b.Ctx, first))
		if open := openOperation(b, p); open.Node != o.node.ID {
			t.Errorf("the earlier node has released %+v", open)
		}
		begins(second, 4, 1)
		b.Must(o.Plane().NoteOperation(b.Ctx, second, "tried again"))
		b.Must(o.Plane().ReleaseOperation(b.Ctx, second))
		if open := openOperation(b, p); open.Node != "" || open.Error != "tried again" {
			t.Errorf("the node has not released %+v", open)
		}
		begins(o.take(), 5, 2)
	})
}

// The time that a swap may wait for its version begins when the first node takes it, and no later node begins it anew.
func TestAgeOfAnOperation(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		o := newOperator(b)
		first, taken := o.take(), time.Now()
		kit.Pass(b.Ctx, 50*time.Millisecond)
		passed := time.Since(taken)
		second := o.take()
		if first.Age < 0 || second.Age < passed || !second.StartedAt.Equal(first.StartedAt) {
			t.Errorf("the ages are %v and, %v later, %v; it began at %v and %v", first.Age, passed, second.Age,
				first.StartedAt, second.StartedAt)
		}
	})
}

// aged returns a store whose operations were taken for the first time that long ago.
func aged(s kit.Store, age time.Duration) kit.Store {
	return kit.Tracing(s, func() kit.Trace {
		return kit.Trace{Row: func(statement string, results []any) {
			if statement == "take_operation" {
				*results[2].(*time.Duration) += age
			}
		}}
	})
}

// A node that takes a swap over has only the rest of the time. After that, it swaps a version that is near, and no
// other.
func TestCatchUpIsTheTimeOfTheSwap(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		b.Append("a", 2000)
		var sound atomic.Bool
		config := kit.On(kit.Quick, aged(b.Store, 2*time.Hour))
		rt := b.Running(config, modelVersion(b, 1), slowVersion(b, &sound))
		b.Reaches(rt, model, 2000)
		b.InTime("the swap is given up", func() {
			err := rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{CatchUp: time.Hour})
			if !errors.Is(err, projection.ErrBehind) {
				t.Errorf("the swap returned %v", err)
			}
		})
		sound.Store(true)
		b.Must(rt.Resume(b.Ctx, modelID(2)))
		b.Reaches(rt, "model@2", 2000)
		b.Must(rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{CatchUp: time.Hour}))
		served(b, 2)
	})
}
