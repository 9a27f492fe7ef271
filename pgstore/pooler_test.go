package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/projection"
)

func dialer(dsn string) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, dsn) }
}

// found is what session.FindPooling finds on a connection to one, with second connections to another.
func found(t *testing.T, one, other string) session.Pooling {
	t.Helper()
	conn := must(pgx.Connect(testContext(t), one))(t)
	defer func() { _ = conn.Close(testContext(t)) }()
	p := must(session.FindPooling(testContext(t), conn, dialer(other)))(t)
	return p
}

func TestPoolerIsNoticedHoweverItLendsSessions(t *testing.T) {
	t.Parallel()
	want := session.Pooling{Lends: true, Forgets: true}
	for name, options := range map[string]pgtest.PgBouncerOptions{
		"one session":         {PoolSize: 1},
		"the last one first":  {},
		"the oldest first":    {Settings: map[string]string{"server_round_robin": "1"}},
		"sessions kept ready": {Settings: map[string]string{"min_pool_size": "5", "server_round_robin": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			through, _ := behind(t, options)
			for range 3 {
				if got := found(t, through, through); got != want {
					t.Fatalf("idle: got %+v", got)
				}
			}
			stop := keepBusy(t, through)
			defer stop()
			for range 3 {
				if got := found(t, through, through); got != want {
					t.Fatalf("busy: got %+v", got)
				}
			}
		})
	}
}

// keepBusy uses a pooler from a few connections until stop is called.
func keepBusy(t *testing.T, dsn string) (stop func()) {
	t.Helper()
	pool := must(pgxpool.New(testContext(t), dsn))(t)
	ctx, cancel := context.WithCancel(testContext(t))
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for ctx.Err() == nil {
				if _, err := pool.Exec(ctx, "select 1"); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
		pool.Close()
	}
}

// A pooler with several processes may never give the one connection's session to the other.
func TestPoolerOfSeveralProcessesIsNoticed(t *testing.T) {
	t.Parallel()
	around := pgtest.Database(t)
	config := must(pgx.ParseConfig(around))(t)
	one := pgtest.Pooler(t, around, pgtest.PgBouncerOptions{PoolSize: 1}).DSN(config.Database)
	other := pgtest.Pooler(t, around, pgtest.PgBouncerOptions{PoolSize: 1}).DSN(config.Database)
	if got, want := found(t, one, other), (session.Pooling{Lends: true, Forgets: true}); got != want {
		t.Errorf("got %+v", got)
	}
	leavesNothing(t, one)
}

// leavesNothing checks the one session of a pooler.
func leavesNothing(t *testing.T, through string) {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), through)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(testContext(t)) }()
	var channels, statements, changed int
	err = conn.QueryRow(testContext(t),
		`select (select count(*) from pg_listening_channels()), (select count(*) from pg_prepared_statements where name <> ''),
		(select count(*) from pg_settings where name like 'tcp_keepalives%' and source = 'session')`, pgx.QueryExecModeExec).Scan(&channels, &statements, &changed)
	if err != nil || channels+statements+changed > 0 {
		t.Errorf("%d channels, %d prepared statements and %d settings are left in the pooled session (%v)", channels,
			statements, changed, err)
	}
}

func TestPoolerThatHasNoSecondSessionIsTakenForOneThatLends(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{Mode: "session", PoolSize: 1})
	if got, want := found(t, through, through), (session.Pooling{Lends: true, Forgets: true}); got != want {
		t.Errorf("got %+v", got)
	}
}

// The session connection must not set anything in a session that serves others a moment later.
func TestSessionConnectionLeavesNothingInAPooledSession(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 1})
	store := openThrough(t, through)
	session := must(connect(t, store, aNode()))(t)
	if !session.Pooled() {
		t.Error("the pooler was not noticed")
	}
	leavesNothing(t, through)
}

func TestNoPoolerIsFoundWhereThereIsNone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	if got := found(t, dsn, dsn); got != (session.Pooling{}) {
		t.Errorf("got %+v", got)
	}
}

// behind returns two DSNs of a new database: through a pooler of its own, and directly.
func behind(t testing.TB, options pgtest.PgBouncerOptions) (through, around string) {
	t.Helper()
	around = pgtest.Database(t)
	config := must(pgx.ParseConfig(around))(t)
	return pgtest.Pooler(t, around, options).DSN(config.Database), around
}

// openThrough is a migrated store with a pool of its own.
func openThrough(t testing.TB, dsn string) *Store {
	t.Helper()
	dsn = must(pgtest.WithSetting(dsn, "pool_max_conns", "8"))(t)
	store := must(Open(testContext(t), dsn, Options{}))(t)
	t.Cleanup(store.Close)
	return migrated(t, store)
}

func TestAppendsAndBatchesWorkBehindAPoolerWithFewerSessionsThanClients(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 2})
	store := openThrough(t, through)
	exerciseStore(t, store)
}

// exerciseStore appends in every way from more goroutines than there are sessions, and runs batches.
func exerciseStore(t *testing.T, store *Store) {
	t.Helper()
	ctx := testContext(t)
	const writers, rounds = 8, 10
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range rounds {
				stream := fmt.Sprintf("s%d", w)
				if err := appendInEveryWay(ctx, store, stream, int64(3*i)); err != nil {
					t.Errorf("round %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	mustExec(t, store, "create table public.model (position bigint not null, at bigint generated always as identity)")
	o := claimAs(t, store, projection.DefaultTenant)
	noError(t, o.apply(writeAnd(usualStatements), engine.ApplyOptions{}))
	o.applied(3 * writers * rounds)
}

// appendInEveryWay appends three events after version.
func appendInEveryWay(ctx context.Context, store *Store, stream string, version int64) error {
	e := event.Event{Type: "Counted", Body: []byte(`{"n": 1}`)}
	key := fmt.Sprintf("%s-%d", stream, version)
	for range 2 {
		if _, err := store.Append(ctx, stream, event.Any.WithKey(key), e); err != nil {
			return fmt.Errorf("keyed: %w", err)
		}
	}
	if _, err := store.Append(ctx, stream, event.Exact(version+1), e); err != nil {
		return fmt.Errorf("exact: %w", err)
	}
	return store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := store.AppendTx(ctx, tx, stream, event.Any.WithKey(key+"-tx"), e); err != nil {
			return fmt.Errorf("in a transaction: %w", err)
		}
		return nil
	})
}

// usualStatements uses pgx as handlers do: the same statement twice, arguments whose types only the server knows, a
// pipelined batch, a copy.
func usualStatements(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx,
		"create temp table usual (id text, tags text[], body jsonb, price numeric, at timestamptz) on commit drop"); err != nil {
		return err
	}
	type status string
	const insert = "insert into usual (id, tags, body, price) values ($1, $2, $3, $4)"
	for i := range 2 {
		if _, err := tx.Exec(ctx, insert, status(fmt.Sprint("id", i)), []string{"a", "b"}, map[string]any{"n": i},
			1.25); err != nil {
			return fmt.Errorf("insert %d: %w", i, err)
		}
	}
	var batch pgx.Batch
	for i := range 2 {
		batch.Queue(insert, fmt.Sprint("batch", i), []string{}, []byte(`{"n": 1}`), 3)
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	rows := [][]any{{"copied", []string{"c"}, map[string]any{}, 4.5}}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"usual"}, []string{"id", "tags", "body", "price"},
		pgx.CopyFromRows(rows)); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for range 2 {
		var body map[string]any
		if err := tx.QueryRow(ctx, "select body from usual where id = $1", "id1").Scan(&body); err != nil ||
			body["n"] != 1.0 {
			return fmt.Errorf("body %v: %w", body, err)
		}
	}
	return nil
}

// openPool opens a store over a host's pool.
func openPool(t *testing.T, dsn string, mode pgx.QueryExecMode) (*Store, error) {
	t.Helper()
	config := must(pgxpool.ParseConfig(dsn))(t)
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 8
	pool := must(pgxpool.NewWithConfig(testContext(t), config))(t)
	t.Cleanup(pool.Close)
	store, err := OpenPool(testContext(t), pool, Options{})
	if err == nil {
		t.Cleanup(store.Close)
	}
	return store, err
}

func TestHostsPoolBehindAPoolerIsRefusedOrWorks(t *testing.T) {
	t.Parallel()
	for mode, works := range map[pgx.QueryExecMode]bool{
		pgx.QueryExecModeCacheStatement: false, pgx.QueryExecModeDescribeExec: false,
		pgx.QueryExecModeCacheDescribe: true, pgx.QueryExecModeExec: true, pgx.QueryExecModeSimpleProtocol: true,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 2})
			store, err := openPool(t, through, mode)
			if works {
				if err != nil {
					t.Fatal(err)
				}
				if !store.server.pooling.Lends {
					t.Error("the pooler was not noticed")
				}
				for i := range 3 {
					noError(t, appendInEveryWay(testContext(t), migrated(t, store), "s", int64(3*i)))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") ||
				!strings.Contains(err.Error(), "max_prepared_statements") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// pgx's default works, since the pooler gives prepared statements names of its own and makes them where they are
// missing.
func TestPoolerThatFollowsPreparedStatementsTakesPgxsDefault(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 2, FollowStatements: true})
	store := must(openPool(t, through, pgx.QueryExecModeCacheStatement))(t)
	if want := (session.Pooling{Lends: true}); store.server.pooling != want {
		t.Errorf("got %+v", store.server.pooling)
	}
	exerciseStore(t, migrated(t, store))
	if _, err := openPool(t, through, pgx.QueryExecModeDescribeExec); err == nil {
		t.Error("describe_exec uses the statement without a name, which is not followed, and is taken")
	}
}

// In session mode no other client changes the session, so pgx's caches stay valid.
func TestPoolerInSessionModeIsLikeNone(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{Mode: "session"})
	store := must(openPool(t, through, pgx.QueryExecModeCacheStatement))(t)
	if store.server.pooling.Lends {
		t.Error("session pooling is taken for transaction pooling")
	}
	exerciseStore(t, migrated(t, store))
	session := must(connect(t, store, aNode()))(t)
	if session.Pooled() {
		t.Error("the session connection has its session to itself, and does not know it")
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if notice, err := session.Next(testContext(t)); err != nil || notice.Tenant != projection.DefaultTenant {
		t.Errorf("got %+v, %v", notice, err)
	}
}

func TestPoolerInStatementModeIsRefused(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{Mode: "statement"})
	for name, open := range map[string]func() (*Store, error){
		"Open":     func() (*Store, error) { return Open(testContext(t), through, Options{}) },
		"OpenPool": func() (*Store, error) { return openPool(t, through, pgx.QueryExecModeExec) },
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), "statement pooling") ||
			!strings.Contains(err.Error(), "pool_mode=transaction") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The pooler is noticed on the pool, however the session connection gets to the server.
func TestSessionDSNLeadsAroundThePooler(t *testing.T) {
	t.Parallel()
	through, around := behind(t, pgtest.PgBouncerOptions{PoolSize: 2})
	store := must(Open(testContext(t), through, Options{SessionDSN: around}))(t)
	t.Cleanup(store.Close)
	migrated(t, store)
	session := must(connect(t, store, aNode()))(t)
	if !store.server.pooling.Lends || session.Pooled() {
		t.Errorf("pool %v, session %v", store.server.pooling.Lends, session.Pooled())
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if notice, err := session.Next(testContext(t)); err != nil || notice.Tenant != projection.DefaultTenant {
		t.Errorf("got %+v, %v", notice, err)
	}
}

// oneSession is a store with one event behind a pooler that has a single session, so that each use of it shows what the
// last one left. around leads to the database without the pooler.
func oneSession(t *testing.T) (store *Store, around string) {
	t.Helper()
	through, around := behind(t, pgtest.PgBouncerOptions{PoolSize: 1})
	store = openThrough(t, through)
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	return store, around
}

func TestNothingOfAHandlerLeaksToTheNextClientOfAPooledSession(t *testing.T) {
	t.Parallel()
	store, _ := oneSession(t)
	nothingLeaks(t, store)
}

// The settings of a session belong to that session, not to the client that gets it for a transaction.
func TestBatchLeavesAPooledSessionAsItFoundIt(t *testing.T) {
	t.Parallel()
	store, _ := oneSession(t)
	o := claimAs(t, store, projection.DefaultTenant)
	for _, found := range []string{"5MB", "7MB", "4MB"} {
		mustExec(t, store, "set work_mem = '"+found+"'")
		for end, handler := range map[string]func(ctx context.Context, tx pgx.Tx) error{
			"rollback": func(context.Context, pgx.Tx) error { return errors.New("on purpose") },
			"commit":   sends("select set_config('work_mem', '9MB', bool '0')"),
		} {
			_ = o.apply(writeAnd(handler), engine.ApplyOptions{})
			o.refresh()
			if got := one[string](t, store, "show work_mem"); got != found {
				t.Errorf("work_mem was %s, and is %s after a %s", found, got, end)
			}
			mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
		}
	}
}

func TestLockOfAnotherSessionBehindAPoolerDoesNotCount(t *testing.T) {
	t.Parallel()
	through, around := behind(t, pgtest.PgBouncerOptions{PoolSize: 4})
	direct := migrated(t, openStore(t, around, Options{}))
	makeModel(t, direct)
	mustAppend(t, direct.tenant, "s", event.Any, someEvents(1)...)
	locked(t, claimAs(t, direct, projection.DefaultTenant), 1)
	for name, options := range map[string]Options{"asked through the pooler": {},
		"asked around it": {SessionDSN: around}} {
		store, err := Open(testContext(t), through, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		o := claimAs(t, store, projection.DefaultTenant)
		err = o.apply(writeAnd(sends("set local lock_timeout = 0; update public.row set n = n + 1")),
			engine.ApplyOptions{Timeout: 400 * time.Millisecond})
		if fault := classify(err); err == nil || fault.Class != faults.Infrastructure ||
			!errors.Is(err, projection.ErrLockWait) {
			t.Errorf("%s: %v", name, err)
		}
		err = o.apply(writeAnd(sends("select pg_sleep(60)")), engine.ApplyOptions{Timeout: 400 * time.Millisecond})
		if fault := classify(err); err == nil || fault.Class != faults.Handler ||
			!errors.Is(err, projection.ErrTimeout) {
			t.Errorf("%s, without a lock: %v", name, err)
		}
		o.untouched()
	}
}

// A dead owner's batch is ended by the process id that the server knows, not by that of the client.
func TestClaimEndsTheBatchThatADeadOwnerLeftBehindAPooler(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 4})
	store := openThrough(t, through)
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(2)...)
	claimEndsLeftovers(t, store)
}

func TestManyBatchesShareAPoolersSessions(t *testing.T) {
	t.Parallel()
	through, _ := behind(t, pgtest.PgBouncerOptions{PoolSize: 2})
	store := openThrough(t, through)
	makeModel(t, store)
	const tenants, rounds = 4, 20
	var group sync.WaitGroup
	for i := range tenants {
		tenant := newTenant(t, store, fmt.Sprint("t", i))
		mustExec(t, store, fmt.Sprintf("create table millrace_t%d.seen (n int)", i))
		mustAppend(t, tenant, "s", event.Any, someEvents(1)...)
		o := claimAs(t, store, tenant.name)
		group.Go(func() {
			for range rounds {
				err := o.apply(func(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
					_, err := tx.Exec(ctx, "insert into seen values ($1)", i)
					return err
				}, engine.ApplyOptions{})
				if err != nil {
					t.Errorf("tenant %d: %v", i, err)
					return
				}
				o.lease, err = reload(testContext(t), store, o.lease)
				if err != nil {
					t.Errorf("tenant %d: %v", i, err)
					return
				}
				if _, err := tenant.Append(testContext(t), "s", event.Any, someEvents(1)...); err != nil {
					t.Errorf("tenant %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	for i := range tenants {
		if n := one[int](t, store, fmt.Sprintf("select count(*) from millrace_t%d.seen where n = %d",
			i, i)); n != rounds {
			t.Errorf("tenant %d has %d rows", i, n)
		}
	}
}

func TestTransactionEndedByTheHandlerIsNoticedBehindAPooler(t *testing.T) {
	t.Parallel()
	store, _ := oneSession(t)
	o := claimAs(t, store, projection.DefaultTenant)
	for _, sql := range []string{"rollback", "commit", "commit; begin", "commit and chain"} {
		wantBatchEnded(t, o, sql)
	}
	mustExec(t, store, "truncate public.model")
	noError(t, o.apply(write, engine.ApplyOptions{}))
	o.applied(1)
}
