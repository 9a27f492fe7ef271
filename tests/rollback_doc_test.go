package tests_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// The tests of this file act out docs/rollback.md. A release is a list of projections.

// deploy runs a release on a node of its own until stop is called. It appends two events, and waits until a projection
// that all releases have has handled them.
func deploy(b *kit.Bundle, release ...millrace.Projection) (rt *millrace.Runtime, stop func()) {
	b.T.Helper()
	rt = b.Another(kit.Quick, append(release, b.Recorders("other")...)...)
	stop = b.Start(rt)
	b.Reaches(rt, "other", b.Append("s", 2).Last())
	return rt, stop
}

// isUnregistered checks that no node registers a projection, and how many events it has not handled.
func isUnregistered(b *kit.Bundle, rt *millrace.Runtime, name string, behind int64) {
	b.T.Helper()
	b.Eventually("the nodes before have ended",
		func() bool { return b.Status(rt, name).State == admin.StateUnregistered })
	if s := b.Status(rt, name); s.Behind != behind || s.Owner != "" {
		b.T.Errorf("%+v", s)
	}
	if b.Summary(rt).Unregistered == 0 {
		b.T.Error("no projection is unregistered")
	}
}

// A new projection that began at the end continues at its checkpoint, and not at the end again.
func TestNewProjectionOfAReleaseThatIsRolledBack(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		added := millrace.Projection{
			Name: "new", Start: projection.Start{End: true}, Handler: b.Store.Batch(kit.Record("new")),
		}
		_, stop := deploy(b)
		stop()
		rt, stop := deploy(b, added)
		b.Reaches(rt, "new", 4)
		stop()
		rt, stop = deploy(b) // rolled back
		isUnregistered(b, rt, "new", 2)
		stop()
		rt, stop = deploy(b, added)
		b.Reaches(rt, "new", 8)
		applied, err := b.Store.Applied(b.Ctx, "new")
		b.Must(err)
		if first := applied[0].Position; first > 5 || len(applied) != int(9-first) {
			t.Errorf("it has applied %v", applied)
		}
		stop()
	})
}

func TestRenameOfAReleaseThatIsRolledBack(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		old, next := release(b, "totals", ""), release(b, "sums", "totals")
		rt, stop := deploy(b, old)
		b.Reaches(rt, "totals", 2)
		stop()
		rt, stop = deploy(b, next)
		b.Reaches(rt, "sums", 4)
		stop()
		rt, stop = deploy(b, old) // rolled back
		isUnregistered(b, rt, "sums", 2)
		if err := rt.WaitFor(b.Ctx, id("totals"), 6); !errors.Is(err, projection.ErrRetired) {
			t.Errorf("%v", err)
		}
		b.Must(rt.Rename(b.Ctx, id("sums"), "totals"))
		b.Reaches(rt, "totals", 6)
		stop()
		rt, stop = deploy(b, next) // once more
		b.Reaches(rt, "sums", 8)
		stop()
		mustHaveApplied(b, map[string]int64{"s": 8})
	})
}

// While only nodes of the new release run, they rename the projection forward again.
func TestRenameBackNeedsANodeOfTheOldRelease(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		old, next := release(b, "totals", ""), release(b, "sums", "totals")
		rt, stop := deploy(b, old)
		if b.Kind.Meets(kit.SeveralNodes) { // the rollout ends in the middle
			_, stopNext := deploy(b, next)
			stopNext()
		}
		b.Reaches(rt, "totals", b.Append("s", 1).Last())
		stop()
		_, stopNext := deploy(b, next)
		names := func() []string {
			return slices.DeleteFunc(existing(b), func(name string) bool { return name == "other" })
		}
		b.Eventually("it is renamed", func() bool { return slices.Equal(names(), []string{"sums"}) })
		b.Must(newAdmin(b).Rename(b.Ctx, id("sums"), "totals"))
		b.Eventually("it is renamed forward again", func() bool { return slices.Equal(names(), []string{"sums"}) })
		if !b.Kind.Meets(kit.SeveralNodes) {
			stopNext()
		}
		rt, stop = deploy(b, old)
		b.Eventually("its node is known", func() bool {
			return slices.ContainsFunc(b.Summary(rt).Nodes, func(n admin.NodeStatus) bool {
				return n.Alive && slices.Contains(n.Registered, "totals")
			})
		})
		b.Must(rt.Rename(b.Ctx, id("sums"), "totals"))
		b.Reaches(rt, "totals", b.Append("s", 1).Last())
		stopNext()
		b.Reaches(rt, "totals", b.Append("s", 1).Last())
		if !slices.Equal(names(), []string{"totals"}) {
			t.Errorf("%q exist", names())
		}
		stop()
		mustHaveApplied(b, map[string]int64{"s": b.Head()})
	})
}

func versionOf(b *kit.Bundle, version int) millrace.Projection {
	model := projection.VersionName("totals", version)
	return millrace.Projection{Name: "totals", Version: version, Handler: b.Store.Batch(kit.Record(model))}
}

func TestVersionOfAReleaseThatIsRolledBack(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		one, two, three := versionOf(b, 1), versionOf(b, 2), versionOf(b, 3)
		rt, stop := deploy(b, one)
		b.Reaches(rt, "totals", 2)
		stop()
		rt, stop = deploy(b, one, two)
		b.Reaches(rt, "totals@2", 4)
		stop()
		rt, stop = deploy(b, one) // rolled back before the swap
		b.Applied(rt, 6, "totals")
		isUnregistered(b, rt, "totals@2", 2)
		stop()
		rt, stop = deploy(b, one, two)
		b.Applied(rt, 8, "totals", "totals@2")
		b.Must(rt.Swap(b.Ctx, id("totals@2"), admin.SwapOptions{}))
		stop()
		rt, stop = deploy(b, one) // rolled back after the swap
		isUnregistered(b, rt, "totals@2", 2)
		ctx, cancel := context.WithTimeout(b.Ctx, time.Second)
		if err := rt.WaitFor(ctx, id("totals"), 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait for version 1: %v", err)
		}
		cancel()
		if err := rt.Resume(b.Ctx, id("totals")); !errors.Is(err, projection.ErrRetired) {
			t.Errorf("resume version 1: %v", err)
		}
		stop()
		rt, stop = deploy(b, two)
		b.Applied(rt, 12, "totals@2")
		stop()
		rt, stop = deploy(b, two, three) // the old code, as version 3
		b.Reaches(rt, "totals@3", 14)
		b.Must(rt.Swap(b.Ctx, id("totals@3"), admin.SwapOptions{}))
		b.Applied(rt, 14, "totals@3")
		b.Reaches(rt, "totals", 14)
		stop()
		if applied, err := b.Store.Applied(b.Ctx, "totals"); err != nil || len(applied) != 8 {
			t.Errorf("%v, %v", applied, err)
		}
	})
}

// The old program builds version 1 anew, and the next release swaps once more.
func TestVersionThatWasReplacedIsCreatedAnew(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		one, two := besideFirst(b), besideSecond(b, false)
		rt, stop := deploy(b, one, two)
		b.Reaches(rt, "totals@2", 2)
		b.Must(rt.Swap(b.Ctx, id("totals@2"), admin.SwapOptions{}))
		stop()
		rt, stop = deploy(b, one) // rolled back
		b.Must(b.Store.InTx(b.Ctx, kit.Exec("delete from totals_1")))
		b.Must(rt.Create(b.Ctx, id("totals"), projection.Start{}))
		b.Reaches(rt, "totals", 4)
		if n := readersSee(b); n != 2 {
			t.Errorf("readers see %d events", n)
		}
		b.Must(b.Store.InTx(b.Ctx, kit.Exec("update reading set version = 1")))
		if n := readersSee(b); n != 4 {
			t.Errorf("readers see %d events of version 1", n)
		}
		stop()
		rt, stop = deploy(b, one, two)
		b.Reaches(rt, "totals@2", 6)
		b.Reaches(rt, "totals", 6)
		if left, err := rt.Unswapped(b.Ctx, "totals@2"); err != nil || len(left) != 1 {
			t.Errorf("unswapped: %v, %v", left, err)
		}
		b.Must(rt.Swap(b.Ctx, id("totals@2"), admin.SwapOptions{}))
		b.Reaches(rt, "totals", b.Append("s", 1).Last())
		if n := readersSee(b); n != 7 {
			t.Errorf("readers see %d events of version 2", n)
		}
		stop()
	}, besideTables...)
}

func TestVersionThatIsGivenUpByARollback(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		one, two, three := versionOf(b, 1), versionOf(b, 2), versionOf(b, 3)
		rt, stop := deploy(b, one, two)
		b.Reaches(rt, "totals@2", 2)
		stop()
		rt, stop = deploy(b, one)
		isUnregistered(b, rt, "totals@2", 2)
		b.Eventually("a drop waits for a node that registers the version", func() bool {
			ctx, cancel := context.WithTimeout(b.Ctx, 300*time.Millisecond)
			defer cancel()
			return errors.Is(rt.DropVersion(ctx, id("totals@2")), projection.ErrOperationPending)
		})
		b.Must(rt.CancelOperation(b.Ctx, id("totals@2")))
		b.Must(rt.Forget(b.Ctx, id("totals@2")))
		stop()
		rt, stop = deploy(b, one, two, three)
		b.Applied(rt, 6, "totals@3")
		if names := existing(b); !slices.Equal(names, []string{"other", "totals", "totals@3"}) {
			t.Errorf("%q exist", names)
		}
		stop()
	})
}

func TestTenantThatBeganWithAVersionThatIsRolledBack(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		rt, stop := deploy(b, versionOf(b, 2))
		b.Applied(rt, 2, "totals@2")
		stop()
		rt, stop = deploy(b, versionOf(b, 1))
		isUnregistered(b, rt, "totals@2", 2)
		b.Must(rt.Forget(b.Ctx, id("totals@2")))
		b.Applied(rt, 4, "totals")
		stop()
		rt, stop = deploy(b, versionOf(b, 1), versionOf(b, 2))
		if names := existing(b); !slices.Equal(names, []string{"other", "totals"}) {
			t.Errorf("%q exist", names)
		}
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error { return tx.Erase(ctx, "totals@2") }))
		b.Must(rt.Create(b.Ctx, id("totals@2"), projection.Start{}))
		b.Applied(rt, 6, "totals@2")
		stop()
	})
}

// An operation that was requested is carried out by the next release that can, unless it is cancelled.
func TestOperationThatIsOpenAtARollback(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		one, two := versionOf(b, 1), versionOf(b, 2)
		rt, stop := deploy(b, one, two)
		b.Reaches(rt, "totals@2", 2)
		stop()
		for _, cancelled := range []bool{true, false} {
			rt, stop = deploy(b, one) // rolled back
			b.Eventually("a swap waits for a node that registers the version", func() bool {
				ctx, cancel := context.WithTimeout(b.Ctx, 300*time.Millisecond)
				defer cancel()
				return errors.Is(rt.Swap(ctx, id("totals@2"), admin.SwapOptions{}), projection.ErrOperationPending)
			})
			b.Applied(rt, b.Append("s", 1).Last(), "totals")
			if o := b.Status(rt, "totals@2").Operation; o == nil || o.Kind != "swap" || o.Holds {
				t.Errorf("the operation is %+v", o)
			}
			if cancelled {
				b.Must(rt.CancelOperation(b.Ctx, id("totals@2")))
			}
			stop()
			rt, stop = deploy(b, one, two)
			b.Reaches(rt, "totals@2", b.Head())
			if cancelled {
				b.Applied(rt, b.Head(), "totals")
				stop()
			}
		}
		b.Eventually("the swap has ended", func() bool { return !slices.Contains(existing(b), "totals") })
		b.Reaches(rt, "totals", b.Append("s", 1).Last())
		b.Verify("totals@2")
		stop()
	})
}

func TestRemovedProjectionOfAReleaseThatIsRolledBack(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		old := b.Rebuildable("totals")
		_, stop := deploy(b, old)
		stop()
		rt, stop := deploy(b)
		isUnregistered(b, rt, "totals", 2)
		stop()
		rt, stop = deploy(b, old) // rolled back
		b.Applied(rt, 6, "totals")
		stop()
		rt, stop = deploy(b)
		isUnregistered(b, rt, "totals", 2)
		b.Must(rt.Forget(b.Ctx, id("totals")))
		stop()
		rt, stop = deploy(b, old) // rolled back after it was forgotten
		if err := rt.Resume(b.Ctx, id("totals")); !errors.Is(err, projection.ErrRetired) {
			t.Error(err)
		}
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error { return tx.Erase(ctx, "totals") }))
		b.Must(rt.Create(b.Ctx, id("totals"), projection.Start{}))
		b.Applied(rt, 10, "totals")
		stop()
	})
}

// The old release passes events of a type that it does not know. The new one finds them again by a rebuild.
func TestEventTypeOfAReleaseThatIsRolledBack(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		one := func(ctx context.Context, tx kit.Tx, e event.Envelope) error { return tx.Record(ctx, "totals", e) }
		old := millrace.Projection{Name: "totals", Handler: b.Store.Counted(one)}
		next := old
		next.Reset = b.Store.Hook(kit.Erase("totals"))
		next.Handler = b.Store.Mixed(one, func(_ context.Context, q kit.Queue, e event.Envelope) error {
			q.Record("totals", e)
			return nil
		})
		noted := func() int64 {
			appended, err := b.Store.Append(b.Ctx, "s", event.Any, event.New(kit.Noted{}))
			b.Must(err)
			return appended.Last()
		}
		_, stop := deploy(b, old)
		stop()
		rt, stop := deploy(b, next)
		b.Applied(rt, noted(), "totals") // 5
		stop()
		noted()                   // 6: an append that the new release made last
		rt, stop = deploy(b, old) // rolled back
		b.Reaches(rt, "totals", 8)
		s := b.Status(rt, "totals")
		if s.State != admin.StateLive || s.Behind > 0 || s.Parked > 0 || len(b.Summary(rt).Findings()) > 0 {
			t.Errorf("%+v", s)
		}
		stop()
		rt, stop = deploy(b, next)
		b.Reaches(rt, "totals", 10)
		applied, err := b.Store.Applied(b.Ctx, "totals")
		b.Must(err)
		if slices.ContainsFunc(applied, func(a kit.Applied) bool { return a.Position == 6 }) || len(applied) != 9 {
			t.Errorf("the event that was passed is %v", applied)
		}
		b.Must(rt.Rebuild(b.Ctx, id("totals"), admin.ResetOptions{}))
		b.Applied(rt, 10, "totals")
		stop()
	})
}

// What was delivered stays delivered, under one token for each event.
func TestDeliveriesOfAReleaseThatIsRolledBack(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		receiver := &kit.Receiver{}
		mails := func(name, from string) millrace.Projection {
			send := func(_ context.Context, e millrace.Delivered) error {
				receiver.Take(e.Position, e.Token)
				return nil
			}
			return millrace.Projection{Name: name, RenamedFrom: from, Handler: millrace.DeliverEach(send)}
		}
		rt, stop := deploy(b, mails("mails", ""))
		b.Reaches(rt, "mails", 2)
		stop()
		rt, stop = deploy(b, mails("letters", "mails"))
		b.Reaches(rt, "letters", 4)
		stop()
		rt, stop = deploy(b, mails("mails", "")) // rolled back
		b.Must(rt.Rename(b.Ctx, id("letters"), "mails"))
		b.Reaches(rt, "mails", 6)
		stop()
		all := receiver.All()
		tokens := make(map[string]bool)
		for i, a := range all {
			tokens[a.Token] = true
			if a.Position != int64(i+1) {
				t.Errorf("%+v", all)
			}
		}
		if len(all) != 6 || len(tokens) != 6 {
			t.Errorf("%+v", all)
		}
	})
}

func TestPartitionsOfAReleaseThatIsRolledBack(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		parts := func(n int) millrace.Projection {
			return millrace.Projection{Name: "totals", Partitions: n, Handler: b.Store.Batch(kit.Record("totals"))}
		}
		count := func(rt *millrace.Runtime) (n int) {
			for _, p := range b.StatusOf(rt).Projections {
				if p.ID.Name == "totals" {
					n++
				}
			}
			return n
		}
		rt, stop := deploy(b, parts(1))
		b.Reaches(rt, "totals", 2)
		stop()
		rt, stop = deploy(b, parts(4))
		b.Reaches(rt, "totals", 4)
		if n := count(rt); n != 1 {
			t.Errorf("%d partitions", n)
		}
		b.Must(rt.Repartition(b.Ctx, id("totals"), 4))
		stop()
		rt, stop = deploy(b, parts(1)) // rolled back
		b.Applied(rt, 6, "totals")
		if n := count(rt); n != 4 {
			t.Errorf("%d partitions", n)
		}
		stop()
	})
}
