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
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

const (
	loadWriters = 24
	// refusedType is the type of events that a constraint refuses, after their numbers were drawn.
	refusedType = "Refused"
)

var (
	// The unrelated transaction is open from before the first append until after the last event was read, which is what
	// matters about it; it need not be the half minute of a real report.
	loadTime = flag.Duration("load.time", 10*time.Second, "how long the writers of TestTailSkipsNothingUnderLoad write")
	loadSeed = flag.Uint64("load.seed", 0, "seed of the writers' choices in TestTailSkipsNothingUnderLoad; 0: a new one")
)

var errRolledBack = errors.New("rolled back on purpose")

// load is 24 writers on one tenant. One in ten of their transactions is rolled back after it drew numbers, in whatever
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
			err = l.store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error { return l.inTx(ctx, tx, stream, random) })
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

// append appends by the store, which has a transaction of its own: where it is to be rolled back the server refuses the
// last event.
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
		if _, _, err := l.store.AppendTx(ctx, tx, stream, event.Any, someEvents(1+random.IntN(5))...); err != nil {
			return err
		}
	}
	return l.end(ctx, tx, random)
}

// byHand inserts as a foreign writer does who knows nothing of this package, with a savepoint that is rolled back.
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

// naive reads what is behind its checkpoint, and takes the last of that for its checkpoint.
type naive struct {
	checkpoint int64
	seen       int
}

func (n *naive) poll(ctx context.Context, store *Store) error {
	rows, err := store.pool.Query(ctx, "select global_seq from millrace_default.events where global_seq > $1 order by 1", n.checkpoint)
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

	f, n := follow(t, reading, reading.tenant.Name()), &naive{}
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
		t.Errorf("%d of %d events are missing, %d were delivered", missing(committed, f.positions), len(committed), len(f.positions))
	}
	rolledBack, transactions := l.rolledBack.Load(), l.rolledBack.Load()+l.committed.Load()
	t.Logf("%d events by %d writers in %d transactions, %d (%.1f %%) of them rolled back, %d savepoints rolled back besides, %d slow ends",
		len(committed), loadWriters, transactions, rolledBack, share(rolledBack, transactions), l.savepoints.Load(), l.slow.Load())
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
