package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// operatorNode is a node that carries out operations by the store's engine, without a runtime, so that tests can do
// what a runtime never does.
type operatorNode struct {
	*kit.Bundle
	port    store.Driver
	node    engine.Node
	session engine.Session
}

// newOperator connects a node that registers the projection p, and requests a rebuild of it.
func newOperator(b *kit.Bundle) operatorNode {
	b.T.Helper()
	o := operatorNode{
		b, b.Store.Engine(), engine.Node{ID: uuid.NewString(), Projections: []string{"p"}, LeaseDuration: time.Hour},
		nil,
	}
	var err error
	o.session, err = o.port.Connect(b.Ctx, o.node)
	b.Must(err)
	b.T.Cleanup(func() { _ = o.session.Close(context.Background()) })
	_, err = o.Plane().InsertOperation(b.Ctx, engine.NewOperation{ID: p,
		Kind: engine.OperationRebuild, Holds: []string{"p"}})
	b.Must(err)
	return o
}

func (o operatorNode) take() engine.Operation {
	o.T.Helper()
	op, err := o.Plane().TakeOperation(o.Ctx, o.node, nil)
	o.Must(err)
	if op == nil {
		o.T.Fatal("there is no operation to take")
	}
	return *op
}

// run runs the transaction of an operation, whose hook erases the rows of p and then calls also.
func (o operatorNode) run(op engine.Operation, also func() error) error {
	hook := o.Store.Hook(func(ctx context.Context, tx kit.Tx) error { return errors.Join(tx.Erase(ctx, "p"), also()) })
	return o.Plane().RunOperation(o.Ctx, op, engine.OperationCode{Hook: hook.Engine(), Timeout: time.Minute})
}

func nothing() error { return nil }

// unchanged checks that p has its rows and its checkpoint.
func (o operatorNode) unchanged(events int64) {
	o.T.Helper()
	rows, err := o.Plane().Projections(o.Ctx, engine.ProjectionFilter{Names: []string{"p"}})
	o.Must(err)
	if len(o.Positions("p")) != int(events) || rows[0].Checkpoint != events {
		o.T.Errorf("the checkpoint is %d, and the rows are %v", rows[0].Checkpoint, o.Positions("p"))
	}
}

// The error about an operation that was taken over names its number, kind and projection, and the epoch, on every
// store, whatever its node does with it.
func TestLostOperationIsNamedWithItsEpoch(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		o := newOperator(b)
		op := o.take()
		b.Must(o.Plane().ReleaseOperation(b.Ctx, op))
		o.take()
		_, held := o.Plane().Hold(b.Ctx, op, op.Holds)
		_, begun := o.Plane().BeginHook(b.Ctx, op, 1)
		name, since := op.String(), fmt.Sprintf("was ended or taken over since epoch %d", op.Epoch)
		for doing, err := range map[string]error{"hold": held, "begin the hook": begun,
			"fail": o.Plane().FailOperation(b.Ctx, op, errors.New("bad")), "run": o.run(op, nothing)} {
			if !errors.Is(err, projection.ErrLeaseLost) || !strings.Contains(err.Error(), name) ||
				!strings.Contains(err.Error(), since) {
				t.Errorf("%s: %v, want %q and %q", doing, err, name, since)
			}
		}
	})
}

// A node that carries out the first operation takes the second one.
func TestNodeTakesTheNextOperation(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"), b.Rebuildable("q"))
		o := newOperator(b)
		o.node.Projections = []string{"p", "q"}
		second, err := o.Plane().InsertOperation(b.Ctx,
			engine.NewOperation{
				ID: millrace.ProjectionID{Name: "q"}, Kind: engine.OperationRebuild, Holds: []string{"q"},
			})
		b.Must(err)
		first := o.take()
		if first.ID.Name != "p" {
			t.Fatalf("took %s first", first)
		}
		if op, err := o.Plane().TakeOperation(b.Ctx, o.node, []int64{first.Number}); err != nil || op == nil ||
			op.Number != second {
			t.Errorf("took %v, %v, want that of q", op, err)
		}
	})
}

// A node that took an operation under an earlier epoch can neither commit nor end it, and cannot hold its projections.
func TestOperationThatWasTakenOverHasNoEffect(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		o := newOperator(b)
		first := o.take()
		free, err := o.Plane().Hold(b.Ctx, first, first.Holds)
		b.Must(err)
		if !free {
			t.Fatal("the projection does not stand still")
		}
		second := o.take()
		if second.Epoch <= first.Epoch {
			t.Fatalf("the epoch is %d after %d", second.Epoch, first.Epoch)
		}
		for what, err := range map[string]error{"the transaction": o.run(first, nothing),
			"the end": o.Plane().FailOperation(b.Ctx, first, kit.ErrOnPurpose)} {
			if !errors.Is(err, projection.ErrLeaseLost) {
				t.Errorf("%s of the earlier node returned %v", what, err)
			}
		}
		o.unchanged(5)
		b.Must(o.run(second, nothing))
		if rows, err := o.Plane().Projections(b.Ctx, engine.ProjectionFilter{Names: []string{"p"}}); err != nil ||
			rows[0].Checkpoint != 0 || rows[0].Held {
			t.Errorf("after the rebuild: %+v, %v", rows, err)
		}
		if err := o.run(second, nothing); !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("a second transaction returned %v", err)
		}
	})
}

// An operation that is cancelled while its hook runs has no effect, and holds nothing.
func TestOperationThatIsCancelledDuringItsHook(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		o := newOperator(b)
		op := o.take()
		if _, err := o.Plane().Hold(b.Ctx, op, op.Holds); err != nil {
			t.Fatal(err)
		}
		if err := o.run(op, func() error { return o.Plane().CancelOperation(b.Ctx, p) }); !errors.Is(err,
			projection.ErrLeaseLost) && !errors.Is(err, engine.ErrNotStill) {
			t.Errorf("the transaction returned %v", err)
		}
		o.unchanged(5)
		b.Must(o.session.Deregister(b.Ctx))
		rt := b.Running(kit.Quick, b.Rebuildable("p"))
		b.Append("s", 1)
		b.Applied(rt, 6, "p")
	}, kit.ConcurrentWrites)
}

// The transaction of an operation is refused until the owners of its projections have released their leases.
func TestOperationWaitsUntilItsProjectionsStandStill(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(5)
		_, err := h.Plane().InsertOperation(b.Ctx,
			engine.NewOperation{ID: p, Kind: engine.OperationRebuild, Holds: []string{"p"}})
		b.Must(err)
		o := operatorNode{b, h.Port, h.Node, h.Session}
		op := o.take()
		if err := o.run(op, nothing); !errors.Is(err, engine.ErrNotStill) {
			t.Errorf("before the hold, the transaction returned %v", err)
		}
		for range 2 {
			if free, err := o.Plane().Hold(b.Ctx, op, op.Holds); free || err != nil {
				t.Fatalf("while an owner lives, the hold returned %v, %v", free, err)
			}
		}
		if err := o.run(op, nothing); !errors.Is(err, engine.ErrNotStill) {
			t.Errorf("while an owner lives, the transaction returned %v", err)
		}
		orders, err := h.Port.Orders(b.Ctx, h.Node, []int32{h.Lease.Row})
		if err != nil || orders[h.Lease.Row].Desired.Runs() {
			t.Errorf("the owner's orders are %+v, %v", orders, err)
		}
		b.Must(h.Port.Release(b.Ctx, []engine.Advance{{Lease: h.Lease, To: h.Lease.Checkpoint}}))
		if free, err := o.Plane().Hold(b.Ctx, op, op.Holds); !free || err != nil {
			t.Errorf("after the release, the hold returned %v, %v", free, err)
		}
		if leases, err := h.Port.Claim(b.Ctx, h.Node, []int32{h.Lease.Row}, true); len(leases) > 0 || err != nil {
			t.Errorf("a held projection was claimed: %+v, %v", leases, err)
		}
		b.Must(o.run(op, nothing))
		if leases, err := h.Port.Claim(b.Ctx, h.Node, []int32{h.Lease.Row}, true); len(leases) != 1 || err != nil {
			t.Errorf("after the operation, the claim returned %+v, %v", leases, err)
		}
	})
}

// An operation holds none but the projections that it names: it lets no others run again at its end.
func TestOperationHoldsOnlyWhatItNames(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"), b.Rebuildable("other"))
		o := newOperator(b)
		op := o.take()
		if free, err := o.Plane().Hold(b.Ctx, op, []string{"p", "other"}); free || err != nil {
			t.Errorf("the hold returned %v, %v", free, err)
		}
		for name, held := range map[string]bool{"p": true, "other": false} {
			if rows, err := o.Plane().Projections(b.Ctx, engine.ProjectionFilter{Names: []string{name}}); err != nil ||
				rows[0].Held != held {
				t.Errorf("%s: %+v, %v", name, rows, err)
			}
		}
	})
}

// When a projection is renamed, its open operation continues under the new name.
func TestOperationOfARenamedProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		o := newOperator(b)
		op := o.take()
		if free, err := o.Plane().Hold(b.Ctx, op, op.Holds); !free || err != nil {
			t.Fatalf("the hold returned %v, %v", free, err)
		}
		b.Must(o.session.Deregister(b.Ctx))
		a, err := admin.New(b.Store)
		b.Must(err)
		b.Must(a.Rename(b.Ctx, p, "q"))
		if err := o.run(op, nothing); err == nil {
			t.Error("the earlier node committed after the rename")
		}
		renamed := b.Rebuildable("p") // it writes to the same rows
		renamed.Name = "q"
		b.Must(o.session.Close(b.Ctx))
		rt := b.Running(kit.Quick, renamed)
		b.Eventually("the rebuild has ended", func() bool {
			ended, err := o.Plane().Operation(b.Ctx, op.Number)
			return err == nil && !ended.EndedAt.IsZero() && ended.Err() == nil
		})
		b.Reaches(rt, "q", 5)
		b.Verify("p")
	})
}

func TestOperationOfAForgottenProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		o := newOperator(b)
		op := o.take()
		b.Must(o.session.Deregister(b.Ctx))
		a, err := admin.New(b.Store)
		b.Must(err)
		b.Must(a.Forget(b.Ctx, p))
		ended, err := o.Plane().Operation(b.Ctx, op.Number)
		if err != nil || ended.EndedAt.IsZero() || !errors.Is(ended.Err(), projection.ErrUnknownProjection) {
			t.Errorf("the operation is %+v, %v", ended, err)
		}
	})
}
