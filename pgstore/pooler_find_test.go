package pgstore

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/session"
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
	err = conn.QueryRow(testContext(t), `select (select count(*) from pg_listening_channels()), (select count(*) from pg_prepared_statements where name <> ''),
		(select count(*) from pg_settings where name like 'tcp_keepalives%' and source = 'session')`, pgx.QueryExecModeExec).Scan(&channels, &statements, &changed)
	if err != nil || channels+statements+changed > 0 {
		t.Errorf("%d channels, %d prepared statements and %d settings are left in the pooled session (%v)", channels, statements, changed, err)
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
