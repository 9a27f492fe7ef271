package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

type stepped struct{}

func (stepped) EventType() string { return "Stepped" }

var steps = aggregate.New("steps", aggregate.On(func(n int, _ event.Of[stepped]) int { return n + 1 }))

// A command in a transaction of the caller that meets a deadlock is not decided again: the server has aborted the
// transaction. Its error is the deadlock, so that in a handler it does not count against the event.
func TestDeadlockOfACommandWithinATransactionIsItsError(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	step := func(int) ([]event.Event, error) { return []event.Event{event.New(stepped{})}, nil }
	for _, id := range []string{"a", "b"} {
		if _, err := steps.Do(b.Ctx, b.Store, id, step); err != nil {
			t.Fatal(err)
		}
	}
	var first sync.WaitGroup // each transaction has locked its first stream
	first.Add(2)
	var failed [2]error
	var both sync.WaitGroup
	for i, ids := range [][]string{{"a", "b"}, {"b", "a"}} {
		both.Go(func() {
			failed[i] = b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
				_, err := steps.Do(ctx, b.Store.Within(tx), ids[0], step)
				first.Done()
				first.Wait()
				if err == nil {
					_, err = steps.Do(ctx, b.Store.Within(tx), ids[1], step)
				}
				return err
			})
		})
	}
	both.Wait()
	var deadlock *pgconn.PgError
	if err := errors.Join(failed[:]...); !errors.As(err, &deadlock) || deadlock.Code != "40P01" {
		t.Errorf("%v, want a deadlock", err)
	}
	for _, id := range []string{"a", "b"} {
		if at, err := steps.Load(b.Ctx, b.Store, id); err != nil || at.State != 2 {
			t.Errorf("%+v, %v", at, err)
		}
	}
}

// A snapshotter fails by its configuration, and no event is to blame, if the store has no table for snapshots.
func TestSnapshotterWithoutTheTableOfSnapshots(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("drop table millrace.snapshots")
	if _, err := b.Store.Append(b.Ctx, steps.Stream("a"), event.Any, event.New(stepped{})); err != nil {
		t.Fatal(err)
	}
	appended := b.All(b.Store)
	err := b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
		return steps.Snapshot(1, 1).SaveSnapshots(ctx, b.Store.Within(tx), appended)
	})
	var fault *faults.Fault
	if !errors.As(err, &fault) || fault.Class != faults.Configuration ||
		!strings.Contains(err.Error(), "call Migrate") {
		t.Errorf("got %v", err)
	}
}

// A server that is short of memory for a moment, when it should read the snapshot, is no reason for a state without the
// events before it.
func TestErrorOfTheServerBeforeTheSnapshotOfALoad(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	saving := steps.Snapshot(2, 1)
	b.step(saving, 5)
	b.breaksOnce()
	b.exec(`alter table millrace.snapshots rename to snapshots_kept`)
	for _, class := range []string{"53200", "54000", "22P05"} {
		b.exec(`create or replace view millrace.snapshots as select tenant, stream_id, version, position, event_time, fingerprint, state,
			public.breaks(generation, '` + class + `', generation) as generation from millrace.snapshots_kept`)
		b.exec(`alter sequence public.reads restart`)
		for _, snapshot := range []int64{0, 4} {
			at, err := saving.Load(b.Ctx, b.Store, "a")
			if err != nil || at.State != 5 || at.Version != 5 || at.Snapshot != snapshot {
				t.Errorf("%s: %+v, %v, want the snapshot %d", class, at, err, snapshot)
			}
		}
	}
}

// Whatever error of the server ends a page in its middle, no event is folded twice or left out.
func TestErrorOfTheServerInTheMiddleOfALoad(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	saving := steps.Snapshot(8, 1)
	b.step(saving, 20)
	b.breaksOnce()
	b.exec(`alter table millrace_default.events rename to events_kept`)
	for _, class := range []string{"53200", "54000", "57014", "0A000", "26000", "42P05", "40001", "XX000"} {
		for _, at := range []int64{1, 17, 19, 20} {
			b.exec(fmt.Sprintf(`create or replace view millrace_default.events as select global_seq, stream_id, stream_version, type, body, headers, causation_id,
				public.breaks(stream_version, '%s', %d)::text as correlation_id, created_at from millrace_default.events_kept`, class, at))
			for name, c := range map[string]*aggregate.Category[int]{"plain": steps, "snapshot": saving,
				"cache": steps.Cache(1 << 20)} {
				b.exec(`alter sequence public.reads restart`)
				for load := range 2 {
					got, err := c.Load(b.Ctx, b.Store, "a")
					if err == nil && (got.State != 20 || got.Version != 20) || err != nil && load > 0 {
						t.Errorf("%s at %d, %s, load %d: %+v, %v", class, at, name, load, got, err)
					}
				}
			}
		}
	}
}

// An empty text is no state, so the whole stream is read.
func TestSnapshotWithoutItsStateIsNotLoaded(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	saving := steps.Snapshot(2, 1)
	b.step(saving, 7)
	b.exec(`update millrace.snapshots set state = ''`)
	if at, err := saving.Load(b.Ctx, b.Store, "a"); err != nil || at.State != 7 || at.Snapshot != 0 {
		t.Errorf("%+v, %v", at, err)
	}
}

// step carries out commands that append one event each to the aggregate a.
func (b *bundle) step(c *aggregate.Category[int], n int) {
	b.T.Helper()
	for range n {
		_, err := c.Do(b.Ctx, b.Store, "a", func(int) ([]event.Event,
			error) {
			return []event.Event{event.New(stepped{})}, nil
		})
		b.Must(err)
	}
}

// breaksOnce creates a function that returns its first argument. It raises an error of a class once, after each restart
// of the sequence reads, if that argument is the third.
func (b *bundle) breaksOnce() {
	b.exec(`create sequence public.reads`)
	b.exec(`create function public.breaks(v bigint, class text, at bigint) returns bigint language plpgsql stable as $$
		begin
			if v = at and nextval('public.reads') = 1 then
				raise 'on purpose' using errcode = class;
			end if;
			return v;
		end $$`)
}
