package tests_test

import (
	"context"
	"errors"
	"strings"
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

// If the node that carries out an operation lives, but does not register the new name of its projection, another node
// carries it out.
func TestOperationOfAProjectionThatWasRenamedAwayFromItsNode(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		o := newOperator(b)
		op := o.take()
		if free, err := o.Plane().Hold(b.Ctx, op, op.Holds); !free || err != nil {
			t.Fatalf("the hold returned %v, %v", free, err)
		}
		a, err := admin.New(b.Store)
		b.Must(err)
		b.Must(a.Rename(b.Ctx, p, "q"))
		renamed := b.Rebuildable("p") // it writes to the same rows
		renamed.Name = "q"
		rt := b.Running(kit.Quick, renamed)
		b.Eventually("the rebuild has ended", func() bool {
			ended, err := o.Plane().Operation(b.Ctx, op.Number)
			return err == nil && !ended.EndedAt.IsZero() && ended.Err() == nil
		})
		b.Reaches(rt, "q", 5)
		b.Verify("p")
	}, kit.SeveralNodes)
}

// renamedTake returns a store whose runtimes take one operation of q as if it was one of p, as if its projection was
// renamed between the search for operations and the take.
func renamedTake(s kit.Store) kit.Store {
	var once atomic.Bool
	return kit.Tracing(s, func() kit.Trace {
		return kit.Trace{Row: func(statement string, results []any) {
			switch statement {
			case "open_operations":
				if name := results[2].(*string); *name == "q" && !once.Load() {
					*name = "p"
				}
			case "take_operation":
				once.Store(once.Load() || *results[0].(*bool))
			}
		}}
	})
}

// A node that has taken an operation under a name that it does not register leaves it to another node.
func TestOperationOfAProjectionThatIsRenamedWhileANodeTakesIt(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		renamed := b.Rebuildable("q")
		b.Idle(renamed)
		id := millrace.ProjectionID{Tenant: projection.DefaultTenant, Name: "q"}
		number, err := b.Plane().InsertOperation(b.Ctx,
			engine.NewOperation{ID: id, Kind: engine.OperationRebuild, Holds: []string{"q"}})
		b.Must(err)
		config := kit.On(kit.Quick, renamedTake(b.Store))
		stop := b.Start(b.Runtime(config, b.Rebuildable("p")))
		b.Eventually("the node leaves the operation", func() bool {
			o, err := b.Plane().Operation(b.Ctx, number)
			return err == nil && o.Epoch > 0 && o.Node == ""
		})
		if !b.Kind.Meets(kit.SeveralNodes) {
			stop()
		}
		b.Start(b.Another(kit.Quick, renamed))
		b.Eventually("the rebuild has ended", func() bool {
			o, err := b.Plane().Operation(b.Ctx, number)
			return err == nil && !o.EndedAt.IsZero() && o.Err() == nil
		})
		stop()
	})
}

// A swap that is cancelled while it waits for the version ends on its node as well, which would look at the version for
// as long as SwapOptions.CatchUp otherwise.
func TestSwapThatIsCancelledWhileItWaits(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		var sound atomic.Bool
		log, logs := kit.Logs()
		config := kit.Quick
		config.Logger = log
		rt := b.Running(config, modelVersion(b, 1), slowVersion(b, &sound))
		b.Append("a", 2000) // so far behind that version 1 is not held yet
		b.Reaches(rt, model, 2000)
		ended := make(chan error, 1)
		go func() { ended <- rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{CatchUp: time.Hour}) }()
		b.Eventually("a node carries the swap out", func() bool { return openOperation(b, modelID(2)).Node != "" })
		b.Must(rt.CancelOperation(b.Ctx, modelID(2)))
		if err := <-ended; !errors.Is(err, projection.ErrOperationCancelled) {
			t.Errorf("the swap returned %v", err)
		}
		b.Eventually("the node has given it up",
			func() bool { return logs.FilterMessage("operation was ended or taken over meanwhile").Len() == 1 })
		goesOn(b, rt)
		served(b, 1)
	})
}

// Swaps that wait for their versions do not keep their node from other operations, however many they are.
func TestSwapsThatWaitLeaveRoomForOtherOperations(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := b.Tenants(6)
		var sound atomic.Bool
		shapes := []millrace.Projection{b.Rebuildable("p"), {Name: model, Handler: b.Store.Batch(kit.Nothing)},
			{Name: model, Version: 2, Retry: projection.RetryPolicy{MaxAttempts: 1000, Base: time.Hour, Cap: time.Hour},
				Handler: b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error {
					if !sound.Load() {
						return kit.ErrOnPurpose
					}
					return nil
				})}}
		shapes[0].Tenants, shapes[1].Tenants, shapes[2].Tenants = []string{projection.DefaultTenant},
			[]string{"tenant*"}, []string{"tenant*"}
		rt := b.Running(kit.Quick, shapes...)
		b.Append("s", 5)
		swapped := make(chan error, len(tenants))
		for _, tenant := range tenants[1:] {
			id := millrace.ProjectionID{Tenant: tenant.Name(), Name: "model@2"}
			// so far behind that version 1 is not held yet
			b.ReachesOf(rt, tenant.Name(), model, b.AppendTo(tenant, "a", 1200))
			go func() { swapped <- rt.Swap(b.Ctx, id, admin.SwapOptions{CatchUp: time.Hour}) }()
		}
		for _, tenant := range tenants[1:] {
			b.Eventually("the node carries out the swap of "+tenant.Name(), func() bool {
				if len(swapped) > 0 {
					t.Fatalf("a swap returned %v", <-swapped)
				}
				return openOperation(b, millrace.ProjectionID{Tenant: tenant.Name(), Name: "model@2"}).Node != ""
			})
		}
		b.InTime("the rebuild", func() { b.Must(rt.Rebuild(b.Ctx, p, admin.ResetOptions{})) })
		b.Applied(rt, b.Head(), "p")
		b.Eventually("the versions wait for their next attempts", func() bool {
			return b.Summary(rt).States[admin.StateWaiting] == len(tenants)-1
		})
		sound.Store(true)
		for _, tenant := range tenants[1:] {
			b.Must(rt.Resume(b.Ctx, millrace.ProjectionID{Tenant: tenant.Name(), Name: "model@2"}))
		}
		for range tenants[1:] {
			b.Must(<-swapped)
		}
	})
}

// While the hook of a swap meets an outage or a lock again and again, the earlier version runs between two tries.
func TestEarlierVersionRunsBetweenTheTriesOfASwap(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		outage := b.Kind.Outages["disk full"]
		if b.Kind == kit.Postgres {
			outage = kit.Raise("55P03") // a lock time-out
		}
		var down atomic.Bool
		down.Store(true)
		v2 := modelVersion(b, 2)
		v2.Swap = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			if down.Load() {
				return outage(ctx, tx)
			}
			return exchange(b, 2)(ctx, tx)
		})
		rt := b.Running(kit.Quick, modelVersion(b, 1), v2)
		b.Append("a", 20)
		b.Reaches(rt, "model@2", 20)
		swapped := make(chan error, 1)
		go func() { swapped <- rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{}) }()
		for range 2 {
			b.Eventually("a try of the swap has failed", func() bool {
				open, err := b.Plane().OpenOperation(b.Ctx, modelID(2))
				if len(swapped) > 0 {
					t.Fatalf("the swap ended: %v", <-swapped)
				}
				return err == nil && open.Error != ""
			})
			goesOn(b, rt)
		}
		down.Store(false)
		b.Must(<-swapped)
		goesOn(b, rt)
		served(b, 2)
	})
}

// A swap ends an operation on the earlier version that no node has begun.
func TestOperationOfAReplacedVersion(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		b.Append("a", 20)
		b.Idle(modelVersions(b, 1, 2)...)
		number, err := b.Plane().InsertOperation(b.Ctx,
			engine.NewOperation{ID: modelID(1), Kind: engine.OperationRebuild, Holds: []string{model}})
		b.Must(err)
		rt := b.Running(kit.Quick, modelVersion(b, 2))
		swap(b, rt, 2)
		o, err := b.Plane().Operation(b.Ctx, number)
		if err != nil || o.EndedAt.IsZero() || !errors.Is(o.Err(), projection.ErrRetired) ||
			!strings.Contains(o.Error, `replaced by "model@2"`) {
			t.Errorf("the operation ended at %v with %v, %v", o.EndedAt, o.Err(), err)
		}
		goesOn(b, rt)
		served(b, 2)
	})
}
