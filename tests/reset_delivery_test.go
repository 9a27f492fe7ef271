package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// A projection that delivers is reset only if that is allowed, also while no node is alive. Its events come again with
// their tokens.
func TestResetOfAProjectionThatDelivers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var r kit.Receiver
		delivers := millrace.Projection{
			Name: "p", Handler: millrace.DeliverEach(r.Sends(kit.Freely)),
			Reset: b.Store.Hook(func(context.Context, kit.Tx) error { return nil }),
		}
		b.Append("s", 4)
		rt := b.Idle(delivers)
		first := r.All()
		again := admin.ResetOptions{Redeliver: true}
		a, err := admin.New(b.Again())
		b.Must(err)
		refused := func(what string) {
			t.Helper()
			if _, err := a.Reset(b.Ctx, p, 2, admin.ResetOptions{}); !errors.Is(err, projection.ErrDelivers) {
				t.Fatalf("%s, a reset returned %v", what, err)
			}
			if err := a.Rebuild(b.Ctx, p, admin.ResetOptions{}); !errors.Is(err, projection.ErrDelivers) {
				t.Fatalf("%s, a rebuild returned %v", what, err)
			}
		}
		refused("without a node")
		if _, err := a.Reset(b.Ctx, p, 2, again); err != nil {
			t.Error(err)
		}
		b.RunUntilIdle(rt)
		if all := r.All(); !slices.Equal(all, append(slices.Clone(first), first[2:]...)) {
			t.Errorf("after the reset arrived %v", all)
		}
		stop := b.Start(rt)
		b.Reaches(rt, "p", 4)
		refused("with a node")
		b.Must(a.Rebuild(b.Ctx, p, again))
		b.Reaches(rt, "p", 4)
		if all := r.All(); !slices.Equal(all, slices.Concat(first, first[2:], first)) {
			t.Errorf("after the rebuild arrived %v", all)
		}
		stop()
		// A node whose handler writes in its transaction changes that.
		b.Idle(b.Rebuildable("p"))
		b.Append("s", 1)
		b.Idle(b.Rebuildable("p"))
		if _, err := a.Reset(b.Ctx, p, 0, admin.ResetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// A reset of a split projection sets all partitions to the position, also those whose events another partition had
// handled.
func TestResetOfPartitions(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		split := kit.NewSplit(b, "p", 3)
		nothing := func(context.Context, kit.Tx, []event.Envelope) error { return nil }
		for i := range 30 {
			b.Append(fmt.Sprint("s", i%7), 1)
		}
		rt := b.Idle(split.Projection(nothing))
		// Partitions at different positions, so that the new ones pass over ranges of events.
		for i := range 20 {
			b.Append(fmt.Sprint("s", i%7), 1)
		}
		b.Must(rt.Repartition(b.Ctx, p, 2))
		if result := mustReset(b, rt.Admin, 40); result.From != 30 {
			t.Errorf("the reset returned %+v", result)
		}
		b.RunUntilIdle(rt)
		at := b.Positions("p")
		slices.Sort(at)
		if !slices.Equal(at, append(upTo(1, 30), upTo(41, 50)...)) {
			t.Errorf("applied %v", at)
		}
		b.Must(rt.Repartition(b.Ctx, p, 4))
		mustReset(b, rt.Admin, 0)
		b.RunUntilIdle(rt)
		at = b.Positions("p")[40:]
		slices.Sort(at)
		if !slices.Equal(at, upTo(1, 50)) {
			t.Errorf("after the reset to 0 applied %v", at)
		}
	})
}

// After a re-split of partitions that were at different positions, passed ranges of events are forgotten by a reset.
func TestResetForgetsPassedRanges(t *testing.T) {
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
		rt := b.Running(kit.Quick, millrace.Projection{Name: "p",
			Handler: h, Partitions: 4, Retry: kit.Soon(0), OnFailure: projection.ActionStop})
		for i := range 40 {
			b.Append(fmt.Sprint("s", i%8), 1)
		}
		// The partition of s0 stops at its first event, and the others go on.
		b.Eventually("three partitions are done", func() bool {
			done := 0
			for _, s := range b.StatusOf(rt).Projections {
				if s.Position == 40 {
					done++
				}
			}
			return done == 3 && b.Status(rt, "p").State == admin.StateFailed
		})
		b.Must(rt.Repartition(b.Ctx, p, 1))
		before := len(b.Positions("p"))
		fails = false
		mustReset(b, rt.Admin, 0)
		b.Reaches(rt, "p", 40)
		if at := b.Positions("p")[before:]; !slices.Equal(at, upTo(1, 40)) {
			t.Errorf("after the reset applied %v", at)
		}
	})
}
