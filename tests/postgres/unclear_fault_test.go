package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// shortly are limits that a test can wait for.
var shortly = engine.FaultLimits{Faults: 4, Over: 300 * time.Millisecond}

// unclear are faults that a server reports, and that look like its own, with what their dead letters then say.
func (b *bundle) unclear() map[string]func(ctx context.Context, tx kit.Tx) error {
	deadPort := "do $$ begin raise exception 'could not connect' using errcode = '08001'; end $$"
	var available bool
	var version int
	if err := b.store.Pool().QueryRow(b.Ctx, `select exists (select from pg_available_extensions where name = 'dblink'),
		current_setting('server_version_num')::int`).Scan(&available, &version); err != nil {
		b.T.Fatal(err)
	}
	if available {
		b.exec("create extension dblink")
		deadPort = "select public.dblink_connect('host=127.0.0.1 port=1 connect_timeout=5')"
	}
	kinds := map[string]func(ctx context.Context, tx kit.Tx) error{
		"XX000": kit.Exec("do $$ begin raise exception 'bad input' using errcode = 'XX000'; end $$"),
		"08001": kit.Exec(deadPort),
		"53400": kit.Exec("set local work_mem = '64kB'; set local temp_file_limit = '64kB'; select count(*) from generate_series(1, 100000)"),
		"58P01": kit.Exec("select pg_read_file('/there/is/no/such/file')"),
		"25006": kit.Exec("set local transaction_read_only = on; insert into strict values (1)"),
		"57P01": kit.Exec("select pg_terminate_backend(pg_backend_pid())"),
	}
	if version >= 170000 {
		kinds["25P04"] = kit.Exec("set local transaction_timeout = 50; select pg_sleep(60)")
	} else {
		b.T.Run("25P04", func(t *testing.T) { t.Skip("transaction_timeout needs PostgreSQL 17") })
	}
	return kinds
}

// attempts of one event alone.
type attempts struct {
	calls       atomic.Int64
	first, last atomic.Int64 // by the clock
}

func (a *attempts) alone() {
	a.calls.Add(1)
	now := time.Now().UnixNano()
	a.first.CompareAndSwap(0, now)
	a.last.Store(now)
}

// An SQLSTATE is no verdict about the server. Others work on meanwhile.
func TestFaultsThatOnlyLookLikeTheServersAreTheirEventsInTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.Append("a", 30).Positions[12]
	last := b.Append("b", 30).Positions[29]
	kinds := b.unclear()
	tries := make(map[string]*attempts)
	var projections []millrace.Projection
	for kind, fail := range kinds {
		for _, form := range []string{"batch", "each", "deliver"} {
			name, a := kind+" "+form, new(attempts)
			tries[name] = a
			p := millrace.Projection{Name: name, MaxEvents: 16, Retry: kit.Soon(1)}
			handler := kit.FailsAt(name, kit.Only(poison), func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
				if batch == 1 {
					a.alone()
				}
				return fail(ctx, tx)
			})
			switch form {
			case "batch":
				p.Handler = b.Store.Batch(handler)
			case "each":
				p.Handler = b.Store.Each(kit.OneByOne(handler))
			default:
				p.Handler = millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
					return b.store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
						return handler(ctx, kit.PgTx{Tx: tx}, []event.Envelope{e.Envelope})
					})
				})
			}
			p.Handler = limited{p.Handler, shortly}
			projections = append(projections, p)
		}
	}
	log, logs := kit.Logs()
	rt := b.Runtime(millrace.Config{Logger: log}, projections...)
	b.RunUntilIdle(rt)
	for _, p := range projections {
		kind, form, _ := strings.Cut(p.Name, " ")
		b.Verify(p.Name, poison)
		letters, a := b.Letters(p.Name), tries[p.Name]
		if len(letters) != 1 || letters[0].Position != poison || letters[0].Attempts != 2 || !strings.Contains(letters[0].Error, kind) {
			t.Errorf("%s: parked %+v", p.Name, letters)
		}
		// Three are not counted, two are. A handler of single events is called for it in batches, too.
		if n := a.calls.Load(); n < 5 || n > 9 && form != "each" {
			t.Errorf("%s: called %d times for the event alone", p.Name, n)
		}
		if over := time.Duration(a.last.Load() - a.first.Load()); over < shortly.Over {
			t.Errorf("%s: parked after %v", p.Name, over)
		}
	}
	if err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: projections[0].Name}, last); err != nil {
		t.Error(err)
	}
	if n := logs.FilterMessage("database unusable, all actors wait").Len(); n != 0 {
		t.Errorf("the server was taken for away %d times", n)
	}
}

// A replay of a dead letter goes through the same decision.
func TestFaultOfAReplayThatOnlyLooksLikeTheServersIsCountedInTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 1)
	var replays atomic.Int64
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: limited{b.Store.Each(func(ctx context.Context, tx kit.Tx, _ event.Envelope) error {
		if replays.Add(1) == 1 {
			return projection.Park(kit.ErrOnPurpose)
		}
		return tx.Exec(ctx, "do $$ begin raise exception 'bad input' using errcode = 'XX000'; end $$")
	}), shortly}})
	b.Start(rt)
	b.Eventually("it is parked", func() bool { return b.Status(rt, "p").Parked == 1 })
	outcome, err := b.Store.DeadLetters(projection.ID{Name: "p"}).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 1)
	if err != nil || outcome.Failed != 1 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	letter := b.Letters("p")[0]
	if replays.Load() < 5 || letter.Attempts != 2 || letter.Replays != 1 || !strings.Contains(letter.Error, "XX000") {
		t.Errorf("called %d times; %+v", replays.Load(), letter)
	}
}

// What a server cannot do for many events it may do for few.
func TestFaultOfTheSizeOfABatchParksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 200)
	var failed, broadest atomic.Int64
	rt := b.Idle(millrace.Projection{Name: "p", MaxEvents: 64, Retry: kit.Soon(0),
		Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			sql := fmt.Sprintf("set local work_mem = '64kB'; set local temp_file_limit = '400kB'; select count(*) from generate_series(1, %d)", 1000*len(events))
			if err := tx.Exec(ctx, sql); err != nil {
				failed.Add(1)
				return err
			}
			broadest.Store(max(broadest.Load(), int64(len(events))))
			return tx.Record(ctx, "p", events...)
		})})

	b.Verify("p")
	if s := b.Status(rt, "p"); s.Parked != 0 || failed.Load() == 0 || broadest.Load() < 4 {
		t.Errorf("%d parked; %d batches failed, the largest that did not had %d events", s.Parked, failed.Load(), broadest.Load())
	}
}

// While one event is poison, everyone else sends nothing, and nothing is read anew.
func TestPoisonThatLooksLikeTheServersDisturbsNoOtherProjection(t *testing.T) {
	t.Parallel()
	const n = 100
	b := setup(t, pgstore.Options{})
	poison := b.Append("a", 3).Positions[2]
	store, traffic := b.watched()
	var calls atomic.Int64
	projections := []millrace.Projection{{Name: "poisoned", Handler: b.Store.Batch(kit.FailsAt("poisoned", kit.Only(poison), func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
		calls.Add(1)
		return tx.Exec(ctx, "do $$ begin raise exception 'bad input' using errcode = 'XX000'; end $$")
	}))}}
	for i := range n {
		name := fmt.Sprint("p", i)
		projections = append(projections, millrace.Projection{Name: name, Handler: b.Store.Batch(kit.Record(name))})
	}
	log, logs := kit.Logs()
	rt := b.Running(millrace.Config{Store: store, Logger: log}, projections...)
	for _, p := range projections[1:] {
		b.Reaches(rt, p.Name, poison)
	}
	b.Eventually("it has failed several times", func() bool { return calls.Load() >= 6 })
	before := calls.Load()
	sent := traffic.during(b.Ctx, 4*time.Second)
	tries := int(calls.Load() - before)
	// Each try is a batch, a probe and a look at the lease: some fifteen statements. The rest is the node's.
	if t.Logf("%d tries, %v", tries, sent); sent.statements > 60+25*(tries+1) {
		t.Errorf("%v in 4 s with %d tries:\n%s", sent, tries, strings.Join(sent.often, "\n"))
	}
	b.Eventually("it waits because of its event", func() bool {
		s := b.Status(rt, "poisoned")
		if s.Parked+int64(s.Attempts) != 0 {
			t.Fatalf("%+v", s)
		}
		return s.State == millrace.StateWaiting && strings.Contains(s.Reason, "XX000")
	})
	if n := logs.FilterMessage("database unusable, all actors wait").Len(); n != 0 {
		t.Errorf("the server was taken for away %d times", n)
	}
}

// What is nobody's fault is not counted however often it is met, and the event that met it is applied in the end.
func TestLockWaitsDeadlocksAndSerializationFailuresAreNeverCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table model (id int primary key, n int)")
	b.exec("insert into model select n, 0 from generate_series(1, 3) n")
	poison := b.Append("a", 5).Positions[2]
	b.Append("b", 5)
	release := b.lock("update model set n = -1 where id = 1")
	dials := func(ctx context.Context, do func(conn *pgx.Conn) error) error {
		conn, err := pgx.Connect(ctx, b.dsn)
		if err != nil {
			return err
		}
		return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
	}
	kinds := map[string]func(ctx context.Context, tx kit.Tx) error{
		"55P03":         kit.Exec("set local lock_timeout = 20; update model set n = 1 where id = 1"),
		"55P03 at once": kit.Exec("select from model where id = 1 for update nowait"),
		"deadline":      kit.Exec("update model set n = 1 where id = 1"),
		"40P01": func(ctx context.Context, tx kit.Tx) error {
			return dials(ctx, func(conn *pgx.Conn) error {
				if err := tx.Exec(ctx, "set local deadlock_timeout = 50; update model set n = 1 where id = 2"); err != nil {
					return err
				}
				if _, err := conn.Exec(ctx, "set deadlock_timeout = '1h'; begin; update model set n = 2 where id = 3"); err != nil {
					return err
				}
				waits := make(chan error, 1)
				go func() {
					_, err := conn.Exec(ctx, "update model set n = 2 where id = 2; commit")
					waits <- err
				}()
				defer func() { _ = conn.PgConn().Conn().Close(); <-waits }()
				return tx.Exec(ctx, "update model set n = 1 where id = 3")
			})
		},
		"40001": func(ctx context.Context, _ kit.Tx) error {
			return dials(ctx, func(conn *pgx.Conn) error {
				if _, err := conn.Exec(ctx, "begin isolation level repeatable read; select count(*) from strict"); err != nil {
					return err
				}
				if _, err := b.store.Pool().Exec(ctx, "update strict set a = a + 1"); err != nil {
					return err
				}
				_, err := conn.Exec(ctx, "update strict set a = a + 1")
				return err
			})
		},
	}
	b.exec("insert into strict values (1)")
	var mended atomic.Bool
	calls := make(map[string]*atomic.Int64)
	met := make(map[string]*atomic.Value)
	var projections []millrace.Projection
	for kind, fail := range kinds {
		n, last := new(atomic.Int64), new(atomic.Value)
		calls[kind], met[kind] = n, last
		timeout := time.Minute
		if kind == "deadline" {
			timeout = 600 * time.Millisecond
		}
		projections = append(projections, millrace.Projection{Name: kind, MaxEvents: 1, Timeout: timeout, Retry: kit.Soon(0),
			Handler: limited{b.Store.Batch(kit.FailsAt(kind, kit.Only(poison), func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
				if mended.Load() {
					return nil
				}
				n.Add(1)
				err := fail(ctx, tx)
				last.Store(fmt.Sprint(err))
				return err
			})), engine.FaultLimits{Faults: 1, Over: 1}}})
	}
	rt := b.Running(millrace.Config{}, projections...)
	for kind, n := range calls {
		b.Eventually(kind+" is met again and again", func() bool { return n.Load() >= 5 })
		if code := kind[:5]; code != "deadl" && !strings.Contains(met[kind].Load().(string), code) {
			t.Errorf("%s: met %v", kind, met[kind].Load())
		}
		if s := b.Status(rt, kind); s.Parked+int64(s.Attempts) != 0 {
			t.Errorf("%s: counted: %+v", kind, s)
		}
	}
	mended.Store(true)
	release()
	b.MustCatchUp(rt, "55P03", "55P03 at once", "deadline", "40P01", "40001")
}
