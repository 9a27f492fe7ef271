package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// p is the projection of the tests of rebuilds.
var p = millrace.ProjectionID{Name: "p"}

// A rebuild under live traffic leaves each event applied once, in order.
func TestRebuildInPlace(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(kit.Quick, b.Rebuildable("p"))
		stop := b.Flow()
		for range 3 {
			b.Reaches(rt, "p", b.Head())
			b.Must(rt.Rebuild(b.Ctx, p, admin.ResetOptions{}))
		}
		b.Applied(rt, stop(), "p")
	})
}

// An Admin of another process requests the rebuild, which the node of a runtime carries out.
func TestRebuildFromAnotherProcess(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		rt := b.Running(kit.Quick, b.Rebuildable("p"))
		b.Reaches(rt, "p", 5)
		a, err := admin.New(b.Again())
		b.Must(err)
		b.Must(a.Rebuild(b.Ctx, p, admin.ResetOptions{}))
		b.Applied(rt, 5, "p")
	})
}

// The hook's error, and its panic, end the rebuild without effect, and the projection continues.
func TestRebuildWhoseHookFails(t *testing.T) {
	fail := map[string]kit.HookFunc{
		"on purpose": func(ctx context.Context, tx kit.Tx) error {
			return errors.Join(tx.Erase(ctx, "p"), kit.ErrOnPurpose)
		},
		"panic": func(ctx context.Context, tx kit.Tx) error {
			_ = tx.Erase(ctx, "p")
			panic("panic")
		},
		"timeout": func(ctx context.Context, tx kit.Tx) error {
			_ = tx.Erase(ctx, "p")
			<-ctx.Done()
			return ctx.Err()
		},
	}
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for says, hook := range fail {
			t.Run(says, func(t *testing.T) {
				b := kind.New(t)
				p := b.Rebuildable("p")
				p.Reset, p.Timeout = b.Store.Hook(hook), 2*time.Second
				rt := b.Running(kit.Quick, p)
				b.Append("s", 5)
				b.Reaches(rt, "p", 5)
				err := rt.Rebuild(b.Ctx, millrace.ProjectionID{Name: "p"}, admin.ResetOptions{})
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("the rebuild returned %v", err)
				}
				b.Append("s", 5)
				b.Applied(rt, 10, "p")
			})
		}
	})
}

func TestRebuildWithoutHook(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		rt := b.Running(kit.Quick, b.Recorders("p")...)
		b.Reaches(rt, "p", 5)
		a, err := admin.New(b.Again())
		b.Must(err)
		for name, rebuild := range map[string]func(context.Context, millrace.ProjectionID, admin.ResetOptions) error{
			"known at once": rt.Rebuild, "known to the node": a.Rebuild,
		} {
			if err := rebuild(b.Ctx, p, admin.ResetOptions{}); !errors.Is(err, projection.ErrNoHook) ||
				!strings.Contains(err.Error(), "Projection.Reset") {
				t.Errorf("%s: %v", name, err)
			}
		}
		b.Applied(rt, 5, "p")
	})
}

// While no node knows the projection, the rebuild is pending: a second one is refused, it can be cancelled, and a node
// that starts later carries it out.
func TestPendingRebuild(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		b.Idle(b.Rebuildable("p"))
		a, err := admin.New(b.Store)
		b.Must(err)
		pending := func() {
			t.Helper()
			ctx, cancel := context.WithCancel(b.Ctx)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- a.Rebuild(ctx, p, admin.ResetOptions{}) }()
			b.Eventually("the operation is open", func() bool {
				_, err := b.Plane().OpenOperation(b.Ctx, p)
				return err == nil
			})
			cancel()
			if err := <-ended; !errors.Is(err, projection.ErrOperationPending) || !errors.Is(err, context.Canceled) {
				t.Fatalf("a rebuild without a node returned %v", err)
			}
		}
		pending()
		if err := a.Rebuild(b.Ctx, p, admin.ResetOptions{}); !errors.Is(err, projection.ErrOperationOpen) ||
			!strings.Contains(err.Error(), "operation 1 (rebuild)") {
			t.Errorf("a second rebuild returned %v", err)
		}
		b.Must(a.CancelOperation(b.Ctx, p))
		if err := a.CancelOperation(b.Ctx, p); !errors.Is(err, projection.ErrOperationNotFound) {
			t.Errorf("a second cancel returned %v", err)
		}
		pending()
		waited := make(chan error, 1)
		go func() { waited <- a.WaitOperation(b.Ctx, p) }()
		var resets atomic.Int32
		rebuilt := b.Rebuildable("p")
		rebuilt.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			resets.Add(1)
			return tx.Erase(ctx, "p")
		})
		rt := b.Running(kit.Quick, rebuilt)
		// it may have ended before the wait
		if err := <-waited; err != nil && !errors.Is(err, projection.ErrOperationNotFound) {
			t.Error(err)
		}
		b.Eventually("the rebuild is carried out", func() bool { return resets.Load() == 1 })
		b.Append("s", 1)
		b.Reaches(rt, "p", 6)
		b.Eventually("each event was applied once", func() bool { return b.Check("p") == nil })
	})
}

// A paused projection is reset, and stays paused.
func TestRebuildOfAPausedProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 5)
		rt := b.Running(kit.Quick, b.Rebuildable("p"))
		b.Reaches(rt, "p", 5)
		b.Pause(rt, "p")
		b.Must(rt.Rebuild(b.Ctx, p, admin.ResetOptions{}))
		if s := b.Status(rt, "p"); s.State != admin.StatePaused || s.Checkpoint != 0 || len(b.Positions("p")) != 0 {
			t.Errorf("after the rebuild: %+v", s)
		}
		b.Resume(rt, "p")
		b.Applied(rt, 5, "p")
	})
}

// The hook sees the names and limits of a handler.
func TestHookIsGuardedLikeAHandler(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		p := b.Rebuildable("p")
		p.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			if id, ok := millrace.ProjectionFrom(ctx); !ok ||
				id != (millrace.ProjectionID{Tenant: projection.DefaultTenant, Name: "p"}) {
				return fmt.Errorf("the context names %v", id)
			}
			_ = tx.Erase(ctx, "p")
			return tx.Commit(ctx)
		})
		b.Append("s", 5)
		rt := b.Running(kit.Quick, p)
		b.Reaches(rt, "p", 5)
		if err := rt.Rebuild(b.Ctx, millrace.ProjectionID{Name: "p"}, admin.ResetOptions{}); err == nil ||
			!strings.Contains(err.Error(), "commit refused") {
			t.Errorf("the rebuild returned %v", err)
		}
		b.Verify("p")
	})
}

// Status shows the progress of a rebuild until the projection has caught up, and the operation while it is open.
func TestStatusOfARebuild(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		turn, done := make(chan bool), make(chan bool)
		var stepping, hooked atomic.Bool
		rebuilt := b.Rebuildable("p")
		rebuilt.MaxEvents = 5
		rebuilt.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			if stepping.Load() {
				<-turn
			}
			return tx.Record(ctx, "p", events...)
		})
		rebuilt.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			hooked.Store(true)
			<-done
			stepping.Store(true)
			return tx.Erase(ctx, "p")
		})
		b.Append("s", 20)
		rt := b.Running(kit.Quick, rebuilt)
		b.Reaches(rt, "p", 20)
		if s := b.Status(rt, "p"); s.Rebuild != nil || s.Operation != nil {
			t.Errorf("before the rebuild: %+v, %+v", s.Rebuild, s.Operation)
		}
		ended := make(chan error, 1)
		go func() { ended <- rt.Rebuild(b.Ctx, p, admin.ResetOptions{}) }()
		b.Eventually("the hook runs", hooked.Load)
		s := b.Status(rt, "p")
		if o := s.Operation; s.State != admin.StatePaused || s.Reason != "held by operation 1 (rebuild)" || o == nil ||
			o.Number != 1 || o.Kind != "rebuild" ||
			o.Node != b.StatusOf(rt).Node || o.RequestedAt.IsZero() || o.StartedAt.Before(o.RequestedAt) || !o.Holds {
			t.Errorf("while the hook runs: %+v, operation %+v", s, s.Operation)
		}
		close(done)
		b.Must(<-ended)
		for range 2 {
			turn <- true
		}
		b.Eventually("half is done", func() bool { s = b.Status(rt, "p"); return s.Position == 10 })
		if r := s.Rebuild; r == nil || r.From != 0 || r.To != 20 || r.Done != 0.5 || r.Since.IsZero() || r.Left <= 0 ||
			s.Operation != nil {
			t.Errorf("halfway: %+v, %+v", s.Rebuild, s.Operation)
		}
		close(turn)
		b.Append("s", 5) // are not part of it
		b.Reaches(rt, "p", 25)
		if r := b.Status(rt, "p").Rebuild; r != nil {
			t.Errorf("at the end: %+v", r)
		}
		b.Verify("p")
	})
}

// A wait for a position goes on while the projection is held and rebuilt.
func TestWaitForDuringARebuild(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		hooked, done := make(chan bool), make(chan bool)
		rebuilt := b.Rebuildable("p")
		rebuilt.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			close(hooked)
			<-done
			return tx.Erase(ctx, "p")
		})
		b.Append("s", 5)
		rt := b.Running(kit.Quick, rebuilt)
		b.Reaches(rt, "p", 5)
		ended := make(chan error, 1)
		go func() { ended <- rt.Rebuild(b.Ctx, p, admin.ResetOptions{}) }()
		<-hooked
		waited := make(chan error, 2)
		ctx, cancel := context.WithTimeout(b.Ctx, 200*time.Millisecond)
		defer cancel()
		if err := rt.WaitFor(ctx, p, 6); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait during the rebuild returned %v", err)
		}
		go func() { waited <- rt.WaitFor(b.Ctx, p, 6) }()
		close(done)
		b.Must(<-ended)
		b.Append("s", 1)
		b.Must(<-waited)
		b.Verify("p")
	})
}

// The projections of a paused tenant are reset and continue with it. Those of an archived one are not reset.
func TestRebuildOfATenantThatDoesNotRun(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenant := b.Tenants(2)[1]
		p := millrace.ProjectionID{Tenant: tenant.Name(), Name: "p"}
		last := b.AppendTo(tenant, "s", 5)
		rebuilt := b.Rebuildable("p")
		rebuilt.Tenants = []string{tenant.Name()}
		rt := b.Running(kit.Quick, rebuilt)
		b.ReachesOf(rt, tenant.Name(), "p", last)
		b.Must(rt.PauseTenant(b.Ctx, tenant.Name()))
		b.Must(rt.Rebuild(b.Ctx, p, admin.ResetOptions{}))
		if at := b.Positions("p"); len(at) > 0 {
			t.Errorf("while the tenant is paused, applied %v", at)
		}
		b.Must(rt.ResumeTenant(b.Ctx, tenant.Name()))
		b.ReachesOf(rt, tenant.Name(), "p", last)
		b.Must(b.CheckOf(tenant, "p"))
		b.Must(b.Store.ArchiveTenant(b.Ctx, tenant.Name()))
		if err := rt.Rebuild(b.Ctx, p, admin.ResetOptions{}); !errors.Is(err, tenancy.ErrArchived) {
			t.Errorf("a rebuild in an archived tenant returned %v", err)
		}
		b.Must(b.CheckOf(tenant, "p"))
	})
}
