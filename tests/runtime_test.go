package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestEveryEventIsAppliedOnceAndInOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 700)
		rt := b.Running(millrace.Config{}, append(b.Recorders("p"),
			millrace.Projection{Name: "q", Handler: b.Store.Each(kit.OneByOne(kit.Record("q")))})...)
		var last int64
		for i := range 50 {
			last = b.Append(fmt.Sprint("s", i%7), 1+i%3).Positions[0]
		}
		b.Applied(rt, last, "p", "q")
	})
}

func TestRunUntilIdleEndsWhenEverythingIsHandled(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Runtime(millrace.Config{}, b.Recorders("p")...)
		for range 3 {
			b.Append("a", 100)
			b.RunUntilIdle(rt)
			b.Verify("p")
		}
		if err := b.Check("unknown"); err == nil {
			t.Error("the check does not notice missing events")
		}
	})
}

func TestTwoRuntimesInOneProcessDoNotDisturbEachOther(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 300)
		first := b.Runtime(millrace.Config{}, b.Recorders("p")...)
		second := b.Runtime(millrace.Config{}, b.Recorders("p", "q")...)
		stopFirst := b.Start(first)
		b.Start(second)
		for range 20 {
			b.Append("b", 5)
		}
		stopFirst()
		last := b.Append("a", 5).Positions[4]
		b.Applied(second, last, "p", "q")
	})
}

func TestTypesSelectEventsAndTheCheckpointFollows(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{Store: tuning.Settings{Advance: 50 * time.Millisecond}},
			millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p")), Types: []string{"wanted"}})
		wanted, err := b.Store.Append(b.Ctx, "w", event.Any, event.Event{Type: "wanted"})
		b.Must(err)
		last := b.Append("a", 300).Positions[299]
		b.Reaches(rt, "p", last)
		b.Eventually("the checkpoint follows over what does not concern the projection", func() bool {
			return b.Status(rt, "p").Checkpoint == last
		})
		if applied := b.Positions("p"); !slices.Equal(applied, wanted.Positions) {
			t.Errorf("applied %v, not %v", applied, wanted.Positions)
		}
	})
}

func TestPausedProjectionDoesNotRunAndStatusShowsIt(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{}, b.Recorders("p")...)
		id := millrace.ProjectionID{Name: "p"}
		b.Reaches(rt, "p", b.Append("a", 3).Positions[2])
		b.Pause(rt, "p")
		b.Is(rt, "p", admin.StatePaused)
		last := b.Append("a", 3).Positions[2]
		if err := rt.WaitFor(b.Ctx, id, last); !errors.Is(err, projection.ErrPaused) {
			t.Errorf("waiting for a paused projection: %v", err)
		}
		if p := b.Status(rt, "p"); p.Behind != 3 {
			t.Errorf("behind by %d", p.Behind)
		}
		b.Resume(rt, "p")
		b.Eventually("it goes on", func() bool { return b.Status(rt, "p").Checkpoint == last })
		b.Verify("p")
		if err := rt.Pause(b.Ctx, millrace.ProjectionID{Name: "unknown"}); !errors.Is(err,
			projection.ErrUnknownProjection) {
			t.Errorf("pausing what is not there: %v", err)
		}
		for _, id := range []millrace.ProjectionID{{Name: "unknown"}, {Name: "p", Partition: 7}} {
			if err := rt.WaitFor(b.Ctx, id, 1); !errors.Is(err, projection.ErrUnknownProjection) {
				t.Errorf("waiting for %s, which is not there: %v", id, err)
			}
		}
		if err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Tenant: "typo", Name: "p"}, 1); !errors.Is(err,
			tenancy.ErrUnknown) {
			t.Errorf("waiting for a tenant that is not there: %v", err)
		}
	})
}

func TestRunUntilIdleReportsAPausedProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Idle(b.Recorders("p")...)
		b.Pause(rt, "p")
		for _, events := range []int{0, 1} {
			if events > 0 {
				b.Append("a", events)
			}
			if _, err := rt.RunUntilIdle(b.Ctx); !errors.Is(err, projection.ErrPaused) {
				t.Errorf("RunUntilIdle with %d new events: %v", events, err)
			}
		}
	})
}

func TestRunUntilIdleLetsTheOthersEndWhenOneFails(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		failing := func(name string, from int64) millrace.Projection {
			return millrace.Projection{Name: name,
				Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
					if e.Version >= from {
						return projection.Stop(fmt.Errorf("%s cannot handle %d", name, e.Version))
					}
					return nil
				})}
		}
		slow := b.Recorders("slow")[0]
		slow.MaxEvents = 1
		rt := b.Another(millrace.Config{}, slow, failing("late", 5), failing("early", 1))
		head := b.Append("s", 20)
		b.Pause(rt, "late")
		status, err := rt.RunUntilIdle(b.Ctx)
		if !errors.Is(err, projection.ErrFailed) || !strings.Contains(fmt.Sprint(err), "early cannot handle 1") ||
			!strings.HasSuffix(fmt.Sprint(err), "(and 1 more)") {
			t.Errorf("RunUntilIdle with a failing and a paused projection: %v", err)
		}
		b.Resume(rt, "late")
		if _, err := rt.RunUntilIdle(b.Ctx); !errors.Is(err, projection.ErrFailed) ||
			!strings.HasSuffix(fmt.Sprint(err), "(and 1 more)") {
			t.Errorf("RunUntilIdle with two failing projections: %v", err)
		}
		if p := b.Status(rt, "slow"); p.Position != head.Last() || len(status.Projections) != 3 {
			t.Errorf("%s is at %d of %d, in %d projections", p.ID, p.Position, head.Last(), len(status.Projections))
		}
		if p := b.Status(rt, "late"); p.Position != 4 {
			t.Errorf("late is at %d", p.Position)
		}
	})
}

// A projection that was paused or had failed is resumed while the others still run.
func TestRunUntilIdleWaitsForAProjectionThatIsResumed(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		release := make(chan struct{})
		var resumed atomic.Bool
		rt := b.Another(kit.Quick, b.Recorders("paused")[0],
			millrace.Projection{
				Name: "slow",
				Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
					<-release
					return nil
				}),
			},
			millrace.Projection{
				Name: "failed",
				Handler: b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error {
					if !resumed.Load() {
						return projection.Stop(kit.ErrOnPurpose)
					}
					return nil
				}),
			})
		head := b.Append("s", 1).Last()
		b.Pause(rt, "paused")
		ended := make(chan error, 1)
		go func() {
			_, err := rt.RunUntilIdle(b.Ctx)
			ended <- err
		}()
		b.Eventually("one has failed", func() bool { return b.Status(rt, "failed").State == admin.StateFailed })
		resumed.Store(true)
		b.Resume(rt, "failed")
		b.Resume(rt, "paused")
		b.Reaches(rt, "failed", head)
		b.Reaches(rt, "paused", head)
		close(release)
		b.Must(<-ended)
	})
}

func TestRunUntilIdleEndsWhenATenantIsDroppedMeanwhile(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenant := b.Tenants(2)[1]
		b.AppendTo(tenant, "s", 1)
		called := make(chan struct{}, 100)
		rt := b.Another(millrace.Config{}, millrace.Projection{
			Name: "p", Retry: projection.RetryPolicy{Base: time.Hour},
			Handler: b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error {
				called <- struct{}{}
				return kit.ErrOnPurpose
			})})
		ended := make(chan error, 1)
		go func() {
			_, err := rt.RunUntilIdle(b.Ctx)
			ended <- err
		}()
		<-called
		b.Must(b.Store.DropTenant(b.Ctx, tenant.Name()))
		if err := <-ended; !errors.Is(err, tenancy.ErrUnknown) && !errors.Is(err, projection.ErrPaused) {
			t.Errorf("RunUntilIdle whose tenant is dropped: %v", err)
		}
	})
}

func TestTenantsStayApartAndNewOnesAreFound(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{Store: tuning.Settings{Reconcile: 50 * time.Millisecond}},
			millrace.Projection{Name: "p",
				Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
					id, _ := millrace.ProjectionFrom(ctx)
					return tx.Record(ctx, id.Tenant, events...)
				})})
		b.Append("a", 2)
		for _, name := range []string{"acme", `o'hara "; drop schema public`} {
			tenant, err := b.Store.CreateTenant(b.Ctx, name)
			b.Must(err)
			b.ReachesOf(rt, name, "p", b.AppendTo(tenant, "a", 2))
			b.Must(b.CheckOf(tenant, name))
		}
		b.Reaches(rt, "p", 2)
		b.Verify("default")
	})
}

func TestStopLetsABatchFinishAndReleasesTheLease(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		entered, leave := make(chan struct{}), make(chan struct{})
		handler := func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			close(entered)
			<-leave
			return tx.Record(ctx, "p", events...)
		}
		rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(handler)})
		ctx, cancel := context.WithCancel(b.Ctx)
		done := make(chan error, 1)
		go func() { done <- rt.Run(ctx) }()
		b.Append("a", 5)
		<-entered
		cancel()
		select {
		case err := <-done:
			t.Fatalf("Run ended with a batch under way: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		close(leave)
		b.Must(<-done)
		b.Verify("p")
		if p := b.Status(rt, "p"); p.Owner != "" || p.State != admin.StateNotOwned {
			t.Errorf("after the end it is %s, owned by %q", p.State, p.Owner)
		}
	})
}

func TestStopCancelsABatchPastTheGracePeriod(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		entered := make(chan struct{}, 1)
		rt := b.Runtime(millrace.Config{GracePeriod: 50 * time.Millisecond}, millrace.Projection{Name: "p",
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				if err := tx.Record(ctx, "p", events...); err != nil {
					return err
				}
				entered <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})})
		ctx, cancel := context.WithCancel(b.Ctx)
		done := make(chan error, 1)
		go func() { done <- rt.Run(ctx) }()
		b.Append("a", 5)
		<-entered
		cancel()
		b.Must(<-done)
		if applied := b.Positions("p"); len(applied) != 0 {
			t.Errorf("%v of the cancelled batch stayed", applied)
		}
		if p := b.Status(rt, "p"); p.Attempts != 0 || p.Parked != 0 {
			t.Errorf("the cancelled batch was counted: %+v", p)
		}
	})
}

// Appends and another runtime go on meanwhile, so that the checkpoint may be beyond what was visible.
func TestRunUntilIdleEndsBesideALiveRuntime(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		live := b.Running(millrace.Config{}, b.Recorders("p")...)
		stop := b.AppendThrough(4)
		defer stop()
		b.Reaches(live, "p", 10)
		for range 5 {
			b.Idle(b.Recorders("p")...)
		}
	}, kit.SeveralNodes)
}

// Where only one runtime runs projections at a time, the other one waits for its end.
func TestRunUntilIdleContinuesAfterALiveRuntime(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		stop := b.Start(b.Another(millrace.Config{}, b.Recorders("p")...))
		b.Append("a", 100)
		next := b.Another(millrace.Config{}, b.Recorders("p", "q")...)
		done := make(chan error, 1)
		go func() {
			_, err := next.RunUntilIdle(b.Ctx)
			done <- err
		}()
		b.Reaches(next, "p", b.Head())
		stop()
		b.Must(<-done)
		b.Verify("p")
		b.Verify("q")
	})
}

func TestRunRefusesToStartIfItCannotWork(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		if err := b.Runtime(millrace.Config{}).Run(b.Ctx); err == nil {
			t.Error("it ran without a projection")
		}
		p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))}
		rt := b.Runtime(millrace.Config{}, p)
		if err := rt.Register(p); err == nil {
			t.Error("a doubled name was accepted")
		}
		if err := b.Runtime(millrace.Config{Tenants: []string{"unknown"}}, p).Run(b.Ctx); !errors.Is(err,
			tenancy.ErrUnknown) {
			t.Errorf("unknown tenant: %v", err)
		}
		raw := b.Kind.At(t, b.Kind.Place(t, 0))
		if err := raw.Runtime(millrace.Config{}, p).Run(b.Ctx); err == nil ||
			!strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("not migrated: %v", err)
		}
		b.Start(rt)
		b.Is(rt, "p", admin.StateLive)
		if err := rt.Run(b.Ctx); err == nil {
			t.Error("it ran twice at once")
		}
		if err := rt.Register(b.Recorders("q")...); err == nil {
			t.Error("a projection was registered while it ran")
		}
	})
}

func TestLogsShortenErrorsOfHandlers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		core, logs := observer.New(zapcore.DebugLevel)
		b.Append("a", 1)
		logger := zap.New(core, zap.AddCaller()).With(zap.NamedError("with", errors.New(strings.Repeat("é", 1<<19))))
		rt := b.Runtime(millrace.Config{Logger: logger},
			millrace.Projection{Name: "p", Retry: kit.Soon(1),
				Handler: b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error {
					return errors.New("the reason: " + strings.Repeat("é", 1<<19))
				})})
		b.RunUntilIdle(rt)
		reasons := 0
		for _, entry := range logs.All() {
			if entry.Message == "event failed" && !entry.Caller.Defined {
				t.Error("the caller is lost")
			}
			for name, value := range entry.ContextMap() {
				text, ok := value.(string)
				if ok && name != "with" && strings.Contains(text, "the reason: ") {
					reasons++
				}
				if ok && name != "with" && len(text) > 2048 {
					t.Errorf("%s: %s has %d bytes", entry.Message, name, len(text))
				}
			}
		}
		if reasons == 0 {
			t.Error("no entry says why the event failed")
		}
	})
}
