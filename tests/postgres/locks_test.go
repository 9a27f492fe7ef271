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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Lock waits and conflicts are not counted, however often they recur, and the event is applied in the end.
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
		"deadline, without a lock timeout": func(ctx context.Context, tx kit.Tx) error {
			return errors.Join(tx.Exec(ctx, "set local lock_timeout = 0"),
				tx.Exec(ctx, "update model set n = 1 where id = 1"))
		},
		"deadline, in savepoints": func(ctx context.Context, tx kit.Tx) (err error) {
			for _, timeout := range []int{100, 100, 0} { // the last wait meets the deadline
				err = pgx.BeginFunc(ctx, pg(tx), func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx,
						fmt.Sprintf("set local lock_timeout = %d; update model set n = 1 where id = 1", timeout))
					return err
				})
				if err == nil {
					break
				}
			}
			return err
		},
		"40P01": func(ctx context.Context, tx kit.Tx) error {
			return dials(ctx, func(conn *pgx.Conn) error {
				if err := tx.Exec(ctx,
					"set local deadlock_timeout = 50; update model set n = 1 where id = 2"); err != nil {
					return err
				}
				if _, err := conn.Exec(ctx,
					"set deadlock_timeout = '1h'; begin; update model set n = 2 where id = 3"); err != nil {
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
				if _, err := conn.Exec(ctx,
					"begin isolation level repeatable read; select count(*) from strict"); err != nil {
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
	var asked atomic.Int64
	calls := make(map[string]*atomic.Int64)
	met := make(map[string]*atomic.Value)
	var projections []millrace.Projection
	for kind, fail := range kinds {
		n, last := new(atomic.Int64), new(atomic.Value)
		calls[kind], met[kind] = n, last
		timeout := time.Minute
		if strings.HasPrefix(kind, "deadline") {
			timeout = 600 * time.Millisecond
		}
		projections = append(projections, millrace.Projection{Name: kind,
			MaxEvents: 1, Timeout: timeout, Retry: kit.Soon(0), OnFailure: projection.ActionStop,
			FailureHandler: func(context.Context, projection.Failure) projection.Action {
				asked.Add(1)
				return projection.ActionStop
			},
			Handler: kit.Limited(b.Store.Batch(kit.FailsAt(kind, kit.Only(poison),
				func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
					if mended.Load() {
						return nil
					}
					n.Add(1)
					err := fail(ctx, tx)
					last.Store(fmt.Sprint(err))
					return projection.Skip(err) // not even the handler is asked
				})), faults.Limits{Faults: 1, Over: 1})})
	}
	rt := b.Running(millrace.Config{}, projections...)
	for kind, n := range calls {
		b.Eventually(kind+" is met again and again", func() bool { return n.Load() >= 5 })
		if code := kind[:5]; code != "deadl" && !strings.Contains(met[kind].Load().(string), code) {
			t.Errorf("%s: met %v", kind, met[kind].Load())
		}
		if s := b.Status(rt, kind); s.Parked+s.Skipped+int64(s.Attempts) != 0 || s.State == admin.StateFailed {
			t.Errorf("%s: counted: %+v", kind, s)
		}
	}
	mended.Store(true)
	release()
	for kind := range kinds {
		b.MustCatchUp(rt, kind)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("FailureHandler was asked %d times", n)
	}
}

// Lock waits of a replay are not counted either, and live events continue meanwhile.
func TestLockWaitOfAReplayIsNotCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	s := kit.NewParking(b.Bundle)
	b.exec("create table model (n int); insert into model values (0)")
	poison := s.At["a"][2]
	s.PoisonAt(poison)
	s.P.Timeout = 600 * time.Millisecond
	handle := s.Handle
	var waits atomic.Int64
	s.P.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
		if err := handle(ctx, tx, events); err != nil || events[0].Position != poison || len(events) > 1 {
			return err
		}
		waits.Add(1)
		return tx.Exec(ctx, "update model set n = n + 1")
	})
	rt := s.Running(millrace.Config{}, s.P)
	s.CatchUp(rt)
	release := b.lock("update model set n = -1")
	s.Mended.Store(true)
	replayed := s.Replaying("p")
	s.Eventually("the replay waits for the lock", func() bool { return waits.Load() >= 3 })
	s.More("b", "c")
	s.CatchUp(rt)
	if letters := s.DeadLettersOf("p"); letters[0].Attempts != 2 || letters[0].Replays != 0 {
		t.Errorf("counted: %+v", letters[0])
	}
	release()
	if o := <-replayed; o.Done != 8 || o.Failed != 0 {
		t.Errorf("replayed %+v", o)
	}
	s.MustHaveParked()
}

// cancelled is a handler whose statement is cancelled at the poison event, from another session, as often as asked.
func (b *bundle) cancelled(name string, poison int64, often int64, calls *atomic.Int64) kit.BatchFunc {
	return kit.FailsAt(name, kit.Only(poison), func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
		if batch == 1 && calls.Add(1) > often {
			return nil
		}
		pid := pg(tx).Conn().PgConn().PID()
		done := make(chan error, 1)
		stop, cancel := context.WithCancel(ctx)
		go func() {
			for stop.Err() == nil {
				// It may not have begun yet.
				_, _ = b.store.Pool().Exec(stop, "select pg_cancel_backend($1)", int32(pid))
				kit.Pass(stop, 1e6)
			}
			close(done)
		}()
		defer func() { cancel(); <-done }()
		return tx.Exec(ctx, "select pg_sleep(60)")
	})
}

// A statement that an operator cancels is no fault of the event. A statement that is cancelled each time is.
func TestCancelledStatementIsTriedOnceMoreAndThenCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.Append("a", 20).Positions[12]
	var once, twice, always atomic.Int64
	rt := b.Runtime(millrace.Config{},
		millrace.Projection{
			Name: "once", MaxEvents: 8, Retry: kit.Soon(0),
			Handler: b.Store.Batch(b.cancelled("once", poison, 1, &once)),
		},
		millrace.Projection{
			Name: "twice", MaxEvents: 8, Retry: kit.Soon(1),
			Handler: b.Store.Batch(b.cancelled("twice", poison, 2, &twice)),
		},
		millrace.Projection{Name: "always", OnFailure: projection.ActionPark, MaxEvents: 8, Retry: kit.Soon(1),
			Handler: b.Store.Batch(kit.FailsAt("always", kit.Only(poison),
				func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
					if batch == 1 {
						always.Add(1)
					}
					return tx.Exec(ctx, "set local statement_timeout = 20; select pg_sleep(60)")
				}))})
	b.RunUntilIdle(rt)
	b.Verify("once")
	b.Verify("twice")
	b.Verify("always", poison)
	if once.Load() != 2 || twice.Load() != 3 || always.Load() != 3 {
		t.Errorf("called for the event alone %d, %d and %d times, want 2, 3 and 3", once.Load(), twice.Load(),
			always.Load())
	}
	if letters := b.DeadLettersOf("always"); len(letters) != 1 || letters[0].Attempts != 2 ||
		!strings.Contains(letters[0].Error, "57014") {
		t.Errorf("parked %+v", letters)
	}
}

// A prepared statement that only the connection or only the server knows is no fault of the event.
func TestStaleStatementCachesCountAgainstNoEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table model (n int); insert into model values (1)")
	open := func(change func(config *pgxpool.Config)) *pgstore.Store {
		return b.open(kit.WithSetting(t, b.dsn, "pool_max_conns", "4"), change, pgstore.Options{SessionDSN: b.dsn})
	}
	for name, test := range map[string]struct {
		store  *pgstore.Store
		handle func(ctx context.Context, tx kit.Tx, e event.Envelope) error
	}{
		"26000": {open(func(config *pgxpool.Config) {
			config.AfterRelease = func(conn *pgx.Conn) bool {
				_, err := conn.Exec(context.Background(), "discard all", pgx.QueryExecModeSimpleProtocol)
				return err == nil
			}
		}), func(context.Context, kit.Tx, event.Envelope) error { return nil }},
		"0A000": {open(func(*pgxpool.Config) {}), func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if e.Version%5 == 0 {
				// A deployment changes the table between two batches, when all connections know the statement.
				if _, err := b.store.Pool().Exec(ctx, "alter table model add column if not exists c"+
					strings.Repeat("x", int(e.Version))+" int"); err != nil {
					return err
				}
			}
			rows, _ := pg(tx).Query(ctx, "select * from model")
			rows.Close()
			return rows.Err()
		}},
		"42P05": {open(func(*pgxpool.Config) {}), func(ctx context.Context, tx kit.Tx, _ event.Envelope) error {
			return tx.Exec(ctx, "do $$ begin execute 'prepare hidden as select 1'; end $$")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			b.Append(name, 20)
			var met atomic.Int64
			rt := b.Running(millrace.Config{Store: test.store},
				millrace.Projection{Name: name, MaxEvents: 1, Retry: kit.Soon(0),
					Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
						err := tx.Record(ctx, name, events...)
						if err == nil {
							err = test.handle(ctx, tx, events[0])
						}
						if err != nil && strings.Contains(err.Error(), name) {
							met.Add(1)
						}
						return err
					})})
			b.MustCatchUp(rt, name)
			if met.Load() == 0 {
				t.Error("it was never met: the test shows nothing")
			}
			t.Logf("met %d times", met.Load())
		})
	}
}
