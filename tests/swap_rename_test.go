package tests_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// takeName is a hook that gives the table of a version the name that readers use. The table of the earlier version is
// renamed. Afterwards the handler finds its table by the view, or in SQLite by the view and its trigger, that has the
// table's first name.
func takeName(b *kit.Bundle, version int) kit.HookFunc {
	return func(ctx context.Context, tx kit.Tx) error {
		statements := []string{
			"drop view if exists " + tableOf(version-1),
			fmt.Sprintf("alter table model rename to model_of_%d", version-1),
			fmt.Sprintf("alter table %s rename to model", tableOf(version)),
			fmt.Sprintf("create view %s as select position from model", tableOf(version)),
		}
		if b.Kind == kit.SQLite {
			statements = append(statements,
				fmt.Sprintf("create trigger t%d instead of insert on %s begin insert into model values (new.position); end",
					version, tableOf(version)))
		}
		return execAll(ctx, tx, statements...)
	}
}

func execAll(ctx context.Context, tx kit.Tx, statements ...string) error {
	for _, statement := range statements {
		if err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Hooks rename tables while events arrive and readers query the table by its name. No reader fails, misses a row, or
// sees the past.
func TestNoReaderMissesARowWhileHooksRenameTables(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const last = 4
		var list []millrace.Projection
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			err := execAll(ctx, tx, "create table model (position bigint not null)")
			for v := 2; v <= last && err == nil; v++ {
				err = execAll(ctx, tx, "create table "+tableOf(v)+" (position bigint not null)")
			}
			return err
		}))
		for v := 1; v <= last; v++ {
			p := modelVersion(b, v)
			if v == 1 {
				p.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
					return writeModel(ctx, tx, "model", events)
				})
			} else {
				p.Swap = b.Store.Hook(takeName(b, v))
			}
			list = append(list, p)
		}
		rt := b.Running(kit.Quick, list...)
		b.Reaches(rt, model, b.Append("a", 10).Positions[9])
		stopLoad := load(b)
		r, stopReaders := startReaders(b, 3)
		for v := 2; v <= last; v++ {
			b.Reaches(rt, modelID(v).Name, b.Head())
			b.Must(requestSwap(b, rt.Admin, v))
			b.Reaches(rt, model, b.Head()+150)
		}
		stopLoad()
		stopReaders()
		goesOn(b, rt)
		t.Logf("%d events, %d queries, %d waits", b.Head(), r.queries.Load(), r.follows.Load())
		for v := 1; v < last; v++ {
			s, err := look(b.Ctx, b.Store, fmt.Sprint("model_of_", v))
			if err != nil || !s.whole() || s.Highest == 0 {
				t.Errorf("version %d ended with %+v, %v", v, s, err)
			}
		}
	})
}

// A release that renames a projection in the middle of a swap finishes the swap under the new name.
func TestSwapContinuesUnderANewName(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		var sound atomic.Bool
		old := b.Another(kit.Quick, modelVersion(b, 1), slowVersion(b, &sound))
		stop := b.Start(old)
		b.Append("a", 2000) // so far behind that version 1 is not held yet
		b.Reaches(old, model, 2000)
		swapped := make(chan error, 1)
		go func() { swapped <- newAdmin(b).Swap(b.Ctx, modelID(2), admin.SwapOptions{CatchUp: time.Hour}) }()
		b.Eventually("a node carries the swap out", func() bool { return openOperation(b, modelID(2)).Node != "" })
		stop()
		sound.Store(true)
		next := modelVersions(b, 1, 2)
		for i := range next {
			next[i].Name, next[i].RenamedFrom = "sums", model
		}
		rt := b.Running(kit.Quick, next...)
		b.Must(<-swapped)
		last := b.AppendTo(b.Store, "later", 3)
		b.Reaches(rt, "sums", last)
		b.Reaches(rt, "sums@2", last)
		served(b, 2)
		if names := existing(b); len(names) != 1 || names[0] != "sums@2" {
			t.Errorf("%q exist", names)
		}
	})
}

// A release renames the projection and registers only a new version of it. The renamed version keeps its read model,
// which readers use until the swap.
func TestReleaseThatRenamesAndBeginsAVersion(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		b.Append("a", 20)
		old := b.Another(kit.Quick, modelVersion(b, 1))
		stop := b.Start(old)
		b.Reaches(old, model, 20)
		v2 := modelVersion(b, 2)
		v2.Name, v2.RenamedFrom = "sums", model
		rt := b.Another(kit.Quick, v2)
		b.Start(rt)
		stop()
		id := millrace.ProjectionID{Name: "sums@2"}
		b.Eventually("the projection is renamed",
			func() bool { names := existing(b); return len(names) == 2 && names[0] == "sums" })
		served(b, 1)
		b.Append("a", 5)
		b.Must(rt.Swap(b.Ctx, id, admin.SwapOptions{}))
		b.Reaches(rt, "sums@2", b.Head())
		served(b, 2)
		if names := existing(b); len(names) != 1 || names[0] != "sums@2" {
			t.Errorf("%q exist", names)
		}
	})
}
