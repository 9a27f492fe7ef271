package pgstore

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// quietStore is a store that sends no wake-ups, so that only polls move the mark.
func quietStore(t *testing.T) *Store {
	t.Helper()
	return migrated(t, openStore(t, pgtest.Database(t), Options{NoNotify: true}))
}

// promptly is how many polls a gap without lock holders may take: the poll that finds it, one during its grace period,
// the one that finds no holder, and some to spare.
const promptly = 8

func TestRolledBackPositionIsSkippedPromptly(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	f := followTail(t, store, projection.DefaultTenant)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(2)...)
	f.untilMark(t, 2)
	f.got(t, 1, 2)

	tx := openTx(t, store)
	appendIn(t, tx, store.tenant, "b", 3)
	rollback(t, tx)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	f.polls = 0
	f.untilMark(t, 6)
	f.got(t, 6)
	if f.polls > promptly {
		t.Errorf("it took %d polls", f.polls)
	}
	// Nothing is visible beyond these, so the mark stays.
	tx = openTx(t, store)
	appendIn(t, tx, store.tenant, "b", 3)
	rollback(t, tx)
	for range 3 {
		if u, err := f.poll(testContext(t)); err != nil || u.Mark != 6 || u.More || u.Again != 0 || u.Held != nil {
			t.Errorf("%+v, %v", u, err)
		}
	}
}

func TestRollbackToSavepointIsSkipped(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	f := followTail(t, store, projection.DefaultTenant)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	f.untilMark(t, 1)
	tx := openTx(t, store)
	appendIn(t, tx, store.tenant, "b", 1) // 2
	execIn(t, tx, "savepoint s")
	appendIn(t, tx, store.tenant, "b", 2) // 3, 4
	execIn(t, tx, "rollback to savepoint s")
	appendIn(t, tx, store.tenant, "b", 1) // 5
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	if held := f.untilHeld(t, 1); !slices.Equal(held.Holders, []string{backend(tx)}) || held.Below != 6 {
		t.Errorf("%+v", held)
	}
	commit(t, tx)
	f.untilMark(t, 6)
	f.got(t, 1, 2, 5, 6)
}

// The lock goes with the savepoint in which it was taken, so the transaction need not end.
func TestSavepointThatRolledBackHoldsNothing(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	f := followTail(t, store, projection.DefaultTenant)
	tx := openTx(t, store)
	execIn(t, tx, "create table unrelated (n int)")
	execIn(t, tx, "savepoint s")
	appendIn(t, tx, store.tenant, "b", 2)
	execIn(t, tx, "rollback to savepoint s")
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	f.untilMark(t, 3)
}

func TestOpenAppendIsWaitedForAndNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(*testing.T, pgx.Tx)
		want []int64
	}{
		"commit":   {commit, []int64{1, 2, 3, 4, 5}},
		"rollback": {rollback, []int64{1, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			store := quietStore(t)
			f := followTail(t, store, projection.DefaultTenant)
			mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
			f.untilMark(t, 1)
			tx := openTx(t, store)
			appendIn(t, tx, store.tenant, "b", 2)
			mustAppend(t, store.tenant, "a", event.Any, someEvents(2)...)
			held := f.untilHeld(t, 1)
			if held.Below != 5 || !slices.Equal(held.Holders, []string{backend(tx)}) {
				t.Errorf("%+v, want below 5 by %s", held, backend(tx))
			}
			if again := f.untilHeld(t, 1); !again.Since.Equal(held.Since) {
				t.Errorf("held since %v, and then since %v", held.Since, again.Since)
			}
			test.end(t, tx)
			f.untilMark(t, 5)
			f.got(t, test.want...)
			if u, err := f.poll(testContext(t)); err != nil || u.Held != nil || u.Again != 0 {
				t.Errorf("%+v, %v", u, err)
			}
		})
	}
}

// An append that began after the gap was seen does not hold it, however long it takes.
func TestLaterAppendDoesNotHoldAnEarlierGap(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	f := followTail(t, store, projection.DefaultTenant)
	early := openTx(t, store)
	appendIn(t, early, store.tenant, "early", 1) // 1
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	f.untilHeld(t, 0)
	late := openTx(t, store)
	appendIn(t, late, store.tenant, "late", 1) // 3
	commit(t, early)
	f.untilMark(t, 2)
	f.got(t, 1, 2)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	if held := f.untilHeld(t, 2); !slices.Equal(held.Holders, []string{backend(late)}) || held.Below != 4 {
		t.Errorf("%+v, want %s below 4", held, backend(late))
	}
	commit(t, late)
	f.untilMark(t, 4)
	f.got(t, 3, 4)
}

func TestUnrelatedTransactionsDoNotHoldTheMark(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	other := newTenant(t, store, "other")
	g := followTail(t, store, other.Name())
	mustExec(t, store, "create table unrelated (n int)")
	writer := openTx(t, store)
	execIn(t, writer, "insert into unrelated values (1)")
	execIn(t, writer, "insert into millrace_default.streams values ('mine', 1)")
	reader := openTx(t, store)
	execIn(t, reader, "select count(*) from millrace_default.events")
	execIn(t, reader, "lock table millrace_default.events in row share mode")
	neighbour := openTx(t, store)
	appendIn(t, neighbour, other, "a", 1)
	mustAppend(t, other, "b", event.Any, someEvents(1)...)

	f := followTail(t, store, projection.DefaultTenant)
	for i := range int64(5) {
		tx := openTx(t, store)
		appendIn(t, tx, store.tenant, "gap", 1)
		rollback(t, tx)
		mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
		f.polls = 0
		f.untilMark(t, 2*i+2)
		if f.polls > promptly {
			t.Errorf("it took %d polls", f.polls)
		}
	}
	g.untilHeld(t, 0)
	commit(t, neighbour)
	g.untilMark(t, 2)
	g.got(t, 1, 2)
}

// A tail that starts does not read older events, even during an append.
func TestTailBeginsAtTheEnd(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(3000)...)
	gap := openTx(t, store)
	appendIn(t, gap, store.tenant, "b", 1) // 3001
	rollback(t, gap)
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	f := &follower{tail: store.port().TailPoller(projection.DefaultTenant)}
	if u, err := f.poll(testContext(t)); err != nil || u.Mark != 3002 || u.From != 3002 || len(u.Events) > 0 || u.More {
		t.Errorf("begins from %d at %d with %d events, %v", u.From, u.Mark, len(u.Events), err)
	}

	open := openTx(t, store)
	appendIn(t, open, store.tenant, "b", 1) // 3003
	mustAppend(t, store.tenant, "a", event.Any, someEvents(1)...)
	late := &follower{tail: store.port().TailPoller(projection.DefaultTenant)}
	late.until(t, "it is held", func(u engine.TailUpdate) bool { return u.Held != nil })
	if late.mark >= 3003 {
		t.Errorf("the mark is %d", late.mark)
	}
	before := len(late.positions)
	commit(t, open)
	u := late.until(t, "it is not held", func(u engine.TailUpdate) bool { return u.Held == nil })
	if u.Mark != 3004 || u.From != 3004 || len(late.positions) != before {
		t.Errorf("goes on from %d at %d with %d events", u.From, u.Mark, len(late.positions)-before)
	}
	f.untilMark(t, 3004)
	f.got(t, 3003, 3004)
}

const (
	loadWriters = 24
	// refusedType is the type of events that a constraint refuses after their positions were drawn.
	refusedType = "Refused"
)

var (
	// The unrelated transaction is open from before the first append until after the last event was read. How long that
	// takes does not matter.
	loadTime = flag.Duration("load.time", 10*time.Second, "how long the writers of TestTailSkipsNothingUnderLoad write")
	loadSeed = flag.Uint64("load.seed", 0,
		"seed of the writers' choices in TestTailSkipsNothingUnderLoad; 0: a new one")
)

var errRolledBack = errors.New("rolled back on purpose")

// load is 24 writers on one tenant. One in ten of their transactions is rolled back after it drew positions, whichever
// way it appends.
type load struct {
	store      *Store
	until      time.Time
	committed  atomic.Int64
	rolledBack atomic.Int64
	savepoints atomic.Int64
	slow       atomic.Int64
}

// write appends in random ways until the time is up: by the store, within InTx, and by foreign statements.
func (l *load) write(ctx context.Context, writer int, random *rand.Rand) error {
	for n := 0; time.Now().Before(l.until); n++ {
		stream := fmt.Sprintf("w%d-%d", writer, n%7)
		var err error
		switch random.IntN(8) {
		case 0, 1:
			err = l.append(ctx, stream, random)
		case 2, 3, 4:
			err = l.store.InTx(ctx, func(ctx context.Context,
				tx pgx.Tx) error {
				return l.inTx(ctx, tx, stream, random)
			})
		default:
			err = pgx.BeginFunc(ctx, l.store.pool, func(tx pgx.Tx) error {
				return l.byHand(ctx, tx, fmt.Sprintf("hand%d-%d", writer, n), random)
			})
		}
		switch {
		case err == nil:
			l.committed.Add(1)
		case errors.Is(err, errRolledBack):
			l.rolledBack.Add(1)
		default:
			return err
		}
	}
	return nil
}

// append appends by the store, in a transaction of its own. For a rollback, the server refuses the last event.
func (l *load) append(ctx context.Context, stream string, random *rand.Rand) error {
	events, refused := someEvents(1+random.IntN(5)), random.IntN(10) == 0
	if refused {
		events[len(events)-1].Type = refusedType
	}
	_, err := l.store.Append(ctx, stream, event.Any, events...)
	if refused && pgerr.Is(err, "23514") {
		return errRolledBack
	}
	return err
}

func (l *load) inTx(ctx context.Context, tx pgx.Tx, stream string, random *rand.Rand) error {
	for range 1 + random.IntN(3) {
		if _, err := l.store.AppendTx(ctx, tx, stream, event.Any, someEvents(1+random.IntN(5))...); err != nil {
			return err
		}
	}
	return l.end(ctx, tx, random)
}

// byHand inserts as a foreign writer does, with a savepoint that is rolled back.
func (l *load) byHand(ctx context.Context, tx pgx.Tx, stream string, random *rand.Rand) error {
	insert := func(tx pgx.Tx, first, n int) error {
		_, err := tx.Exec(ctx, `insert into millrace_default.events (stream_id, stream_version, type, body)
			select $1, $2::bigint + n, 'Foreign', '1' from generate_series(1, $3::bigint) n`, stream, first, n)
		return err
	}
	if _, err := tx.Exec(ctx, "insert into millrace_default.streams values ($1, 2)", stream); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		return errors.Join(insert(tx, 0, 1+random.IntN(3)), errRolledBack)
	})
	if !errors.Is(err, errRolledBack) {
		return err
	}
	l.savepoints.Add(1)
	if err := insert(tx, 0, 1+random.IntN(5)); err != nil {
		return err
	}
	return l.end(ctx, tx, random)
}

// end decides how a transaction ends: one in five slowly, one in ten by a rollback.
func (l *load) end(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	if random.IntN(5) == 0 {
		l.slow.Add(1)
		if _, err := tx.Exec(ctx, "select pg_sleep($1)", 0.001+0.02*random.Float64()); err != nil {
			return err
		}
	}
	if random.IntN(10) == 0 {
		return errRolledBack
	}
	return nil
}

// naive reads the events after its checkpoint, and moves the checkpoint to the last of them.
type naive struct {
	checkpoint int64
	seen       int
}

func (n *naive) poll(ctx context.Context, store *Store) error {
	rows, err := store.pool.Query(ctx,
		"select global_seq from millrace_default.events where global_seq > $1 order by 1", n.checkpoint)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, []any{&n.checkpoint}, func() error {
		n.seen++
		return nil
	})
	return err
}

func TestTailSkipsNothingUnderLoad(t *testing.T) {
	dsn := pgtest.Database(t)
	writing := migrated(t, openStore(t, dsn, Options{}, connections(loadWriters)))
	reading := openStore(t, dsn, Options{})
	mustExec(t, reading, "alter table millrace_default.events add check (type <> '"+refusedType+"')")
	mustExec(t, reading, "create table unrelated (n int)")
	unrelated := openTx(t, reading)
	execIn(t, unrelated, "insert into unrelated values (1)")

	f, n := followTail(t, reading, reading.tenant.Name()), &naive{}
	seed := cmp.Or(*loadSeed, rand.Uint64())
	t.Logf("again with the same choices: -load.seed=%d", seed)
	l := &load{store: writing, until: time.Now().Add(*loadTime)}
	ctx, cancel := context.WithTimeout(context.Background(), *loadTime+2*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	var writers errgroup.Group
	for i := range loadWriters {
		writers.Go(func() error { return l.write(ctx, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	ended := make(chan struct{})
	group.Go(func() error {
		defer close(ended)
		return writers.Wait()
	})
	var held, waited int
	group.Go(func() error {
		for last := false; ; {
			u, err := f.poll(ctx)
			if err != nil {
				return err
			}
			switch {
			case u.Held != nil:
				held++
			case u.Again > 0:
				waited++
			}
			if last && !u.More && u.Again == 0 {
				return nil
			}
			if !u.More {
				pause(ctx, max(u.Again, time.Millisecond))
			}
			last = isClosed(ended)
		}
	})
	group.Go(func() error {
		for last := false; ; last = isClosed(ended) {
			if err := n.poll(ctx, reading); err != nil || last {
				return err
			}
			pause(ctx, time.Millisecond)
		}
	})
	noError(t, group.Wait())
	rollback(t, unrelated)

	committed := committedPositions(t, reading)
	if !slices.Equal(f.positions, committed) {
		t.Errorf("%d of %d events are missing, %d were delivered", missing(committed, f.positions), len(committed),
			len(f.positions))
	}
	rolledBack, transactions := l.rolledBack.Load(), l.rolledBack.Load()+l.committed.Load()
	t.Logf("%d events by %d writers in %d transactions, %d (%.1f %%) of them rolled back, %d savepoints rolled back besides, %d slow ends",
		len(committed), loadWriters, transactions, rolledBack, share(rolledBack, transactions), l.savepoints.Load(),
		l.slow.Load())
	missed := len(committed) - n.seen
	t.Logf("missed by this tail %d, by position > checkpoint %d (%.0f %%); %d polls, %d met a gap, %d held",
		missing(committed, f.positions), missed, share(missed, len(committed)), f.polls, waited, held)
	// The control: without the settled mark this load loses events.
	if n.seen == len(committed) {
		t.Error("the naive reader missed nothing: the load shows nothing")
	}
}

// share is part of whole in per cent.
func share[T int | int64](part, whole T) float64 { return 100 * float64(part) / float64(max(1, whole)) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func committedPositions(t *testing.T, store *Store) []int64 {
	t.Helper()
	rows := must(store.pool.Query(testContext(t), "select global_seq from millrace_default.events order by 1"))(t)
	positions := must(pgx.CollectRows(rows, pgx.RowTo[int64]))(t)
	return positions
}

// missing counts those of want that are not in got; both rise.
func missing(want, got []int64) int {
	n := 0
	for _, p := range want {
		if _, found := slices.BinarySearch(got, p); !found {
			n++
		}
	}
	return n
}

func setCheckpoint(t *testing.T, store *Store, tenant string, checkpoint int64) {
	t.Helper()
	must(store.plane().Ensure(testContext(t), projectionsOf([]string{tenant}, "p")))(t)
	mustExec(t, store, `update millrace.leases set checkpoint = $2 where id =
		(select id from millrace.projections where tenant = $1)`, tenant, checkpoint)
}

func TestRestoredTenantIsRefused(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	other := newTenant(t, store, "other")
	for _, tenant := range []*Tenant{store.tenant, other} {
		mustAppend(t, tenant, "a", event.Any, someEvents(5)...)
		setCheckpoint(t, store, tenant.Name(), 5)
		followTail(t, store, tenant.Name())
	}
	mustExec(t, store, "delete from millrace_default.events where global_seq = 5")
	tail := store.port().TailPoller(projection.DefaultTenant)
	for range 2 {
		_, err := tail.Poll(testContext(t))
		if fault := store.port().Classify(err); !errors.Is(err, tenancy.ErrRestored) ||
			fault.Class != faults.Configuration {
			t.Errorf("%v", err)
		}
	}
	followTail(t, store, other.Name())
	// With the checkpoint set back it goes on.
	setCheckpoint(t, store, projection.DefaultTenant, 4)
	f := followTail(t, store, projection.DefaultTenant)
	if f.mark != 4 {
		t.Errorf("the mark is %d", f.mark)
	}
}

// dropTenant drops a tenant with all it has.
func dropTenant(t *testing.T, store *Store, tenant *Tenant) {
	t.Helper()
	mustExec(t, store, "drop schema "+sqltext.Name(tenant.EventsSchema())+" cascade")
	mustExec(t, store, "delete from millrace.tenants where tenant = $1", tenant.Name())
}

// If a tenant is dropped and created again, another events table has the same name. Lock holders must be found on the
// new table.
func TestLockHoldersAreFoundOnAReplacedEventsTable(t *testing.T) {
	t.Parallel()
	store := quietStore(t)
	tenant := newTenant(t, store, "again")
	f := followTail(t, store, tenant.Name())
	held := func() pgx.Tx {
		tx := openTx(t, store)
		first := appendIn(t, tx, tenant, "held", 1)[0]
		mustAppend(t, tenant, "a", event.Any, someEvents(1)...)
		if by := f.untilHeld(t, first-1); !slices.Equal(by.Holders, []string{backend(tx)}) {
			t.Errorf("%+v", by)
		}
		return tx
	}
	rollback(t, held())
	f.untilMark(t, 2)
	dropTenant(t, store, tenant)
	if _, err := f.poll(testContext(t)); err == nil || store.port().Classify(err).Class != faults.Configuration {
		t.Errorf("without the table: %v", err)
	}
	newTenant(t, store, tenant.Name())
	f = &follower{tail: f.tail}
	if u, err := f.poll(testContext(t)); err != nil || u.Mark != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	commit(t, held())
	f.untilMark(t, 2)
	f.got(t, 1, 2)

	// It was replaced between two polls.
	dropTenant(t, store, tenant)
	newTenant(t, store, tenant.Name())
	mustAppend(t, tenant, "a", event.Any, someEvents(2)...)
	commit(t, held())
	f.untilMark(t, 4)
	f.got(t, 3, 4)
}
