package tests_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// model is the projection of the swap tests. Each version has a table of its own with the positions that it applied,
// without a unique index. Readers see that of one version by the view model.
const model = "model"

func modelID(version int) millrace.ProjectionID {
	return millrace.ProjectionID{Name: projection.VersionName(model, version)}
}

func tableOf(version int) string { return fmt.Sprintf("model_%d", version) }

// newModel makes the tables of the first versions, and lets readers see that of version 1.
func newModel(b *kit.Bundle, versions int) {
	b.T.Helper()
	b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
		for v := 1; v <= versions; v++ {
			if err := tx.Exec(ctx, "create table "+tableOf(v)+" (position bigint not null)"); err != nil {
				return err
			}
		}
		return exchange(b, 1)(ctx, tx)
	}))
}

// exchange lets readers see the table of a version.
func exchange(b *kit.Bundle, version int) func(ctx context.Context, tx kit.Tx) error {
	view := "view model as select position from " + tableOf(version)
	return func(ctx context.Context, tx kit.Tx) error {
		if b.Kind == kit.Postgres {
			return tx.Exec(ctx, "create or replace "+view)
		}
		if err := tx.Exec(ctx, "drop view if exists model"); err != nil {
			return err
		}
		return tx.Exec(ctx, "create "+view)
	}
}

// writeModel inserts the positions of events into a table.
func writeModel(ctx context.Context, tx kit.Tx, table string, events []event.Envelope) error {
	values := make([]string, len(events))
	for i, e := range events {
		values[i] = fmt.Sprintf("(%d)", e.Position)
	}
	return tx.Exec(ctx, "insert into "+table+" (position) values "+strings.Join(values, ", "))
}

// modelVersion is a version of the projection with its hooks.
func modelVersion(b *kit.Bundle, version int) millrace.Projection {
	p := millrace.Projection{Name: model, Version: version, Retry: kit.Soon(0),
		Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			return writeModel(ctx, tx, tableOf(version), events)
		})}
	if version > 1 {
		p.Swap = b.Store.Hook(exchange(b, version))
		p.Drop = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			return tx.Exec(ctx, "delete from "+tableOf(version))
		})
	}
	return p
}

func modelVersions(b *kit.Bundle, versions ...int) (list []millrace.Projection) {
	for _, v := range versions {
		list = append(list, modelVersion(b, v))
	}
	return list
}

// served checks that the table of a version has all events of the default tenant once, and that readers see that table.
func served(b *kit.Bundle, version int) {
	b.T.Helper()
	head := b.Head()
	for _, table := range []string{"model", tableOf(version)} {
		got, err := look(b.Ctx, b.Store, table)
		b.Must(err)
		if got != (seenModel{head, head, head * (head + 1) / 2}) {
			b.T.Errorf("%s has %+v, want the %d events", table, got, head)
		}
	}
}

// seenModel is what one query saw.
type seenModel struct{ Count, Highest, Sum int64 }

// whole reports whether it is a prefix of the events: each up to the highest, once.
func (s seenModel) whole() bool {
	return s.Count == s.Highest && s.Sum == s.Highest*(s.Highest+1)/2
}

func look(ctx context.Context, store kit.Store, table string) (s seenModel, err error) {
	values, err := store.Numbers(ctx,
		"select count(*), coalesce(max(position), 0), cast(coalesce(sum(position), 0) as bigint) from "+table)
	if err == nil {
		s = seenModel{values[0], values[1], values[2]}
	}
	return s, err
}

// readers query the view all the time. Each query must see a prefix of the events that has what was seen, or waited
// for, before the query began.
type readers struct {
	*kit.Bundle
	ctx   context.Context
	group sync.WaitGroup
	// floor is the highest position that was seen or waited for.
	floor            atomic.Int64
	queries, follows atomic.Int64
}

// startReaders starts n readers. One more reader appends events itself, and waits for them by the name that readers
// know.
func startReaders(b *kit.Bundle, n int) (r *readers, stop func()) {
	ctx, cancel := context.WithCancel(b.Ctx)
	r = &readers{Bundle: b, ctx: ctx}
	for range n {
		r.group.Go(func() {
			for r.goesOn() {
				r.read()
				kit.Pass(ctx, 5*time.Millisecond) // a query reads all rows: without a pause they take the machine
			}
		})
	}
	a, err := admin.New(b.Store)
	b.Must(err)
	r.group.Go(func() {
		for i := 0; r.goesOn(); i++ {
			r.follow(a, fmt.Sprint("follow", i%7))
		}
	})
	stop = func() {
		cancel()
		r.group.Wait()
	}
	b.T.Cleanup(stop)
	return r, stop
}

func (r *readers) goesOn() bool { return r.ctx.Err() == nil && !r.T.Failed() }

// failed fails the test without ending it, since readers run in goroutines of their own.
func (r *readers) failed(doing string, err error) bool {
	if err != nil && r.ctx.Err() == nil {
		r.T.Errorf("%s: %v", doing, err)
	}
	return err != nil
}

func (r *readers) read() {
	floor := r.floor.Load()
	s, err := look(r.ctx, r.Store, "model")
	if r.failed("a reader", err) {
		return
	}
	r.queries.Add(1)
	switch {
	case !s.whole():
		r.T.Errorf("a reader missed rows, or saw some twice: %+v", s)
	case s.Highest < floor:
		r.T.Errorf("a reader saw the past: %+v after %d", s, floor)
	}
	r.raise(s.Highest)
}

func (r *readers) follow(a *admin.Admin, stream string) {
	result, err := r.Store.Append(r.Ctx, stream, event.Any, event.Event{Type: "counted"})
	if r.failed("append", err) || r.failed("wait for an event", a.WaitFor(r.ctx, modelID(1), result.Positions[0])) {
		return
	}
	r.follows.Add(1)
	r.raise(result.Positions[0])
	r.read()
}

func (r *readers) raise(position int64) {
	for {
		floor := r.floor.Load()
		if floor >= position || r.floor.CompareAndSwap(floor, position) {
			return
		}
	}
}

// load appends about a thousand events a second, as far as the machine can, until stop is called.
func load(b *kit.Bundle) (stop func()) {
	ctx, cancel := context.WithCancel(b.Ctx)
	var group sync.WaitGroup
	for w := range 2 {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := b.Store.Append(b.Ctx, fmt.Sprintf("load%d-%d", w, i%50), event.Any,
					kit.SomeEvents(3)...); err != nil {
					b.T.Errorf("append: %v", err)
					return
				}
				kit.Pass(ctx, 15*time.Millisecond)
			}
		})
	}
	stop = func() {
		cancel()
		group.Wait()
	}
	b.T.Cleanup(stop)
	return stop
}
