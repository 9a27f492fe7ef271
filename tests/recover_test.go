package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// soonNoticed lets nodes notice a restore soon.
var soonNoticed = millrace.Config{
	Store: kit.Quick.Store, LeaseDuration: kit.Quick.LeaseDuration, PollInterval: 50 * time.Millisecond,
}

// allStopped waits until all projections have stopped since the events of the default tenant were restored, and until
// the store has that they have. A node shows it before.
func allStopped(b *kit.Bundle, rt *millrace.Runtime) {
	b.T.Helper()
	b.Eventually("all projections have stopped", func() bool {
		found, err := rt.RestoredTenant(b.Ctx, "", 0)
		b.Must(err)
		runs := func(p admin.RestoredProjection) bool { return p.Running }
		return !slices.ContainsFunc(found.Projections, runs) &&
			!slices.ContainsFunc(b.StatusOf(rt).Projections, func(p admin.ProjectionStatus) bool {
				return p.State != admin.StateFailed || !strings.HasSuffix(p.Reason, tenancy.ErrRestored.Error())
			})
	})
}

// mustRecover recovers the default tenant.
func mustRecover(b *kit.Bundle, a *admin.Admin, opts admin.RecoverOptions) admin.RecoverResult {
	b.T.Helper()
	result, err := a.RecoverTenant(b.Ctx, "", opts)
	b.Must(err)
	return result
}

func recovered(name string, from, to int64) admin.RecoveredProjection {
	return admin.RecoveredProjection{
		ID: millrace.ProjectionID{Tenant: projection.DefaultTenant, Name: name}, From: from, Position: to,
	}
}

// Events are appended between the restore and the recovery. They are applied and delivered, and nothing else is.
func TestRecoveredProjectionsHandleWhatWasAppendedSinceTheRestore(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var r kit.Receiver
		rt := b.Running(soonNoticed, append(b.Recorders("p", "q"),
			millrace.Projection{Name: "mails", Handler: millrace.DeliverEach(r.Sends(kit.Freely))})...)
		b.Append("a", 5)
		for _, name := range []string{"p", "q", "mails"} {
			b.Reaches(rt, name, 5)
		}
		b.Must(b.Store.Truncate(b.Ctx, 3))
		allStopped(b, rt)
		b.Append("b", 1) // gets a position that was handled
		a, err := admin.New(b.Again())
		b.Must(err)
		found, err := a.RestoredTenant(b.Ctx, "", 0)
		b.Must(err)
		if found.End != 3 || found.Head != 4 || found.EndTime.IsZero() || len(found.Projections) != 3 {
			t.Errorf("found %+v", found)
		}
		for _, p := range found.Projections {
			if p.Running || p.Checkpoint != 5 || p.Highest != 5 || p.Delivers != (p.ID.Name == "mails") {
				t.Errorf("found %+v", p)
			}
		}
		result := mustRecover(b, a, admin.RecoverOptions{Continue: []string{"p"}, Reset: map[string]int64{"q": 2}})
		want := []admin.RecoveredProjection{recovered("mails", 5, 3), recovered("p", 5, 3), recovered("q", 5, 2)}
		if result.End != 3 || !slices.Equal(result.Projections, want) {
			t.Errorf("recovered %+v", result)
		}
		b.Append("b", 4)
		for _, name := range []string{"p", "q", "mails"} {
			b.Reaches(rt, name, 8)
		}
		if at := b.Positions("p"); !slices.Equal(at, append(upTo(1, 5), upTo(4, 8)...)) {
			t.Errorf("p applied %v", at)
		}
		if at := b.Positions("q"); !slices.Equal(at, append(upTo(1, 5), upTo(3, 8)...)) {
			t.Errorf("q applied %v", at)
		}
		arrived := r.All()
		b.MustHaveArrived(arrived[:5], upTo(1, 5), 0)
		b.MustHaveArrived(arrived[5:], upTo(4, 8), 0)
		for _, a := range arrived[5:] {
			if slices.ContainsFunc(arrived[:5], func(before kit.Arrival) bool { return before.Token == a.Token }) {
				t.Errorf("position %d came with the token of the event that is gone", a.Position)
			}
		}
	})
}

// Two projections are rebuilt. Neither runs before, and the events that are gone are in no read model afterwards.
func TestRecoveredProjectionsAreRebuilt(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		fails := b.Rebuildable("fails")
		fails.Reset = b.Store.Hook(func(context.Context, kit.Tx) error { return kit.ErrOnPurpose })
		rt := b.Running(soonNoticed, b.Rebuildable("p"), b.Rebuildable("q"), fails)
		b.Append("a", 5)
		for _, name := range []string{"p", "q", "fails"} {
			b.Reaches(rt, name, 5)
		}
		b.Must(b.Store.Truncate(b.Ctx, 3))
		allStopped(b, rt)
		result, err := rt.RecoverTenant(b.Ctx, "", admin.RecoverOptions{Rebuild: []string{"p", "q", "fails"}})
		if err == nil || !strings.Contains(err.Error(), "rebuild default/fails: ") ||
			!strings.Contains(err.Error(), kit.ErrOnPurpose.Error()) || len(result.Projections) != 3 {
			t.Errorf("%+v, %v", result, err)
		}
		b.Append("b", 2)
		b.Applied(rt, 5, "p", "q")
		b.Is(rt, "fails", admin.StateFailed)
		if s := b.Status(rt, "fails"); s.Checkpoint != 3 ||
			!strings.Contains(s.Reason, "not rebuilt yet") {
			t.Errorf("the projection whose rebuild failed: %+v", s)
		}
		if at := b.Positions("fails"); !slices.Equal(at, upTo(1, 5)) {
			t.Errorf("it applied %v", at)
		}
		b.Resume(rt, "fails")
		b.Reaches(rt, "fails", 5)
	})
}

// Without a node, a recovery in a paused tenant may be repeated.
func TestRecoveryWithoutANodeMayBeRepeated(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var r kit.Receiver
		b.Append("a", 5)
		rt := b.Idle(append(b.Recorders("p"), millrace.Projection{Name: "mails",
			Handler: millrace.DeliverEach(r.Sends(kit.Freely))})...)
		b.Must(rt.PauseTenant(b.Ctx, ""))
		b.Must(b.Store.Truncate(b.Ctx, 3))
		b.Append("b", 4) // passes the checkpoints: no node can notice the restore
		for range 2 {
			result := mustRecover(b, rt.Admin, admin.RecoverOptions{End: 3, Continue: []string{"p"}})
			if len(result.Projections) != 2 || result.Projections[0].Position != 3 ||
				result.Projections[1].Position != 3 {
				t.Errorf("recovered %+v", result)
			}
		}
		b.Must(rt.ResumeTenant(b.Ctx, ""))
		b.RunUntilIdle(rt)
		if at := b.Positions("p"); !slices.Equal(at, append(upTo(1, 5), upTo(4, 7)...)) {
			t.Errorf("applied %v", at)
		}
		b.MustHaveArrived(r.All()[5:], upTo(4, 7), 0)
		// Repeated once more while the projections run, it changes nothing.
		b.Start(rt)
		b.Is(rt, "p", admin.StateLive)
		b.Is(rt, "mails", admin.StateLive)
		for _, p := range mustRecover(b, rt.Admin, admin.RecoverOptions{Continue: []string{"p"}}).Projections {
			if !p.Unchanged || p.Position != 7 {
				t.Errorf("recovered %+v", p)
			}
		}
	})
}

func TestRecoveryThatIsRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 5)
		mails := millrace.Projection{
			Name:    "mails",
			Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error { return nil }),
		}
		rt := b.Running(soonNoticed, append(b.Recorders("p"), mails)...)
		b.Reaches(rt, "p", 5)
		b.Reaches(rt, "mails", 5)
		a, err := admin.New(b.Store)
		b.Must(err)
		refused := func(opts admin.RecoverOptions, is error, says string) {
			t.Helper()
			_, err := a.RecoverTenant(b.Ctx, "", opts)
			if err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: %v", opts, err)
			}
			if s := b.Status(rt, "p"); s.Checkpoint != 5 {
				t.Fatalf("%+v: %+v", opts, s)
			}
		}
		// While they run.
		refused(admin.RecoverOptions{End: 3, Continue: []string{"p"}}, projection.ErrRunning,
			`recover tenant "default": "mails": `)
		refused(admin.RecoverOptions{End: 5, Reset: map[string]int64{"p": 5}}, projection.ErrRunning, `"p"`)
		refused(admin.RecoverOptions{End: 6, Continue: []string{"p"}}, nil,
			"the end of the restored events, 6, is above the last event, 5")
		b.Must(b.Store.Truncate(b.Ctx, 3))
		allStopped(b, rt)
		refused(admin.RecoverOptions{}, nil, `these projections must continue, be reset or be rebuilt too: "p"`)
		refused(admin.RecoverOptions{Continue: []string{"p"}, Rebuild: []string{"p"}}, nil,
			"must name each projection at most once")
		refused(admin.RecoverOptions{Continue: []string{"p", "x"}}, projection.ErrUnknownProjection, `"x"`)
		refused(admin.RecoverOptions{Reset: map[string]int64{"p": 4}}, nil,
			`"p": the position must be from 0 to the last restored event, 3: 4`)
		refused(admin.RecoverOptions{Reset: map[string]int64{"p": -1}}, nil,
			`"p": the position must be from 0 to the last restored event, 3: -1`)
		refused(admin.RecoverOptions{Continue: []string{"p"}, Reset: map[string]int64{"mails": 1}},
			projection.ErrDelivers, `"mails"`)
		refused(admin.RecoverOptions{Continue: []string{"p"}, Rebuild: []string{"mails"}}, projection.ErrDelivers,
			`"mails"`)
		if _, err := rt.RecoverTenant(b.Ctx, "", admin.RecoverOptions{Rebuild: []string{"p"}}); !errors.Is(err,
			projection.ErrNoHook) {
			t.Errorf("without a hook: %v", err)
		}
		if _, err := a.RecoverTenant(b.Ctx, "nobody", admin.RecoverOptions{}); !errors.Is(err, tenancy.ErrUnknown) {
			t.Errorf("an unknown tenant: %v", err)
		}
	})
}

func TestRecoveryDuringAnOperationIsRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 5)
		rt := b.Idle(b.Rebuildable("p"))
		b.Must(rt.PauseTenant(b.Ctx, ""))
		b.Must(b.Store.Truncate(b.Ctx, 3))
		a, err := admin.New(b.Again())
		b.Must(err)
		// No node carries it out.
		ctx, cancel := context.WithCancel(b.Ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := a.RecoverTenant(ctx, "", admin.RecoverOptions{Rebuild: []string{"p"}})
			ended <- err
		}()
		b.Eventually("the rebuild is requested", func() bool { return b.Status(rt, "p").Operation != nil })
		cancel()
		if err := <-ended; !errors.Is(err, projection.ErrOperationPending) {
			t.Errorf("without a node: %v", err)
		}
		if _, err := a.RecoverTenant(b.Ctx, "", admin.RecoverOptions{Continue: []string{"p"}}); !errors.Is(err,
			projection.ErrOperationOpen) {
			t.Errorf("during the rebuild: %v", err)
		}
		b.Must(rt.ResumeTenant(b.Ctx, ""))
		if s := b.Status(rt, "p"); s.State != admin.StateFailed || s.Checkpoint != 3 {
			t.Errorf("before the rebuild: %+v", s)
		}
		b.Start(rt)
		// it may have ended
		if err := a.WaitOperation(b.Ctx, p); err != nil && !errors.Is(err, projection.ErrOperationNotFound) {
			t.Error(err)
		}
		b.Applied(rt, 3, "p")
	})
}

// A process that carries out operations, and runs no projections, recovers a tenant of which no node runs.
func TestProcessThatOnlyOperatesRecoversATenant(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 5)
		b.Idle(append(b.Recorders("q"), b.Rebuildable("p"))...)
		b.Must(b.Store.Truncate(b.Ctx, 3))
		rt := b.Runtime(kit.Quick, b.Rebuildable("p"))
		b.Must(rt.Operate(b.Ctx, func(ctx context.Context) error {
			_, err := rt.RecoverTenant(ctx, "", admin.RecoverOptions{Rebuild: []string{"p"}, Continue: []string{"q"}})
			return err
		}))
		if at := b.Positions("p"); len(at) > 0 {
			t.Errorf("the read model has %v", at)
		}
		b.Idle(append(b.Recorders("q"), b.Rebuildable("p"))...)
		b.Verify("p")
	})
}

// The dead letters of events that are gone must not be taken for those of other events, which get their positions.
func TestRecoveryDeletesDeadLettersOfEventsThatAreGone(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		bad := func(at int64) bool { return at == 2 || at == 6 }
		rt := b.Running(soonNoticed, millrace.Projection{Name: "p",
			Handler: b.Store.Batch(kit.FailsAt("p", bad, kit.Fails)), Retry: kit.Soon(0), MaxFailureShare: -1})
		b.Append("a", 1)
		b.Append("stays", 2) // 2 and 3
		b.Append("a", 2)     // 4 and 5
		b.Append("gone", 3)  // 6 to 8
		b.Reaches(rt, "p", 8)
		if letters := b.DeadLettersOf("p"); len(letters) != 5 {
			t.Fatalf("parked: %+v", letters)
		}
		b.Must(b.Store.Truncate(b.Ctx, 4))
		allStopped(b, rt)
		if found, err := rt.RestoredTenant(b.Ctx, "", 0); err != nil || found.Projections[0].Parked != 3 {
			t.Errorf("found %+v, %v", found, err)
		}
		if p := mustRecover(b, rt.Admin,
			admin.RecoverOptions{Continue: []string{"p"}}).Projections[0]; p.Removed != 3 || p.Position != 4 {
			t.Errorf("recovered %+v", p)
		}
		b.Append("gone", 1)  // 5: its stream is not parked any more
		b.Append("other", 1) // 6 fails again, but it is of another stream
		b.Append("stays", 1) // 7 is parked behind 3
		b.Reaches(rt, "p", 7)
		var parked []string
		for _, l := range b.DeadLettersOf("p") {
			parked = append(parked, fmt.Sprintf("%d %s %d %v", l.Position, l.Stream, l.Version, l.BlockedByStream))
		}
		if want := []string{"2 stays 1 false", "3 stays 2 true", "6 other 1 false",
			"7 stays 3 true"}; !slices.Equal(parked, want) {
			t.Errorf("parked %q, want %q", parked, want)
		}
		if s := b.Status(rt, "p"); s.Parked != 4 {
			t.Errorf("status %+v", s)
		}
	})
}

// A dead letter that a reset resolved has the position of an event that is gone. If the next event there is parked, it
// is that event's.
func TestEventAtAReusedPositionIsParkedAsItself(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(soonNoticed, millrace.Projection{Name: "p",
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(3), kit.Fails)), Retry: kit.Soon(0)})
		b.Append("a", 2)
		b.Append("gone", 1)
		b.Reaches(rt, "p", 3)
		b.Must(b.Store.Truncate(b.Ctx, 2))
		allStopped(b, rt)
		if result := mustReset(b, rt.Admin, 2); result != (admin.ResetResult{From: 3, Position: 2, Resolved: 1}) {
			t.Errorf("the reset returned %+v", result)
		}
		_, err := b.Store.Append(b.Ctx, "other", event.Any, event.Event{Type: "noted"})
		b.Must(err)
		b.Reaches(rt, "p", 3)
		if letters := b.DeadLettersOf("p"); len(letters) != 1 || letters[0].Stream != "other" ||
			letters[0].Version != 1 || letters[0].Type != "noted" {
			t.Errorf("parked %+v", letters)
		}
	})
}

// Partitions continue each at its own position, and skip what they had handled below the end.
func TestRecoveryOfPartitions(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		fails := true
		h := b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			for _, e := range events {
				if fails && e.Stream == "s0" {
					return projection.At(e.Position, kit.ErrOnPurpose)
				}
			}
			return tx.Record(ctx, "p", events...)
		})
		of := func(partitions int) millrace.Projection {
			return millrace.Projection{
				Name: "p", Handler: h, Partitions: partitions, Retry: kit.Soon(0), OnFailure: projection.ActionStop,
			}
		}
		rt := b.Runtime(kit.Quick, of(4))
		stop := b.Start(rt)
		for i := range 40 {
			b.Append(fmt.Sprint("s", i%8), 1)
		}
		b.Eventually("three partitions are done, and have saved that", func() bool {
			done := 0
			for _, s := range b.StatusOf(rt).Projections {
				if s.Checkpoint == 40 {
					done++
				}
			}
			return done == 3
		})
		// The new partition has handled nothing of the slots of s0, and the others up to 40.
		b.Must(rt.Repartition(b.Ctx, p, 1))
		stop()
		before := b.Positions("p")
		b.Must(b.Store.Truncate(b.Ctx, 30))
		found, err := rt.RestoredTenant(b.Ctx, "", 0)
		b.Must(err)
		if p := found.Projections[0]; p.Checkpoint != 0 || p.Highest != 40 {
			t.Errorf("found %+v", p)
		}
		mustRecover(b, rt.Admin, admin.RecoverOptions{Continue: []string{"p"}})
		for i := range 16 {
			b.Append(fmt.Sprint("s", i%8), 1)
		}
		fails = false
		b.RunUntilIdle(b.Runtime(millrace.Config{}, of(1)))
		after := b.Positions("p")[len(before):]
		slices.Sort(after)
		want := slices.DeleteFunc(upTo(1, 46), func(at int64) bool { return at <= 30 && slices.Contains(before, at) })
		if !slices.Equal(after, want) {
			t.Errorf("applied before %v, after %v, want %v", before, after, want)
		}
	})
}

// A reset of all projections, one after the other, also leads out. Until the last one, the others stop again.
func TestResetToTheEndOfARestoredTenant(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 5)
		rt := b.Idle(b.Recorders("p")...)
		b.Must(b.Store.Truncate(b.Ctx, 3))
		if _, err := rt.Reset(b.Ctx, p, 4, admin.ResetOptions{}); !errors.Is(err, projection.ErrNotSettled) {
			t.Errorf("to a position above the end: %v", err)
		}
		if result := mustReset(b, rt.Admin, 3); result != (admin.ResetResult{From: 5, Position: 3}) {
			t.Errorf("the reset returned %+v", result)
		}
		b.Append("b", 2)
		b.RunUntilIdle(rt)
		if at := b.Positions("p"); !slices.Equal(at, append(upTo(1, 5), 4, 5)) {
			t.Errorf("applied %v", at)
		}
	})
}
