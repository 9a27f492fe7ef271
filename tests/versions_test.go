package tests_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// versionsOf returns versions of a projection, which record what they apply under the names by which the store knows
// them.
func versionsOf(b *kit.Bundle, name string, versions ...int) (list []millrace.Projection) {
	for _, version := range versions {
		list = append(list, millrace.Projection{Name: name, Version: version, Handler: b.Store.Batch(recordVersion)})
	}
	return list
}

// recordVersion records the events under the projection's name that ctx has.
func recordVersion(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
	id, ok := millrace.ProjectionFrom(ctx)
	if !ok {
		return fmt.Errorf("the context has no projection")
	}
	return tx.Record(ctx, id.Name, events...)
}

func TestVersionsRunBesideEachOther(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("a", 20)
		b.Idle(versionsOf(b, "p", 0)...)
		b.Append("b", 10)
		rt := b.Running(kit.Quick, versionsOf(b, "p", 1, 2, 3)...)
		b.Append("c", 5)
		for _, name := range []string{"p", "p@2", "p@3"} {
			b.Reaches(rt, name, b.Head())
			b.Verify(name) // each from the first event, and version 1 on from where it was
			if s := b.Status(rt, name); s.ID.Name != name || s.Checkpoint == 0 {
				t.Errorf("%s: status %+v", name, s)
			}
		}
		// Each has its own pauses and partitions.
		b.Pause(rt, "p@2")
		b.Must(rt.Repartition(b.Ctx, millrace.ProjectionID{Name: "p@3"}, 3))
		position := b.AppendTo(b.Store, "d", 5)
		b.Applied(rt, position, "p")
		b.Resume(rt, "p@2")
		b.Applied(rt, position, "p@2")
		b.Reaches(rt, "p@3", position)
		if applied, err := b.Store.Applied(b.Ctx, "p@3"); err != nil || exact(applied, 40) != nil {
			t.Error(exact(applied, 40), err)
		}
	})
}

func TestVersionIsRegisteredOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Runtime(millrace.Config{}, versionsOf(b, "p", 2)...)
		b.Must(rt.Register(versionsOf(b, "p", 1)...))
		for version, name := range map[int]string{0: "p", 1: "p", 2: "p@2"} {
			want := fmt.Sprintf("register projection %q: it is already registered", name)
			if err := rt.Register(versionsOf(b, "p", version)...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("version %d: got %v, want %s", version, err, want)
			}
		}
		if name, version := (projection.ID{Name: "p@2"}).Version(); name != "p" || version != 2 {
			t.Errorf("p@2 is version %d of %s", version, name)
		}
	})
}
