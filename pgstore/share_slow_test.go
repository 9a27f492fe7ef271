package pgstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/queued"
)

// makeSlow makes the table slow. The commit of a transaction that inserts a number into it takes so many milliseconds.
func makeSlow(t *testing.T, store *Store) {
	t.Helper()
	mustExec(t, store, `create table public.slow (ms integer);
		create function public.slow_commit() returns trigger language plpgsql as
			$$ begin perform pg_catalog.pg_sleep(new.ms / 1000.0); return null; end $$;
		create constraint trigger slow_commit after insert on public.slow initially deferred for each row execute function public.slow_commit()`)
}

// slowCommit queues a row of the rider, and makes the commit slow.
func slowCommit(i, ms int) queueFunc {
	return func(ctx context.Context, q Queue, events []event.Envelope) error {
		q.Exec("insert into public.slow values ($1)", ms)
		return rides(i, "''")(ctx, q, events)
	}
}

// A commit may wait for the disk, a standby or deferred constraints. That is not the handler's time.
func TestCommitOfAQueuedBatchHasItsOwnTimeLimit(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 1)
	makeSlow(t, r.store)
	r.store.sharing.setAlone(r.leases[0].Row, 1)
	noError(t, r.batch(testContext(t), 0, engine.ApplyOptions{Timeout: time.Second}, slowCommit(0, 3000)))
	r.rode(0)
}

// The next batches of a projection whose commit is slow are sent alone: how long it takes then is not known.
func TestQueuedBatchWhoseCommitIsSlowIsSentAlone(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 3)
	makeSlow(t, r.store)
	errs := r.together(engine.ApplyOptions{}, func(i int) queueFunc {
		if i == 1 {
			return slowCommit(i, 300)
		}
		return rides(i, "''")
	})
	noError(t, errors.Join(errs...))
	r.rode(0, 1, 2)
	s, row := &r.store.sharing, r.leases[1].Row
	for left := aloneAfterCommit; left > 0; left-- {
		if !s.goesAlone(row) {
			t.Fatalf("%d batches too early it holds up others", left)
		}
		s.setAlone(row, 0)
	}
	if s.goesAlone(row) {
		t.Error("it is sent alone for ever")
	}
}

func TestSlowBatchesOfAMessageGoAloneNext(t *testing.T) {
	t.Parallel()
	const ms, slow = 1000, int64(slowShared/time.Microsecond) + 1
	batch := func(begin, handled int64, async bool) []command {
		return []command{{part: openingPart}, {part: settingsPart, clock: begin}, {part: handlerPart},
			{part: timedPart, clock: handled, async: async}, {part: commitPart}, {part: endPart}}
	}
	for name, test := range map[string]struct {
		list []command
		want []int
	}{
		"one":            {batch(1, ms, true), []int{0}},
		"a slow handler": {batch(1, 1+slow, true), []int{1}},
		"no answers":     {nil, nil},
		"quick ones":     {slices.Concat(batch(1, ms, true), batch(2*ms, 3*ms, false)), []int{0, 0}},
		"a slow commit": {
			slices.Concat(batch(1, ms, true), batch(ms+slow, ms+slow+1, true)), []int{aloneAfterCommit, 0},
		},
		"a commit that waits": {slices.Concat(batch(1, ms, false), batch(ms+slow, ms+slow+1, true)), []int{0, 0}},
	} {
		if got := aloneNext(test.list); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Many statements take long in all, even if each is quick. Others do not wait for them.
func TestQueuedBatchOfManyStatementsIsSentAlone(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 1)
	r.holding(func() {
		noError(t, r.sends(0, func(ctx context.Context, q Queue, events []event.Envelope) error {
			for range mostStatements {
				q.Exec("select 1")
			}
			return rides(0, "''")(ctx, q, events)
		}))
	})
	r.rode(0)
}

func TestStatementsOfAMessageAreLimited(t *testing.T) {
	t.Parallel()
	var s sharing
	var all []*sharer
	for range 4 {
		t := &sharer{b: &batchTx{}, statements: make([]queued.Statement, mostStatements/2-1), turn: make(chan turn, 2)}
		s.enter(t)
		all = append(all, t)
	}
	if group := s.take(all[3]); len(group) != 2 || !slices.Contains(group, all[3]) || !slices.Contains(group, all[0]) {
		t.Errorf("%d batches", len(group))
	}
	if group := s.take(all[1]); len(group) != 2 {
		t.Errorf("then %d batches", len(group))
	}
}

// A batch that leads waits for a connection. If another message takes it meanwhile, it ends with that.
func TestLeaderWhoseBatchAnotherOneSendsWaitsForNoConnection(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 2)
	r.slotted = 1
	asks, ended := make(chan struct{}), make(chan error, 1)
	var asked atomic.Bool
	r.connect = func(ctx context.Context, _ []string) (release func(), err error) {
		if asked.Swap(true) {
			return func() {}, nil
		}
		close(asks)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(testContext(t), 20*time.Second)
	defer cancel()
	leader := make(chan error, 1)
	go func() { leader <- r.batch(ctx, 0, engine.ApplyOptions{}, rides(0, "''")) }()
	<-asks
	noError(t, errors.Join(r.sends(1, rides(1, "''")), <-leader))
	if why := <-ended; why != engine.ErrNotNeeded {
		t.Errorf("its wait ended because of %v", why)
	}
	r.rode(0, 1)
	r.until(func(s *sharing) bool { return len(s.waiting) == 0 && s.senders == 0 })
}

// A column without a zone gets the wall clock of a time, as from a handler with a transaction.
func TestQueuedTimesKeepTheirZones(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]int64{"one message": 0, "three messages": 1} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(t, 1)
			mustExec(t, o.store,
				`create table public.times (local timestamp, day date, instant timestamptz, list timestamp[], old timestamptz,
				west timestamp, far timestamptz, own timestamp, none timestamp)`)
			at := time.Date(2020, 1, 2, 3, 4, 5, 678_901_000, time.FixedZone("", 3*3600+1800))
			west := at.In(time.FixedZone("", -(3*3600 + 28)))
			far := at.In(time.FixedZone("", 17*3600))
			noError(t, o.queue(func(_ context.Context, q Queue, _ []event.Envelope) error {
				if rows > 0 {
					q = q.Expect(rows)
				}
				q.Exec("insert into public.times values ($1, $2, $3, $4, $5, $6, $7, $8, $9)", at, at, &at,
					[]time.Time{at}, time.Date(-5, 1, 2, 3, 4, 5, 0, time.UTC), west, far,
					pgtype.Timestamptz{Time: at, Valid: true}, (*time.Time)(nil))
				return nil
			}))
			got := one[string](t, o.store, `select concat_ws(' | ', local, day, instant at time zone 'UTC', list[1],
				old at time zone 'UTC', west, far at time zone 'UTC', own, none) from public.times`)
			if want := strings.Join([]string{
				"2020-01-02 03:04:05.678901", "2020-01-02", "2020-01-01 23:34:05.678901", "2020-01-02 03:04:05.678901",
				"0006-01-02 03:04:05 BC", "2020-01-01 20:33:37.678901", "2020-01-01 23:34:05.678901",
				"2020-01-02 03:04:05.678901",
			}, " | "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
