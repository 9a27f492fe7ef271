package tests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// operator is a node that carries out an operation step by step.
type operator struct {
	*kit.Bundle
	store   store.Driver
	session engine.Session
	op      engine.Operation
	hooks   int // how often the hook ran
}

// operate requests an operation on version 2 of the model, and takes it as a node that lives until leave.
func operate(b *kit.Bundle, kind engine.OperationKind) *operator {
	b.T.Helper()
	o := &operator{Bundle: b, store: b.Store.Engine()}
	node := engine.Node{ID: uuid.NewString(), Projections: []string{model, "model@2"}, LeaseDuration: 10 * time.Minute}
	var err error
	o.session, err = o.store.Connect(b.Ctx, node)
	b.Must(err)
	b.T.Cleanup(o.leave)
	request, err := engine.NewOperation{ID: engine.FullID(modelID(2)), Kind: kind,
		Holds: versions.Names(modelID(2))}.Encode(engine.SwapOptions{CatchUp: time.Minute})
	b.Must(err)
	_, err = o.Plane().InsertOperation(b.Ctx, request)
	b.Must(err)
	taken, err := o.Plane().TakeOperation(b.Ctx, node, nil)
	b.Must(err)
	o.op = *taken
	return o
}

func (o *operator) leave() {
	_ = o.session.Deregister(o.Ctx)
	_ = o.session.Close(o.Ctx)
}

func (o *operator) hold(names ...string) {
	o.T.Helper()
	free, err := o.Plane().Hold(o.Ctx, o.op, names)
	if !free {
		o.T.Fatalf("%q are still running: %v", names, err)
	}
}

func (o *operator) run() error {
	hook := o.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
		o.hooks++
		return exchange(o.Bundle, 2)(ctx, tx)
	})
	return o.Plane().RunOperation(o.Ctx, o.op, engine.OperationCode{Hook: hook.Engine(), Timeout: time.Minute})
}

// standing makes both versions, of which version 1 has handled 10 events and version 2 the first behind of them less.
func standing(b *kit.Bundle, behind int) {
	b.T.Helper()
	newModel(b, 2)
	b.Append("a", 10-behind)
	b.Idle(modelVersions(b, 1, 2)...)
	if behind > 0 {
		b.Append("a", behind)
		b.Idle(modelVersion(b, 1))
	}
}

// Whatever the node has seen before, the transaction itself checks that the version is not behind.
func TestSwapTransactionRefusesAVersionThatIsBehind(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		standing(b, 1)
		o := operate(b, engine.OperationSwap)
		o.hold(model, "model@2")
		if err := o.run(); !errors.Is(err, projection.ErrBehind) {
			t.Errorf("swap: %v", err)
		}
		if o.hooks != 1 {
			t.Errorf("the hook ran %d times", o.hooks)
		}
		o.leave()
		mustRun(b, projection.DefaultTenant, 1, 2)
		served(b, 1) // what the hook did was undone
	})
}

// The transaction needs both versions to stand still. What runs could move on, or wait for the locks of the hook.
func TestSwapTransactionNeedsBothVersionsToStandStill(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		standing(b, 0)
		o := operate(b, engine.OperationSwap)
		o.hold(model)
		if err := o.run(); !errors.Is(err, engine.ErrNotStill) {
			t.Errorf("only version 1 is held: %v", err)
		}
		o.hold("model@2")
		b.Must(o.run())
		o.leave()
		mustRun(b, projection.DefaultTenant, 2)
		served(b, 2)
	})
}

// A version that took the place of another one meanwhile is not dropped.
func TestDropTransactionRefusesAVersionInUse(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		standing(b, 0)
		o := operate(b, engine.OperationSwap)
		o.hold(model, "model@2")
		b.Must(o.run())
		o.leave()
		o = operate(b, engine.OperationDrop)
		o.hold("model@2")
		if err := o.run(); !errors.Is(err, projection.ErrVersionInUse) {
			t.Errorf("drop: %v", err)
		}
		mustRun(b, projection.DefaultTenant, 2)
	})
}

// A node dies while it holds version 1, and no node is left that could carry the swap out: version 1 runs again.
func TestHoldsEndWithTheirNode(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		standing(b, 0)
		o := operate(b, engine.OperationSwap)
		o.hold(model)
		o.leave()
		rt := b.Running(kit.Quick, modelVersion(b, 1))
		goesOn(b, rt)
		mustRun(b, projection.DefaultTenant, 1, 2)
	})
}
