package tests_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// called returns projections of these names, which all write to the read model "model".
func called(b *kit.Bundle, shape millrace.Projection, names ...string) (list []millrace.Projection) {
	for _, name := range names {
		shape.Name = name
		if shape.Handler == nil {
			shape.Handler = b.Store.Batch(kit.Record("model"))
		}
		list = append(list, shape)
	}
	return list
}

// id returns the ID of a projection of the default tenant.
func id(name string) millrace.ProjectionID { return millrace.ProjectionID{Name: name} }

// newAdmin returns an Admin without a runtime.
func newAdmin(b *kit.Bundle) *admin.Admin {
	b.T.Helper()
	a, err := admin.New(b.Store)
	b.Must(err)
	return a
}

// existing returns the names of the default tenant's projections.
func existing(b *kit.Bundle) (names []string) {
	b.T.Helper()
	status, err := newAdmin(b).Status(b.Ctx, admin.StatusFilter{Tenants: []string{projection.DefaultTenant},
		Limit: 10_000})
	b.Must(err)
	for _, p := range status.Projections {
		names = append(names, p.ID.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A projection is renamed back and forth while events are appended, and nodes run that know one of the names or both.
func TestRenamesUnderLoadLoseAndRepeatNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		shape := millrace.Projection{Partitions: 3}
		stop := b.AppendThrough(4)
		first := b.Another(kit.Quick, called(b, shape, "totals")...)
		stopFirst := b.Start(first)
		b.Reaches(first, "totals", 10)
		a := newAdmin(b)
		b.Must(a.Rename(b.Ctx, id("totals"), "sums"))
		if !b.Kind.Meets(kit.SeveralNodes) {
			stopFirst()
		}
		// The first node goes on as soon as its name is back.
		both := b.Another(kit.Quick, called(b, shape, "totals", "sums")...)
		b.Start(both)
		names := []string{"totals", "sums"}
		for i := range 20 {
			from, to := names[(i+1)%2], names[i%2]
			if err := a.WaitFor(b.Ctx, id(from), b.Head()); err != nil {
				t.Fatal(err)
			}
			b.Must(a.Rename(b.Ctx, id(from), to))
		}
		appended := stop()
		b.Must(a.WaitFor(b.Ctx, id("sums"), b.Head()))
		applied, err := b.Store.Applied(b.Ctx, "model")
		b.Must(err)
		if err := exact(applied, appended); err != nil {
			t.Error(err)
		}
		if names := existing(b); !slices.Equal(names, []string{"sums"}) {
			t.Errorf("%q exist", names)
		}
	})
}

func TestRenameTakesEverythingWithIt(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		fails := true
		shape := millrace.Projection{Partitions: 2, Retry: kit.Soon(0), OnFailure: projection.ActionParkStream,
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				for _, e := range events {
					if e.Stream == "bad" && fails {
						return projection.At(e.Position, kit.ErrOnPurpose)
					}
				}
				return tx.Record(ctx, "model", events...)
			})}
		for _, stream := range []string{"a", "bad", "b", "bad", "c"} {
			b.Append(stream, 2)
		}
		b.Idle(called(b, shape, "totals")...)
		a := newAdmin(b)
		b.Must(a.Pause(b.Ctx, id("totals")))
		before := b.Status(b.Runtime(millrace.Config{}, called(b, shape, "totals")...), "totals")
		if before.Parked != 4 {
			t.Fatalf("%+v", before)
		}
		command := make(chan projection.CommandResult, 1)
		go func() {
			result, err := b.Store.DeadLetters(id("totals")).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 100)
			if err != nil {
				t.Error(err)
			}
			command <- result
		}()
		b.Eventually("the command is there", func() bool {
			_, open, err := b.Store.Commands(b.Ctx)
			return err == nil && open == 2
		})

		b.Must(a.Rename(b.Ctx, id("totals"), "sums"))
		after := b.Status(b.Runtime(millrace.Config{}, called(b, shape, "sums")...), "sums")
		if after.State != admin.StatePaused || after.Parked != 4 || after.Checkpoint != before.Checkpoint {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
		if letters := b.DeadLettersOf("sums"); len(letters) != 4 {
			t.Errorf("dead letters: %+v", letters)
		}
		if _, err := b.Store.DeadLetters(id("totals")).List(b.Ctx, projection.DeadLetterPage{}); !errors.Is(err,
			projection.ErrRetired) {
			t.Errorf("dead letters of the old name: %v", err)
		}
		fails = false
		rt := b.Running(kit.Quick, called(b, shape, "sums")...)
		b.Must(a.Resume(b.Ctx, id("sums")))
		if result := <-command; result.Done != 4 || result.Failed != 0 {
			t.Errorf("the replay that began under the old name: %+v", result)
		}
		b.Reaches(rt, "sums", b.Append("a", 1).Positions[0])
		applied, err := b.Store.Applied(b.Ctx, "model")
		b.Must(err)
		if err := exact(applied, 11); err != nil {
			t.Error(err)
		}
	})
}

// A delivery that is repeated after a rename has the token that it had before.
func TestRenameKeepsDeliveryTokens(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var received kit.Receiver
		fails := true
		deliver := func(_ context.Context, e millrace.Delivered) error {
			received.Take(e.Position, e.Token)
			if fails {
				return kit.ErrOnPurpose
			}
			return nil
		}
		shape := millrace.Projection{Handler: millrace.DeliverEach(deliver), Retry: kit.Soon(0)}
		b.Append("s", 1)
		b.Idle(called(b, shape, "mails")...)
		b.Must(newAdmin(b).Rename(b.Ctx, id("mails"), "letters"))
		fails = false
		b.Running(kit.Quick, called(b, shape, "letters")...)
		if result := <-b.Replaying("letters"); result.Done != 1 {
			t.Errorf("%+v", result)
		}
		all := received.All()
		if len(all) != 2 || all[0] != all[1] {
			t.Errorf("%+v", all)
		}
	})
}

func TestBatchInFlightUnderTheOldNameCannotCommit(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		began, goOn := make(chan bool, 100), make(chan bool)
		shape := millrace.Projection{Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx,
			events []event.Envelope) error {
			began <- true
			<-goOn
			return tx.Record(ctx, "old", events...)
		})}
		b.Append("s", 3)
		b.Running(kit.Quick, called(b, shape, "totals")...)
		<-began
		b.Must(newAdmin(b).Rename(b.Ctx, id("totals"), "sums"))
		rt := b.Another(kit.Quick, called(b, millrace.Projection{}, "sums")...)
		b.Start(rt)
		b.Reaches(rt, "sums", 3)
		close(goOn)
		b.Reaches(rt, "sums", b.Append("s", 1).Positions[0])
		old, err := b.Store.Applied(b.Ctx, "old")
		b.Must(err)
		applied, err := b.Store.Applied(b.Ctx, "model")
		b.Must(err)
		if len(old) != 0 || exact(applied, 4) != nil {
			t.Errorf("under the old name: %v; under the new one: %v", old, applied)
		}
	}, kit.SeveralNodes, kit.ConcurrentWrites)
}

func TestOwnerCannotCommitAfterARename(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		b.Must(newAdmin(b).Rename(b.Ctx, id("p"), "q"))
		h.MustBe(h.Apply(kit.Record("p"), engine.ApplyOptions{}), faults.LeaseLost)
		h.Untouched()
		if moved, err := h.Port.Advance(b.Ctx, []engine.Advance{{Lease: h.Lease, To: 3}}); err != nil ||
			len(moved) != 0 {
			t.Errorf("the checkpoint moved: %v, %v", moved, err)
		}
		h.Untouched()
	})
}

func TestChainsOfRenamesLeadToTheLastName(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		b.Idle(called(b, millrace.Projection{}, "a")...)
		a := newAdmin(b)
		for _, step := range [][2]string{{"a", "b"}, {"b", "c"}, {"c", "d"}, {"d", "a"}, {"a", "c"}} {
			b.Must(a.Rename(b.Ctx, id(step[0]), step[1]))
			b.Must(a.Rename(b.Ctx, id(step[0]), step[1])) // its answer may be lost
			for _, name := range []string{"a", "b", "c", "d"} {
				err := a.Resume(b.Ctx, id(name))
				switch unknown := errors.Is(err, projection.ErrUnknownProjection); {
				case name == step[1] && err != nil, name == step[0] && err == nil:
					t.Errorf("after %v: %s: %v", step, name, err)
				case err != nil && !unknown && (!errors.Is(err, projection.ErrRetired) ||
					!strings.Contains(err.Error(), `renamed to "`+step[1]+`"`)):
					t.Errorf("after %v: %s: %v", step, name, err)
				}
			}
		}
		b.Idle(called(b, millrace.Projection{}, "c")...)
		if applied, err := b.Store.Applied(b.Ctx, "model"); err != nil || exact(applied, 3) != nil {
			t.Errorf("%v, %v", applied, err)
		}
	})
}

func TestRenameMovesAllVersions(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		last := b.Append("s", 3).Positions[2]
		versions := func(name string) []millrace.Projection {
			return []millrace.Projection{
				{Name: name, Handler: b.Store.Batch(kit.Record("first"))},
				{Name: name, Version: 2, Handler: b.Store.Batch(kit.Record("second"))},
			}
		}
		b.Idle(versions("totals")...)
		b.Must(newAdmin(b).Rename(b.Ctx, id("totals"), "sums"))
		if names := existing(b); !slices.Equal(names, []string{"sums", "sums@2"}) {
			t.Errorf("%q exist", names)
		}
		if err := newAdmin(b).Resume(b.Ctx, id("totals@2")); !errors.Is(err, projection.ErrRetired) ||
			!strings.Contains(err.Error(), `"sums@2"`) {
			t.Errorf("%v", err)
		}
		b.Idle(versions("sums")...)
		for _, model := range []string{"first", "second"} {
			if applied, err := b.Store.Applied(b.Ctx, model); err != nil || exact(applied, int(last)) != nil {
				t.Errorf("%s: %v, %v", model, applied, err)
			}
		}
	})
}

func TestRenamesThatAreRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Tenants(2)
		b.Append("s", 1)
		b.Idle(append(called(b, millrace.Projection{}, "a", "b"),
			millrace.Projection{Name: "v", Version: 2, Handler: b.Store.Batch(kit.Nothing)})...)
		retire(b, projection.DefaultTenant)
		before := existing(b)
		a := newAdmin(b)
		for _, test := range []struct {
			id   millrace.ProjectionID
			to   string
			err  error
			says string
		}{
			{id("a"), "b", projection.ErrExists, `"b"`},
			{id("a"), "v", projection.ErrExists, `"v@2"`},
			{id("a"), "renamed", projection.ErrRetired, `renamed to "kept"`},
			{id("none"), "c", projection.ErrUnknownProjection, "default/none"},
			{id("forgotten"), "c", projection.ErrRetired, "forgotten"},
			{millrace.ProjectionID{Tenant: "none", Name: "a"}, "c", tenancy.ErrUnknown, "none/a"},
			{millrace.ProjectionID{Name: "a", Partition: 1}, "c", nil, "ProjectionID.Partition"},
			{id("v@2"), "w", nil, "version"},
			{id("a"), "a", nil, "differ"},
			{id("a"), "", nil, "must be set"},
			{id("a"), "c@2", nil, "@ and digits"},
			{id("a"), strings.Repeat("x", 101), nil, "at most 100 bytes"},
			{id("a"), "a\x00", nil, "Name"},
		} {
			err := a.Rename(b.Ctx, test.id, test.to)
			if err == nil || test.err != nil && !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("rename %s to %q: %v", test.id, test.to, err)
			}
		}
		if now := existing(b); !slices.Equal(now, before) {
			t.Errorf("%q exist, before %q", now, before)
		}
		// In another tenant each name is free, and a forgotten name may be used again.
		b.Must(a.Rename(b.Ctx, millrace.ProjectionID{Tenant: "tenant0", Name: "a"}, "renamed"))
		b.Must(a.Rename(b.Ctx, id("a"), "forgotten"))
	})
}

func TestForgottenProjectionLeavesNothingAndDoesNotComeBack(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Tenants(2)
		b.Append("s", 5)
		shape := millrace.Projection{Partitions: 2, Retry: kit.Soon(0), OnFailure: projection.ActionParkStream,
			Handler: b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error { return kit.ErrOnPurpose })}
		rt := b.Another(kit.Quick, append(called(b, shape, "old"), b.Recorders("kept")...)...)
		stop := b.Start(rt)
		b.Reaches(rt, "old", 5)
		a := newAdmin(b)
		if err := a.Forget(b.Ctx, id("old")); !errors.Is(err, projection.ErrInUse) ||
			!strings.Contains(err.Error(), b.Summary(rt).Node) {
			t.Errorf("forget what a node registers: %v", err)
		}
		stop()
		rt = b.Another(kit.Quick, b.Recorders("kept")...)
		b.Start(rt)
		b.Reaches(rt, "kept", 5)
		if len(b.DeadLettersOf("old")) != 5 {
			t.Error("nothing is parked")
		}
		b.Must(a.Forget(b.Ctx, id("old")))
		b.Must(a.Forget(b.Ctx, id("old"))) // its answer may be lost
		if names := existing(b); !slices.Equal(names, []string{"kept"}) {
			t.Errorf("%q exist", names)
		}
		if all, _, err := b.Store.Commands(b.Ctx); err != nil || all != 0 {
			t.Errorf("%d commands are left, %v", all, err)
		}
		// In the other tenant it goes on.
		old := b.Another(kit.Quick, append(called(b, millrace.Projection{}, "old"), b.Recorders("kept")...)...)
		if err := old.WaitFor(b.Ctx, id("old"), 5); !errors.Is(err, projection.ErrRetired) {
			t.Errorf("%v", err)
		}
		if err := a.Forget(b.Ctx, millrace.ProjectionID{Tenant: "tenant0", Name: "none"}); !errors.Is(err,
			projection.ErrUnknownProjection) {
			t.Errorf("%v", err)
		}
		if _, err := b.Store.DeadLetters(millrace.ProjectionID{Tenant: "tenant0", Name: "old"}).List(b.Ctx,
			projection.DeadLetterPage{}); err != nil {
			t.Errorf("in another tenant: %v", err)
		}
	})
}
