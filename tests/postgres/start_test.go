package postgres_test

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Transactions append and stay open while the projection is created. It handles their events, wherever these stand.
func TestProjectionFromTheEndHandlesAppendsThatWereOpen(t *testing.T) {
	t.Parallel()
	b := kit.Postgres.New(t)
	open := func(stream string) (commit func()) {
		tx, err := b.Store.Begin(b.Ctx)
		b.Must(err)
		_, err = b.Store.AppendTx(b.Ctx, tx, stream, event.Any, event.Event{Type: "counted"})
		b.Must(err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return func() { b.Must(tx.Commit(b.Ctx)) }
	}
	b.Append("s", 5)
	first := open("first")   // 6
	b.Append("s", 2)         // 7, 8
	second := open("second") // 9
	for name, test := range map[string]struct {
		start projection.Start
		want  []int64
	}{
		"end":      {projection.Start{End: true}, []int64{6, 7, 8, 9, 10}},
		"position": {projection.Start{Position: 8}, []int64{6, 7, 8, 9, 10}},
		"early":    {projection.Start{Position: 4}, []int64{4, 5, 6, 7, 8, 9, 10}},
	} {
		shape := millrace.Projection{Name: name, Start: test.start, Handler: b.Store.Batch(kit.Record(name))}
		rt := b.Another(kit.Quick, shape)
		b.Start(rt)
		b.Is(rt, name, admin.StateLive)
		defer func() {
			b.Reaches(rt, name, 10)
			applied, err := b.Store.Applied(b.Ctx, name)
			b.Must(err)
			var positions []int64
			for _, a := range applied {
				positions = append(positions, a.Position)
			}
			if !slices.Equal(positions, test.want) {
				t.Errorf("%s handled %v, want %v", name, positions, test.want)
			}
		}()
	}
	second()
	first()
	b.Append("s", 1) // 10
}

// Positions of appends that were rolled back hold nothing back.
func TestProjectionFromTheEndBeginsAfterRolledBackAppends(t *testing.T) {
	t.Parallel()
	b := kit.Postgres.New(t)
	for range 3 {
		tx, err := b.Store.Begin(b.Ctx)
		b.Must(err)
		_, err = b.Store.AppendTx(b.Ctx, tx, "gone", event.Any, event.Event{Type: "counted"})
		b.Must(err)
		b.Must(tx.Rollback(b.Ctx))
		b.Append("s", 2)
	}
	shape := millrace.Projection{Name: "p", Start: projection.Start{End: true}, Handler: b.Store.Batch(kit.Record("p"))}
	b.Idle(shape)
	last := b.Append("s", 1).Positions[0]
	b.Idle(shape)
	if positions := b.Positions("p"); !slices.Equal(positions, []int64{last}) {
		t.Errorf("applied %v, want %d", positions, last)
	}
}
