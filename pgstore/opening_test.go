package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// inTurn are two batches for one slot: the end of the first one may begin the second one, which is of another tenant.
type inTurn struct {
	*Store
	t             testing.TB
	first, second *owner
	// opening is that of the second batch. gone reports that it no longer waits, and passed whether it got the slot of
	// the first.
	opening      engine.Opening
	gone, passed bool
}

func (s *inTurn) Promise() engine.Opening { return s.opening }

func (s *inTurn) Pass() bool {
	s.passed = true
	return !s.gone
}

// newTurns has a pool of two connections, of which nothing but its batches uses any.
func newTurns(t testing.TB) *inTurn {
	t.Helper()
	store := openStore(t, migratedDatabase.Database(t), Options{NoNotify: true}, connections(2))
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	mustAppend(t, newTenant(t, store, "b"), "s", event.Any, someEvents(1)...)
	s := &inTurn{Store: store, t: t, first: claimAs(t, store, projection.DefaultTenant), second: claimAs(t, store, "b")}
	s.opens(engine.ApplyOptions{Timeout: testDeadline})
	t.Cleanup(func() { s.opening.Drop() }) // the pool waits for its connections to be returned
	return s
}

func (s *inTurn) opens(o engine.ApplyOptions) { s.opening = s.port().Opening(o)(s.second.lease) }

// applyIn runs a batch over the event of an owner.
func (o *owner) applyIn(ctx context.Context, h batchFunc, slot engine.Slot, opening engine.Opening) error {
	o.t.Helper()
	events, err := o.pending()
	noError(o.t, err)
	batch := engine.Batch{Events: events, To: events[len(events)-1].Position, Slot: slot, Opening: opening}
	return o.store.port().apply(h, engine.ApplyOptions{})(ctx, o.lease, batch)
}

// end runs the first batch, and follow the second one.
func (s *inTurn) end(h batchFunc) error {
	s.t.Helper()
	return s.first.applyIn(testContext(s.t), h, s, nil)
}

func (s *inTurn) follow(h batchFunc) error {
	s.t.Helper()
	return s.second.applyIn(testContext(s.t), h, nil, s.opening)
}

func (s *inTurn) begun() bool { return s.opening.(*batchTx).tx != nil }

// mustBegin checks whether the second batch was begun. Then it has the one connection that is in use.
func (s *inTurn) mustBegin(want bool) {
	s.t.Helper()
	if s.begun() != want || s.passed != want {
		s.t.Errorf("the second batch was begun: %v, passed on: %v, want %v", s.begun(), s.passed, want)
	}
	if n := s.pool.Stat().AcquiredConns(); want && n != 1 {
		s.t.Errorf("%d connections are in use", n)
	}
}

// mustRest waits until no transaction is open, no batch is announced, and no connection is in use: those that are
// closed end later.
func (s *inTurn) mustRest() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(testContext(s.t), hangs)
	defer cancel()
	for {
		inUse := s.pool.Stat().AcquiredConns()
		open := one[int](s.t, s.Store,
			`select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`)
		announced := one[int](s.t, s.Store,
			`select count(*) from pg_locks where locktype = 'advisory' and classid::bigint = $1
			and database = (select oid from pg_database where datname = current_database())`, int64(uint32(s.control.batchClass)))
		switch {
		case inUse == 0 && open == 0 && announced == 0:
			return
		case ctx.Err() != nil:
			s.t.Fatalf("%d connections are in use, %d transactions open, %d batches announced", inUse, open, announced)
		}
		pause(ctx, time.Millisecond)
	}
}

func (o *owner) mustAdvance(want bool) {
	o.t.Helper()
	written := one[int](o.t, o.store,
		"select count(*) from public.model where position = (select max(global_seq) from "+
			must(o.store.ForTenant(o.lease.ID.Tenant))(o.t).quoted+".events)")
	if advanced := o.checkpoint() > o.lease.Checkpoint; advanced != want {
		o.t.Errorf("%s: advanced %v, want %v, %d rows", o.lease.ID, advanced, want, written)
	}
}

func TestEndOfABatchBeginsTheNextOne(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	noError(t, s.end(write))
	s.mustBegin(true)
	s.first.mustAdvance(true)
	path, acquired := s.second.searchPath(), s.pool.Stat().AcquireCount()
	noError(t, s.second.applyIn(testContext(t), writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		for name, want := range map[string]string{"lock_timeout": "15s", "transaction_isolation": "read committed",
			"millrace.batch": s.opening.(*batchTx).name, "search_path": path} {
			if got := show(ctx, tx, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if n := s.pool.Stat().AcquireCount() - acquired; n != 1 { // the read of the pending events
			t.Errorf("%d further connections were acquired", n)
		}
		return nil
	}), nil, s.opening))
	s.second.mustAdvance(true)
	s.first.applied(2)
	s.opening.Drop() // does nothing any more
	s.mustRest()
}

// searchPath is that of the owner's handler.
func (o *owner) searchPath() (path string) {
	o.t.Helper()
	tenant := must(o.store.ForTenant(o.lease.ID.Tenant))(o.t)
	noError(o.t, tenant.InTx(testContext(o.t), func(ctx context.Context, tx pgx.Tx) error {
		path = show(ctx, tx, "search_path")
		return nil
	}))
	return path
}

func TestBatchThatFailsBeginsNoOther(t *testing.T) {
	t.Parallel()
	deferred := "create table public.parent (id int primary key); create table public.child (id int references public.parent deferrable initially deferred)"
	for name, fails := range map[string]struct {
		before  func(s *inTurn)
		handler func(ctx context.Context, tx pgx.Tx) error
		class   faults.Class
	}{
		"handler": {func(*inTurn) {}, sends("select 1/0"), faults.Handler},
		"commit": {
			func(s *inTurn) { mustExec(t, s.Store, deferred) }, sends("insert into public.child values (1)"),
			faults.Handler,
		},
		"lost lease": {func(s *inTurn) {
			mustExec(t, s.Store, "update millrace.leases set epoch = epoch + 1 where id = $1", s.first.lease.Row)
		}, nil, faults.LeaseLost},
		"ended":       {func(*inTurn) {}, sendsRaw("commit and chain"), faults.Handler},
		"aborted":     {func(*inTurn) {}, sendsRaw("rollback and chain"), faults.Handler},
		"own backend": {func(*inTurn) {}, sends("select pg_terminate_backend(pg_backend_pid())"), faults.Unclear},
		"open results": {
			func(*inTurn) {}, func(ctx context.Context,
				tx pgx.Tx) error {
				_, err := tx.Query(ctx, "select 1")
				return err
			}, faults.Handler,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTurns(t)
			handler := writeAnd(func(ctx context.Context, tx pgx.Tx) error {
				fails.before(s)
				if fails.handler == nil {
					return nil
				}
				return fails.handler(ctx, tx)
			})
			wantClass(t, s.end(handler), fails.class)
			s.mustBegin(false)
			s.mustRest()
			if s.first.checkpoint() != s.first.lease.Checkpoint {
				t.Error("the checkpoint of the first batch moved")
			}
			noError(t, s.follow(write))
			s.second.mustAdvance(true)
			s.mustRest()
		})
	}
}

func TestBatchIsDoneAlthoughTheNextOneCannotBegin(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	before := sessionState(t, s.Store)
	mustExec(t, s.Store, "update millrace.leases set epoch = epoch + 1 where id = $1", s.second.lease.Row)
	noError(t, s.end(writeAnd(sends("select pg_advisory_xact_lock(1); create temp table left_behind (n int)"))))
	s.mustBegin(false)
	s.first.mustAdvance(true)
	s.first.applied(1)
	s.mustRest()
	sameSession(t, s.Store, "after the refused begin", before)
	wantClass(t, s.follow(write), faults.LeaseLost)
	s.first.applied(1)
}

func TestBegunBatchThatNoLongerWaitsIsRolledBack(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	before := sessionState(t, s.Store)
	s.gone = true
	noError(t, s.end(write))
	if !s.passed || s.begun() {
		t.Errorf("passed on %v, begun %v", s.passed, s.begun())
	}
	s.first.mustAdvance(true)
	s.mustRest()
	sameSession(t, s.Store, "after the rollback", before)
}

func TestBegunBatchThatDoesNotRunIsRolledBack(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(s *inTurn){
		"dropped": func(s *inTurn) { s.opening.Drop() },
		"cancelled": func(s *inTurn) {
			ctx, cancel := context.WithCancel(testContext(t))
			cancel()
			if err := s.second.applyIn(ctx, write, nil, s.opening); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		},
		"failed": func(s *inTurn) {
			wantClass(t, s.follow(writeAnd(func(context.Context, pgx.Tx) error { return errors.New("on purpose") })),
				faults.Handler)
		},
		"connection lost": func(s *inTurn) {
			mustExec(t, s.Store, "select pg_terminate_backend($1)", int32(s.opening.(*batchTx).restore.PID))
			wantClass(t, s.follow(write), faults.Unclear)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTurns(t)
			s.t = t
			before := sessionState(t, s.Store)
			noError(t, s.end(write))
			s.mustBegin(true)
			ends(s)
			s.mustRest()
			sameSession(t, s.Store, name, before)
			s.first.applied(1)
			s.second.mustAdvance(false)
			noError(t, s.second.applyIn(testContext(t), write, nil, nil))
			s.first.applied(2)
		})
	}
}

// An operation that waits for the batches of a projection holds their advisory lock. It must not hold up the batch of
// another one.
func TestBatchDoesNotWaitForTheLockOfTheNextOne(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	operation := strange(t, s.Store)
	must(operation.Exec(testContext(t), "begin"))(t)
	must(operation.Exec(testContext(t), "select pg_advisory_xact_lock($1, $2)", s.control.batchClass,
		s.second.lease.Row))(t)
	noError(t, s.end(write))
	s.first.mustAdvance(true)
	s.mustBegin(false)
	must(operation.Exec(testContext(t), "rollback"))(t)
	s.mustRest()
	noError(t, s.follow(write))
}

func TestNothingOfAHandlerReachesTheBatchThatItsEndBegins(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	ways := leaks(t, s.Store)
	state := func(tx pgx.Tx) map[string]string {
		found := sessionStateIn(t, tx)
		delete(found, "pid")
		return found
	}
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		var clean, after map[string]string
		noError(t, s.second.applyIn(testContext(t),
			writeAnd(func(_ context.Context, tx pgx.Tx) error { clean = state(tx); return nil }), nil, nil))
		s.again()
		noError(t, s.end(writeAnd(ways[name])))
		if !s.begun() {
			t.Fatalf("%s: the second batch was not begun", name)
		}
		noError(t, s.follow(writeAnd(func(_ context.Context, tx pgx.Tx) error { after = state(tx); return nil })))
		if !maps.Equal(clean, after) {
			t.Errorf("%s: %v, want %v", name, after, clean)
		}
		s.again()
	}
}

// A goroutine that the handler of the first batch left behind has the transaction that the driver uses for the second
// one too.
func TestGoroutineLeftBehindDoesNotReachTheBatchThatFollows(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	var left pgx.Tx
	noError(t, s.end(writeAnd(func(_ context.Context, tx pgx.Tx) error {
		left = tx
		return nil
	})))
	s.mustBegin(true)
	noError(t, s.follow(writeAnd(func(ctx context.Context, _ pgx.Tx) error {
		if err := sends("insert into public.model (position) values (-1)")(ctx, left); !errors.Is(err,
			pgx.ErrTxClosed) {
			t.Error(err)
		}
		if _, err := left.Begin(ctx); !errors.Is(err, pgx.ErrTxClosed) {
			t.Error(err)
		}
		return nil
	})))
	s.first.applied(2)
}

// The driver's transaction would go on with the numbers of the savepoints.
func TestBatchWithSavepointsBeginsNoOther(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	noError(t,
		s.end(writeAnd(func(ctx context.Context, tx pgx.Tx) error { return pgx.BeginFunc(ctx, tx, sendsNothing) })))
	s.mustBegin(false)
	s.mustRest()
	s.first.mustAdvance(true)
}

func sendsNothing(pgx.Tx) error { return nil }

func TestConnectionReturnsToItsPoolWhereOthersMayNeedIt(t *testing.T) {
	t.Parallel()
	for name, inUse := range map[string]func(s *inTurn){
		"the pool has no other": func(s *inTurn) {
			conn := must(s.pool.Acquire(testContext(s.t)))(s.t)
			s.t.Cleanup(conn.Release)
		},
		"it was passed on for long": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := newTurns(t)
			s.t = t
			noError(t, s.end(writeAnd(func(context.Context, pgx.Tx) error {
				if inUse != nil {
					inUse(s)
				}
				return nil
			})))
			if inUse != nil {
				if s.begun() || s.passed {
					t.Error("the second batch was begun")
				}
				return
			}
			s.mustBegin(true)
			s.opening.(*batchTx).leased.since = time.Now().Add(-passedFor)
			third := &inTurn{Store: s.Store, t: t, first: s.second, second: s.first}
			s.first.refresh()
			third.opens(engine.ApplyOptions{Timeout: testDeadline})
			noError(t, s.second.applyIn(testContext(t), write, third, s.opening))
			third.mustBegin(false)
			s.mustRest()
		})
	}
}

func TestBatchesAreNotBegunInAdvanceWhereSessionsOrHooksForbidIt(t *testing.T) {
	t.Parallel()
	through, around := behind(t, pgtest.PgBouncerOptions{})
	hook := func(change func(*pgxpool.Config)) *Store { return openStore(t, around, Options{}, change) }
	for name, store := range map[string]*Store{
		"pooler": openThrough(t, through),
		"PrepareConn": hook(func(c *pgxpool.Config) {
			c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
		}),
		"BeforeAcquire": hook(func(c *pgxpool.Config) {
			//lint:ignore SA1019 the host's pool may still have it
			c.BeforeAcquire = func(context.Context, *pgx.Conn) bool { return true }
		}),
		"AfterRelease": hook(func(c *pgxpool.Config) { c.AfterRelease = func(*pgx.Conn) bool { return true } }),
	} {
		if store.port().Opening(engine.ApplyOptions{}) != nil {
			t.Errorf("%s: batches are begun in advance", name)
		}
	}
	if openStore(t, around, Options{}).port().Opening(engine.ApplyOptions{}) == nil {
		t.Error("no batch is begun in advance")
	}
}

// again appends another event for each of the two, after both batches.
func (s *inTurn) again() {
	s.t.Helper()
	for _, o := range []*owner{s.first, s.second} {
		o.refresh()
		mustAppend(s.t, must(s.ForTenant(o.lease.ID.Tenant))(s.t), fmt.Sprint("s", time.Now().UnixNano()), event.Any,
			someEvents(1)...)
	}
	s.passed = false
	s.opens(engine.ApplyOptions{Timeout: testDeadline})
}
