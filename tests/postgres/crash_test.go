package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// In a process with these the test below is the victim of TestKilledProcessAppliesEverythingOnce.
const (
	victimDSN = "MILLRACE_TEST_VICTIM_DSN"
	victimWay = "MILLRACE_TEST_VICTIM_WAY"
)

// ways are where a process is killed. Each makes a handler that sees to it.
var ways = map[string]func(b *bundle) batchFunc{
	"in the handler, after its writes": func(*bundle) batchFunc {
		var batches atomic.Int64
		return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			err := recordIn(ctx, tx, "p", events)
			if batches.Add(1) == 3 {
				dieAtOnce()
			}
			return err
		}
	},
	"after a commit, when the next batch begins": func(*bundle) batchFunc {
		var batches atomic.Int64
		return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			if batches.Add(1) == 3 {
				dieAtOnce()
			}
			return recordIn(ctx, tx, "p", events)
		}
	},
	"once a commit is visible": func(b *bundle) batchFunc {
		applied := func() (n int, err error) {
			err = b.store.Pool().QueryRow(b.ctx, "select count(*) from applied where projection = 'p'").Scan(&n)
			return n, err
		}
		before, _ := applied()
		go func() {
			for n := before; n == before; n, _ = applied() {
			}
			dieAtOnce()
		}()
		return record("p")
	},
	deadly:   dieAtTheFifth,
	forever:  dieAtTheFifth,
	replayed: dieAtTheFifth,
	outside: func(b *bundle) batchFunc {
		return func(_ context.Context, _ pgx.Tx, events []event.Envelope) error {
			if err := pgx.BeginFunc(b.ctx, b.store.Pool(), func(tx pgx.Tx) error { return recordIn(b.ctx, tx, "p", events) }); err != nil {
				return err
			}
			dieAtOnce()
			return nil
		}
	},
}

// deadly is the event at which the handler of the way below ends its process, however often it is tried.
const (
	deadly = "at one event"
	fifth  = 5
)

// forever is the same, in a projection that wants to try what fails again and again.
const forever = "at one event, again and again"

// replayed is the same in a projection that has parked the event before, and is to replay it.
const replayed = "at the replay of one event"

func dieAtTheFifth(*bundle) batchFunc {
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		if slices.ContainsFunc(events, func(e event.Envelope) bool { return e.Position == fifth }) {
			dieAtOnce()
		}
		return recordIn(ctx, tx, "p", events)
	}
}

// outside is the control: what is not written in the batch's transaction is written twice.
const outside = "outside of the transaction"

func dieAtOnce() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// quick lets others take over soon after a process is gone.
var quick = millrace.Config{HeartbeatInterval: 100 * time.Millisecond, LeaseDuration: time.Second, ReconcileInterval: 100 * time.Millisecond}

func TestVictim(t *testing.T) {
	t.Parallel()
	dsn := os.Getenv(victimDSN)
	if dsn == "" {
		t.Skip("is run by TestKilledProcessAppliesEverythingOnce, in a process of its own")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	b := &bundle{t: t, ctx: ctx, dsn: dsn, store: store}
	way := os.Getenv(victimWay)
	p, leased := leasedWay(b, way)
	if !leased {
		p = millrace.Projection{Name: "p", MaxEvents: 10, Handler: pgstore.Batch(ways[way](b))}
	}
	if way == forever {
		p.OnFailure = projection.ActionRetry
		p.FailureHandler = func(_ context.Context, f projection.Failure) projection.Action {
			if !errors.Is(f.Err, projection.ErrProcessDied) || f.Event.Position != fifth || f.Attempt != 4 || f.FirstFailedAt.IsZero() {
				t.Errorf("FailureHandler is told %+v", f)
			}
			return projection.ActionRetry
		}
	}
	rt := b.runtime(quick, p)
	if way == replayed {
		defer b.start(rt)()
		b.eventually("its command is carried out", func() bool {
			var open int
			err := store.Pool().QueryRow(ctx, "select count(*) from millrace.commands where ended_at is null").Scan(&open)
			return err == nil && open == 0
		})
		return
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		t.Fatal(err)
	}
}

// kill runs a victim until it is killed.
func (b *bundle) kill(way string) {
	b.t.Helper()
	if b.try(way) == nil {
		b.t.Fatalf("%s: the victim was not killed", way)
	}
}

// try runs a victim, and returns nil where it has applied everything and ended by itself.
func (b *bundle) try(way string) error {
	b.t.Helper()
	victim := exec.CommandContext(b.ctx, os.Args[0], "-test.run=^TestVictim$")
	victim.Env = append(os.Environ(), victimDSN+"="+b.dsn, victimWay+"="+way)
	out, err := victim.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1 || b.ctx.Err() != nil) {
		b.t.Fatalf("%s: the victim failed in its own way: %v: %s", way, err, out)
	}
	return err
}

// What ends every process that tries it is parked by one that does not try it any more.
func TestEventThatEndsItsProcessIsParked(t *testing.T) {
	t.Parallel()
	for _, way := range []string{deadly, forever} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			mustParkWhatKills(t, way)
		})
	}
}

func mustParkWhatKills(t *testing.T, way string) {
	b := setup(t, pgstore.Options{})
	b.append("a", 20)
	deaths := 0
	for ; b.try(way) != nil; deaths++ {
		if deaths > 10 {
			t.Fatalf("%d processes died", deaths)
		}
		if letters := b.letters("p"); len(letters) != 0 {
			t.Fatalf("parked after %d deaths: %v", deaths, letters)
		}
	}
	// Three deaths make it suspect, and of the attempts that are counted then, one and three retries, all are deadly.
	if deaths != 7 {
		t.Errorf("%d processes died, want 7", deaths)
	}
	letters := b.letters("p")
	if len(letters) != 1 || letters[0].Position != fifth || letters[0].Attempts != 4 || letters[0].Error != projection.ErrProcessDied.Error() {
		t.Errorf("dead letters %+v", letters)
	}
	b.verify("p", fifth)
}

// A dead letter that ends the process of whoever replays it is given up, and everything else goes on.
func TestDeadLetterThatEndsItsProcessIsGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.append("a", 20)
	b.idle(millrace.Projection{Name: "p", Handler: pgstore.Batch(failsAt("p", only(fifth), func(_ context.Context, _ pgx.Tx, _ int, position int64) error {
		return projection.At(position, projection.Park(errOnPurpose))
	}))})
	outcome := make(chan projection.CommandResult, 1)
	go func() {
		o, err := b.store.DeadLetters(projection.ID{Name: "p"}).Replay(b.ctx, projection.DeadLetterFilter{All: true}, 10)
		if err != nil {
			t.Error(err)
		}
		outcome <- o
	}()
	b.eventually("the command is given", func() bool {
		var open int
		return b.store.Pool().QueryRow(b.ctx, "select count(*) from millrace.commands").Scan(&open) == nil && open == 1
	})
	deaths := 0
	for ; b.try(replayed) != nil; deaths++ {
		if deaths > 5 {
			t.Fatalf("%d processes died", deaths)
		}
	}
	if deaths < 1 || deaths > 3 {
		t.Errorf("%d processes died, want 1 to 3", deaths)
	}
	if o := <-outcome; o.Done != 0 || o.Failed != 1 {
		t.Errorf("replayed %+v", o)
	}
	letters := b.letters("p")
	if len(letters) != 1 || letters[0].Position != fifth || letters[0].Attempts != 2 || letters[0].Replays != 1 || letters[0].Error != projection.ErrProcessDied.Error() {
		t.Errorf("dead letters %+v", letters)
	}
	b.append("a", 5)
	b.idle(several("p")...)
	b.verify("p", fifth)
}

func TestKilledProcessAppliesEverythingOnce(t *testing.T) {
	t.Parallel()
	for way := range ways {
		if way == deadly || way == forever || way == replayed {
			continue
		}
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := setup(t, pgstore.Options{})
			b.append("a", 300)
			for range 2 {
				b.kill(way)
				var checkpoint, applied, beyond int64
				err := b.store.Pool().QueryRow(b.ctx, `select checkpoint, (select count(*) from applied),
					(select count(*) from applied where position > checkpoint) from millrace.leases`).Scan(&checkpoint, &applied, &beyond)
				if err != nil {
					t.Fatal(err)
				}
				if way != outside && (beyond != 0 || applied != checkpoint || applied == 0) {
					t.Errorf("%d events applied at checkpoint %d, %d of them beyond it", applied, checkpoint, beyond)
				}
			}
			if _, err := b.runtime(quick, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))}).RunUntilIdle(b.ctx); err != nil {
				t.Fatal(err)
			}
			if way != outside {
				b.verify("p")
			} else if b.check("p") == nil {
				t.Error("the check does not notice what was applied twice")
			}
		})
	}
}

// flaws are what the infrastructure does to a handler for a while.
var flaws = map[string]func(ctx context.Context, tx pgx.Tx) error{
	"connection, wrapped without %w": func(ctx context.Context, tx pgx.Tx) error {
		return fmt.Errorf("no: %v", execute("select pg_terminate_backend(pg_backend_pid()); select 1")(ctx, tx))
	},
	"connection, swallowed": func(ctx context.Context, tx pgx.Tx) error {
		_ = execute("select pg_terminate_backend(pg_backend_pid()); select 1")(ctx, tx)
		return nil
	},
	"deadlock, swallowed": func(ctx context.Context, tx pgx.Tx) error {
		_ = raise("40P01")(ctx, tx)
		return nil
	},
	"serialization failure, wrapped without %w": func(ctx context.Context, tx pgx.Tx) error {
		return fmt.Errorf("no: %v", raise("40001")(ctx, tx))
	},
	"deadlock": raise("40P01"), "serialization failure": raise("40001"), "lock time-out": raise("55P03"),
	"disk full": raise("53100"), "read only": raise("25006"), "shutdown": raise("57P01"), "too many connections": raise("53300"),
}

func raise(state string) func(ctx context.Context, tx pgx.Tx) error {
	return execute("do $$ begin raise exception 'on purpose' using errcode = '" + state + "'; end $$")
}

func TestInfrastructureFaultsAreRetriedWithoutCounting(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "8")
	poison := b.append("a", 20).Positions[7]
	var projections []millrace.Projection
	for name, flaw := range flaws {
		var left atomic.Int64
		left.Store(4)
		projections = append(projections, millrace.Projection{Name: name, Retry: soon(-1), MaxEvents: 5,
			Handler: pgstore.Batch(failsAt(name, only(poison), func(ctx context.Context, tx pgx.Tx, _ int, _ int64) error {
				if left.Add(-1) >= 0 {
					return flaw(ctx, tx)
				}
				return nil
			}))})
	}
	b.idle(projections...)
	for name := range flaws {
		b.verify(name)
		if letters := b.letters(name); len(letters) != 0 {
			t.Errorf("%s: dead letters %v", name, letters)
		}
	}
}

func TestReadOnlyDatabaseParksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	dsn, err := pgtest.WithSetting(b.dsn, "default_transaction_read_only", "off")
	if err != nil {
		t.Fatal(err)
	}
	writer, err := pgstore.Open(b.ctx, dsn, pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	b.append("a", 10)
	p := millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p")), Retry: soon(-1)}
	rt := b.runtime(millrace.Config{HeartbeatInterval: 100 * time.Millisecond, LeaseDuration: time.Second}, p)
	b.start(rt)
	readOnly := func(value string) {
		for _, sql := range []string{
			"do $$ begin execute format('alter database %I set default_transaction_read_only = " + value + "', current_database()); end $$",
			"select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
		} {
			if _, err := writer.Pool().Exec(b.ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func() event.Appended {
		result, err := writer.Append(b.ctx, "b", event.Any, event.Event{Type: "counted"})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, 10); err != nil {
		t.Fatal(err)
	}
	readOnly("on")
	for range 5 {
		write()
	}
	b.eventually("the runtime notices", func() bool {
		_, err := rt.Status(b.ctx) // no connection of the pool's is let through that takes no writes
		return err != nil && strings.Contains(err.Error(), "default_transaction_read_only")
	})
	readOnly("off")
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, write().Positions[0]); err != nil {
		t.Fatal(err)
	}
	b.verify("p")
	if letters := b.letters("p"); len(letters) != 0 {
		t.Errorf("dead letters %v", letters)
	}
}

func TestManyProjectionsLeaveAServerThatIsAwayAlone(t *testing.T) {
	t.Parallel()
	const n = 300
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	config := b.store.Pool().Config()
	var connects, blocked atomic.Int64
	config.MaxConns = 8
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		connects.Add(1)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := pgstore.OpenPool(b.ctx, pool, pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	killed := make(chan struct{})
	var projections []millrace.Projection
	for i := range n {
		name := fmt.Sprint("p", i)
		projections = append(projections, millrace.Projection{Name: name, Retry: soon(-1), Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			blocked.Add(1)
			<-killed
			return recordIn(ctx, tx, name, events)
		})})
	}
	b.append("a", 3)
	rt := b.runtime(millrace.Config{Store: store}, projections...)
	defer b.start(rt)()
	b.eventually("batches are under way, and all others wait for their turn", func() bool {
		status, err := rt.Status(b.ctx)
		return err == nil && blocked.Load() > 0 && !slices.ContainsFunc(status.Projections, func(p millrace.ProjectionStatus) bool {
			return p.State != millrace.StateLive
		})
	})
	err = server.Kill()
	connects.Store(0)
	close(killed)
	b.eventually("every projection is told", func() bool { return connects.Load() > n/2 })
	<-time.After(time.Second)
	before := connects.Load()
	<-time.After(3 * time.Second)
	if more := connects.Load() - before; before > 2*n || more > n/3 {
		t.Errorf("%d connections tried, and %d more later: %d projections do not wait", before, more, n)
	}
	if err := errors.Join(err, server.StartAgain(b.ctx)); err != nil {
		t.Fatal(err)
	}
	for _, p := range projections {
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: p.Name}, 3); err != nil {
			t.Fatal(err)
		}
		b.verify(p.Name)
	}
	b.exec("do $$ begin if exists (select from millrace.dead_letters) then raise 'something is parked'; end if; end $$")
}
