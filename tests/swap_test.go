package tests_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// swap swaps a version of the model in.
func swap(b *kit.Bundle, rt *millrace.Runtime, version int) {
	b.T.Helper()
	b.Must(rt.Swap(b.Ctx, modelID(version), admin.SwapOptions{}))
}

// mustRun checks that exactly these versions of the model have rows.
func mustRun(b *kit.Bundle, tenant string, versions ...int) {
	b.T.Helper()
	rows, err := b.Plane().Projections(b.Ctx, engine.ProjectionFilter{Tenants: []string{tenant}})
	b.Must(err)
	var got []int
	for _, row := range rows {
		if name, version := row.ID.Version(); name == model {
			got = append(got, version)
		}
	}
	got = slices.Compact(got)
	if !slices.Equal(got, versions) {
		b.T.Errorf("the versions %v of %s have rows, want %v", got, tenant, versions)
	}
}

// goesOn checks that readers get new events by the name of version 1.
func goesOn(b *kit.Bundle, rt *millrace.Runtime) {
	b.T.Helper()
	b.Reaches(rt, model, b.AppendTo(b.Store, "later", 3))
	got, err := look(b.Ctx, b.Store, "model")
	b.Must(err)
	if head := b.Head(); !got.whole() || got.Highest != head {
		b.T.Errorf("readers see %+v of %d events", got, head)
	}
}

func TestSwapReplacesTheEarlierVersion(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 3)
		b.Append("a", 30)
		b.Idle(modelVersion(b, 1))
		rt := b.Runtime(kit.Quick, modelVersions(b, 1, 2, 3)...)
		stop := b.Start(rt)
		b.Reaches(rt, "model@3", b.Head())
		if err := rt.Swap(b.Ctx, modelID(3), admin.SwapOptions{}); !errors.Is(err, projection.ErrSeveralVersions) ||
			!strings.Contains(err.Error(), `"model" and "model@2"`) {
			t.Errorf("swap past version 2: %v", err)
		}
		for _, version := range []int{2, 3} {
			goesOn(b, rt)
			swap(b, rt, version)
			goesOn(b, rt)
			swap(b, rt, version) // changes nothing
			served(b, version)
		}
		mustRun(b, projection.DefaultTenant, 3)
		for doing, err := range map[string]error{
			"pause":       rt.Pause(b.Ctx, modelID(1)),
			"repartition": rt.Repartition(b.Ctx, modelID(2), 2),
			"swap":        rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{}),
			"drop":        rt.DropVersion(b.Ctx, modelID(2)),
		} {
			if !errors.Is(err, projection.ErrRetired) || !strings.Contains(err.Error(), `replaced by "model@3"`) {
				t.Errorf("%s: %v", doing, err)
			}
		}
		stop()
		// A node of an older release runs nothing of it.
		b.Append("b", 5)
		late := b.Another(kit.Quick, append(modelVersions(b, 1, 2), b.Recorders("other")...)...)
		stop = b.Start(late)
		b.Reaches(late, "other", b.Head())
		mustRun(b, projection.DefaultTenant, 3)
		stop()
		rt = b.Another(kit.Quick, modelVersion(b, 3))
		b.Start(rt)
		goesOn(b, rt)
		served(b, 3)
	})
}

// A swap that is refused changes nothing, and version 1 continues.
func TestSwapsAreRefusedByName(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		b.Append("a", 20)
		v2 := modelVersion(b, 2)
		var fail, stopAt atomic.Int64 // positions
		handle := b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			switch e.Position {
			case fail.Load():
				return kit.ErrOnPurpose
			case stopAt.Load():
				return projection.Stop(kit.ErrOnPurpose)
			}
			return writeModel(ctx, tx, tableOf(2), []event.Envelope{e})
		})
		v2.Handler, v2.OnFailure = handle, projection.ActionPark
		fail.Store(5)
		rt := b.Running(kit.Quick, modelVersion(b, 1), v2)
		b.Reaches(rt, "model@2", b.Head())
		b.Reaches(rt, model, b.Head())
		refused := func(o admin.SwapOptions, want error, says string) {
			t.Helper()
			o.CatchUp = 300 * time.Millisecond
			if err := rt.Swap(b.Ctx, modelID(2), o); !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %v with %s", err, want, says)
			}
			mustRun(b, projection.DefaultTenant, 1, 2)
			goesOn(b, rt)
		}
		refused(admin.SwapOptions{}, projection.ErrParkedEvents, "miss: 1")
		b.Pause(rt, "model@2")
		refused(admin.SwapOptions{AllowParked: true}, projection.ErrPaused, "model@2")
		b.Resume(rt, "model@2")
		b.Reaches(rt, "model@2", b.Head())
		stopAt.Store(b.Head() + 1)
		b.Append("a", 2)
		b.Is(rt, "model@2", admin.StateFailed)
		refused(admin.SwapOptions{AllowParked: true}, projection.ErrFailed, "on purpose")
		stopAt.Store(0)
		b.Resume(rt, "model@2")
		b.Reaches(rt, "model@2", b.Head())
		for id, says := range map[millrace.ProjectionID]string{
			modelID(1): "a version from 2 on", {Name: "model@2", Partition: 1}: "ProjectionID.Partition must be 0",
			{Name: "none@2"}:                  "unknown projection",
			{Tenant: "none", Name: "model@2"}: "unknown tenant",
		} {
			if err := rt.Swap(b.Ctx, id, admin.SwapOptions{}); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("swap of %v: %v", id, err)
			}
		}
		b.Must(rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{AllowParked: true}))
		mustRun(b, projection.DefaultTenant, 2)
		if letters := b.DeadLettersOf("model@2"); len(letters) != 1 || letters[0].Position != 5 {
			t.Errorf("parked: %+v", letters)
		}
		fail.Store(0)
		<-b.Replaying("model@2")
		goesOn(b, rt)
		served(b, 2)
	})
}

// A version that does not catch up is refused with the positions of both, before and after version 1 is held.
func TestSwapOfAVersionThatIsBehindIsRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		v2 := modelVersion(b, 2)
		var waits atomic.Bool
		v2.Retry = projection.RetryPolicy{MaxAttempts: 100, Base: time.Hour, Cap: time.Hour}
		v2.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			if waits.Load() {
				return kit.ErrOnPurpose
			}
			return writeModel(ctx, tx, tableOf(2), events)
		})
		rt := b.Running(kit.Quick, modelVersion(b, 1), v2)
		b.Append("a", 7)
		b.Reaches(rt, "model@2", 7)
		waits.Store(true)
		for _, more := range []int{3, 2000} { // near and far behind
			b.Append("a", more)
			b.Reaches(rt, model, b.Head())
			err := rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{CatchUp: 100 * time.Millisecond})
			if !errors.Is(err, projection.ErrBehind) ||
				!strings.Contains(err.Error(),
					`"model@2": the version is behind the earlier one: it is at position 7, and "model" at`) {
				t.Errorf("%d more: %v", more, err)
			}
			goesOn(b, rt)
		}
		waits.Store(false)
		b.Resume(rt, "model@2")
		swap(b, rt, 2)
		goesOn(b, rt)
		served(b, 2)
	})
}

// Events that do not concern a version do not keep it behind, whatever its checkpoint is.
func TestSwapDoesNotWaitForLazyCheckpoints(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		config := kit.Tuned(kit.Quick, func(s *tuning.Settings) { s.Advance = 24 * time.Hour })
		v1, v2 := modelVersion(b, 1), modelVersion(b, 2)
		v1.Partitions, v2.Partitions = 4, 2
		v1.Types, v2.Types = []string{"counted"}, []string{"counted"}
		rt := b.Running(config, v1, v2)
		b.Append("a", 20)
		b.Reaches(rt, "model@2", b.Head())
		for i := range 30 {
			b.MustAppend(b.Store, "other"+string(rune('a'+i)), event.Any, event.Event{Type: "other"})
		}
		b.Reaches(rt, model, b.Head())
		b.InTime("the swap", func() { swap(b, rt, 2) })
		b.Reaches(rt, model, b.AppendTo(b.Store, "a", 5))
		if s, err := look(b.Ctx, b.Store, "model"); err != nil || s.Count != 25 {
			t.Errorf("readers see %+v, %v", s, err)
		}
	})
}

// A hook that fails ends the swap, and its transaction leaves nothing.
func TestSwapFailsWithItsHook(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		v2 := modelVersion(b, 2)
		var fails atomic.Bool
		fails.Store(true)
		v2.Swap = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			err := exchange(b, 2)(ctx, tx)
			if fails.Load() {
				return kit.ErrOnPurpose
			}
			if id, _ := millrace.ProjectionFrom(ctx); id.Name != "model@2" {
				return errors.New("the hook gets " + id.String())
			}
			return err
		})
		rt := b.Running(kit.Quick, modelVersion(b, 1), v2)
		b.Append("a", 20)
		b.Reaches(rt, "model@2", b.Head())
		if err := rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{}); err == nil ||
			!strings.Contains(err.Error(), kit.ErrOnPurpose.Error()) {
			t.Errorf("swap: %v", err)
		}
		mustRun(b, projection.DefaultTenant, 1, 2)
		goesOn(b, rt)
		served(b, 1)
		fails.Store(false)
		swap(b, rt, 2)
		goesOn(b, rt)
		served(b, 2)
	})
}

// While a version catches up beside the one in use, both have their own dead letters, replays, pauses and owners.
func TestVersionBesideIsAProjectionOfItsOwn(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		var sound atomic.Bool
		poisoned := func(version int, poison int64) millrace.Projection {
			p := modelVersion(b, version)
			p.OnFailure = projection.ActionPark
			p.Handler = b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				if e.Position == poison && !sound.Load() {
					return kit.ErrOnPurpose
				}
				return writeModel(ctx, tx, tableOf(version), []event.Envelope{e})
			})
			return p
		}
		list := []millrace.Projection{poisoned(1, 3), poisoned(2, 8)}
		b.Append("a", 20)
		first := b.Another(kit.Quick, list...)
		stop := b.Start(first)
		b.Reaches(first, "model@2", b.Head())
		b.Reaches(first, model, b.Head())
		stopFlow := b.Flow()
		b.Pause(first, "model@2")
		second := b.Another(kit.Quick, list...)
		b.Start(second)
		stop() // the other node takes over
		b.Resume(second, "model@2")
		b.Reaches(second, model, b.Head())
		for name, position := range map[string]int64{model: 3, "model@2": 8} {
			if letters := b.DeadLettersOf(name); len(letters) != 1 || letters[0].Position != position {
				t.Errorf("%s: parked %+v", name, letters)
			}
		}
		sound.Store(true)
		if r := <-b.Replaying("model@2"); r.Done != 1 {
			t.Errorf("replayed: %+v", r)
		}
		swap(b, second, 2) // that of version 1 is still parked, and goes with it
		stopFlow()
		goesOn(b, second)
		served(b, 2)
		if letters := b.DeadLettersOf("model@2"); len(letters) != 0 {
			t.Errorf("parked: %+v", letters)
		}
	})
}
