package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
)

// A projection waits for objects that a deployment forgot, in a state that every process sees.
func TestProjectionWaitsForWhatADeploymentForgot(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table half (n int); create table secret (n int); create role millrace_missing")
	t.Cleanup(func() {
		_, _ = b.store.Pool().Exec(context.Background(), "drop owned by millrace_missing; drop role millrace_missing")
	})
	last := b.append("a", 40).Positions[39]
	kinds := map[string]struct{ needs, mend string }{
		"42P01": {"insert into lost values (1)", "create table lost (n int)"},
		"42703": {"insert into half (n, m) values (1, 2)", "alter table half add column m int"},
		"42883": {"select forgotten()", "create function forgotten() returns int language sql as 'select 1'"},
		"3F000": {"create table nowhere.t (n int); drop table nowhere.t", "create schema nowhere"},
		"42501": {"set local role millrace_missing; insert into secret values (1)", "grant insert on secret to millrace_missing"},
	}
	var projections []millrace.Projection
	for kind, k := range kinds {
		projections = append(projections, millrace.Projection{Name: kind, MaxEvents: 8, Retry: soon(-1),
			Handler: pgstore.Batch(failsAt(kind, func(int64) bool { return true }, func(ctx context.Context, tx pgx.Tx, _ int, _ int64) error {
				return execute(k.needs)(ctx, tx)
			}))})
	}
	rt, remote := b.runtime(millrace.Config{}, projections...), b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	waits := func(rt *millrace.Runtime, kind string) bool {
		s := b.status(rt, kind)
		return s.State == millrace.StateMissingObject && strings.Contains(s.Reason, kind) && s.Attempts == 0 && s.Parked == 0
	}
	for kind, k := range kinds {
		b.eventually(kind+": it waits", func() bool { return waits(rt, kind) })
		b.eventually(kind+": every process sees it", func() bool { return waits(remote, kind) })
		b.exec(k.mend)
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: kind}, last); err != nil {
			t.Fatal(err)
		}
		b.eventually(kind+": nothing is said of it any more", func() bool {
			here, there := b.status(rt, kind), b.status(remote, kind)
			return here.State == millrace.StateLive && there.State == millrace.StateElsewhere && here.Reason+there.Reason == ""
		})
	}
	b.mustCatchUp(rt, "42P01", "42703", "42883", "3F000", "42501")
}

// Dynamic SQL may name something missing for one event alone.
func TestWhatIsMissingForOneEventAloneIsCountedAfterATime(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.append("a", 30).Positions[12]
	var first, last atomic.Int64
	const wait = 700 * time.Millisecond
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", MaxEvents: 8, Retry: soon(1), MissingObjectTimeout: wait,
		Handler: pgstore.Batch(failsAt("p", only(poison), func(ctx context.Context, tx pgx.Tx, batch int, _ int64) error {
			if batch == 1 {
				first.CompareAndSwap(0, time.Now().UnixNano())
				last.Store(time.Now().UnixNano())
			}
			return execute("insert into of_another_time values (1)")(ctx, tx)
		}))},
		millrace.Projection{Name: "at once", MaxEvents: 8, Retry: soon(1), MissingObjectTimeout: -1,
			Handler: pgstore.Batch(failsAt("at once", only(poison), func(ctx context.Context, tx pgx.Tx, _ int, _ int64) error {
				return execute("insert into of_another_time values (1)")(ctx, tx)
			}))})
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p", "at once"} {
		b.verify(name, poison)
		if letters := b.letters(name); len(letters) != 1 || letters[0].Attempts != 2 || !strings.Contains(letters[0].Error, "42P01") {
			t.Errorf("%s: parked %+v", name, letters)
		}
	}
	if over := time.Duration(last.Load() - first.Load()); over < wait {
		t.Errorf("parked after %v", over)
	}
}
