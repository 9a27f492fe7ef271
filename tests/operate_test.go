package tests_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// A process that only operates carries out a rebuild, a swap and a drop, and handles no event.
func TestOperateCarriesOutOperationsAndRunsNoProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 3)
		b.Append("s", 20)
		b.Idle(append(modelVersions(b, 1, 2, 3), b.Rebuildable("p"))...)
		var handled atomic.Int64
		counts := b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error {
			handled.Add(1)
			return nil
		})
		registered := append(modelVersions(b, 1, 2, 3), b.Rebuildable("p"))
		for i := range registered {
			registered[i].Handler = counts
		}
		job := b.Runtime(kit.Quick, registered...)
		b.Must(job.Operate(b.Ctx, func(ctx context.Context) error {
			if held, free := b.Owners(job); len(held) != 1 || free != 4 {
				t.Errorf("leases by nodes: %v, free: %d", held, free)
			}
			return errors.Join(
				job.Rebuild(ctx, p, admin.ResetOptions{}),
				job.DropVersion(ctx, modelID(3)),
				job.Swap(ctx, modelID(2), admin.SwapOptions{}))
		}))
		served(b, 2)
		if rows := b.Positions("p"); len(rows) > 0 || b.Status(job, "p").Position != 0 {
			t.Errorf("after the rebuild the rows are %v, and the checkpoint is %d", rows, b.Status(job, "p").Position)
		}
		if n := handled.Load(); n > 0 {
			t.Errorf("the process has handled %d batches", n)
		}
		b.Idle(b.Rebuildable("p"))
		b.Verify("p")
	})
}

// The error of fn is returned, and a runtime without projections has nothing to operate.
func TestOperateReturnsTheErrorOfItsFunction(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		if err := b.Runtime(kit.Quick).Operate(b.Ctx, nil); err == nil ||
			!strings.Contains(err.Error(), "operate: no projection is registered") {
			t.Errorf("without projections: %v", err)
		}
		job := b.Runtime(kit.Quick, b.Rebuildable("p"))
		err := job.Operate(b.Ctx, func(context.Context) error { return kit.ErrOnPurpose })
		if !errors.Is(err, kit.ErrOnPurpose) {
			t.Errorf("error %v, want that of the function", err)
		}
		err = job.Operate(b.Ctx, func(ctx context.Context) error { return job.Operate(ctx, nil) })
		if err == nil || !strings.Contains(err.Error(), "already running") {
			t.Errorf("within itself: %v", err)
		}
		ctx, cancel := context.WithCancel(b.Ctx)
		cancel()
		if err := job.Operate(ctx, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of its context: %v", err)
		}
	})
}

// What a process that ends has left open is carried out by a node.
func TestOperationThatOperateLeavesIsCarriedOut(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		left := b.Rebuildable("p")
		begun := make(chan struct{})
		left.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		})
		config := kit.Quick
		config.GracePeriod = time.Millisecond
		job := b.Runtime(config, left)
		err := job.Operate(b.Ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				<-begun
				cancel()
			}()
			return job.Rebuild(ctx, p, admin.ResetOptions{})
		})
		if !errors.Is(err, projection.ErrOperationPending) {
			t.Errorf("error %v, want that the operation is pending", err)
		}
		rt := b.Running(kit.Quick, b.Rebuildable("p"))
		b.Eventually("a node carries it out", func() bool { return b.Status(rt, "p").Operation == nil })
		b.Applied(rt, b.Append("s", 1).Positions[0], "p")
		b.Verify("p")
	})
}

// A process that operates leaves an operation of a projection that it does not register to the nodes.
func TestOperateLeavesProjectionsThatItDoesNotRegister(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Kind.MustMeet(t, kit.SeveralNodes)
		b.Append("s", 5)
		rt := b.Running(kit.Quick, b.Rebuildable("p"))
		b.Reaches(rt, "p", b.Head())
		job := b.Runtime(kit.Quick, b.Rebuildable("q"))
		b.InTime("a node carries it out", func() {
			b.Must(job.Operate(b.Ctx,
				func(ctx context.Context) error { return job.Rebuild(ctx, p, admin.ResetOptions{}) }))
		})
	})
}
