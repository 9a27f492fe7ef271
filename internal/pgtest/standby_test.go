package pgtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// standbyOf starts a standby and stops it at the end of the test.
func standbyOf(t *testing.T, primary *pgtest.Server, options pgtest.StandbyOptions) *pgtest.Server {
	t.Helper()
	standby, err := primary.Standby(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, standby)
	return standby
}

func TestStandbyIsInRecoveryAndFollows(t *testing.T) {
	t.Parallel()
	primary := pgtest.Private(t, pgtest.Options{Settings: map[string]string{"max_connections": "42"}})
	standby := standbyOf(t, primary, pgtest.StandbyOptions{})
	if got := ask(t, standby.DSN("postgres"), "select pg_is_in_recovery()"); got != "true" {
		t.Fatalf("pg_is_in_recovery() is %s", got)
	}
	if got := ask(t, standby.TCPDSN("postgres"), "show max_connections"); got != "42" {
		t.Errorf("max_connections is %s, want that of the primary", got)
	}
	ask(t, primary.DSN("postgres"), "create table t (n int)", "insert into t values (7)")
	until(t, "the row is on the standby", func() bool {
		return ask(t, standby.DSN("postgres"), "select count(*) from pg_class where relname = 't'") == "1"
	})
}

// A standby that starts during writes has all of them.
func TestStandbyOfABusyServerIsComplete(t *testing.T) {
	t.Parallel()
	primary := pgtest.Private(t, pgtest.Options{})
	ask(t, primary.DSN("postgres"), "create table t (n int primary key, filler text)",
		"create unlogged table u (n int)", "insert into u values (1)")
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan int)
	go func() {
		n := 0
		defer func() { written <- n }()
		conn, err := pgx.Connect(ctx, primary.DSN("postgres"))
		if err != nil {
			return
		}
		defer conn.Close(context.Background())
		for ; ctx.Err() == nil; n++ {
			if _, err := conn.Exec(context.Background(), "insert into t values ($1, repeat('x', 2000))",
				n); err != nil {
				return
			}
		}
	}()
	standby := standbyOf(t, primary, pgtest.StandbyOptions{})
	cancel()
	want := <-written
	try(t, primary.CatchUp(t.Context(), standby))
	if got := ask(t, standby.DSN("postgres"), "select count(*) || ' ' || count(distinct n) from t"); want == 0 ||
		got != fmt.Sprintf("%d %d", want, want) {
		t.Errorf("the standby has %s rows, want %d", got, want)
	}
}

// A detached and promoted standby lacks later commits of its primary. A standby of the new primary follows it.
func TestPromotedStandbyLosesLaterCommits(t *testing.T) {
	t.Parallel()
	old := pgtest.Private(t, pgtest.Options{})
	ask(t, old.DSN("postgres"), "create table t (n int)", "insert into t values (1)")
	next := standbyOf(t, old, pgtest.StandbyOptions{})
	try(t, old.CatchUp(t.Context(), next))
	try(t, next.Detach(t.Context()))
	ask(t, old.DSN("postgres"), "insert into t values (2)")
	try(t, next.Attach(t.Context()))
	try(t, old.CatchUp(t.Context(), next))
	try(t, next.Detach(t.Context()))
	ask(t, old.DSN("postgres"), "insert into t values (3)")
	try(t, old.Kill())
	try(t, next.Promote(t.Context()))
	ask(t, next.DSN("postgres"), "insert into t values (4)")
	try(t, old.Stop(t.Context()))
	third := standbyOf(t, next, pgtest.StandbyOptions{Name: "it's the third", Port: old.Port()})
	if third.Address() != old.Address() {
		t.Errorf("it listens on %s, want %s", third.Address(), old.Address())
	}
	try(t, next.CatchUp(t.Context(), third))
	for _, s := range []*pgtest.Server{next, third} {
		if got := ask(t, s.DSN("postgres"), "select string_agg(n::text, ',' order by n) from t"); got != "1,2,4" {
			t.Errorf("got %s, want 1,2,4", got)
		}
	}
	if got := ask(t, next.DSN("postgres"),
		"select application_name from pg_stat_replication"); got != "it's the third" {
		t.Errorf("the primary streams to %q", got)
	}
	try(t, next.Kill())
	try(t, third.Promote(t.Context()))
	ask(t, third.DSN("postgres"), "insert into t values (5)")
}

// A paused or delayed replay hides commits, and a promotion loses none that were received.
func TestStandbyLags(t *testing.T) {
	t.Parallel()
	primary := pgtest.Private(t, pgtest.Options{})
	ask(t, primary.DSN("postgres"), "create table t (n int)")
	delayed := standbyOf(t, primary, pgtest.StandbyOptions{Name: "delayed",
		Settings: map[string]string{"recovery_min_apply_delay": "1h"}})
	paused := standbyOf(t, primary, pgtest.StandbyOptions{Name: "paused"})
	try(t, primary.CatchUp(t.Context(), paused))
	ask(t, paused.DSN("postgres"), "select pg_wal_replay_pause()")
	ask(t, primary.DSN("postgres"), "insert into t values (1)")
	received := ask(t, primary.DSN("postgres"), "select pg_current_wal_lsn()::text")
	for _, standby := range []*pgtest.Server{delayed, paused} {
		until(t, "the commit is received", func() bool {
			return ask(t, standby.DSN("postgres"), "select pg_last_wal_receive_lsn() >= '"+received+"'") == "true"
		})
		if got := ask(t, standby.DSN("postgres"), "select count(*) from t"); got != "0" {
			t.Errorf("%s rows are shown", got)
		}
		try(t, standby.Detach(t.Context()))
		try(t, standby.Promote(t.Context()))
		if got := ask(t, standby.DSN("postgres"),
			"insert into t values (2) returning (select count(*) from t)"); got != "1" {
			t.Errorf("%s rows are there after the promotion, want 1", got)
		}
	}
}

// A synchronous standby loses no acknowledged commit, and its own standby delays no commit.
func TestSynchronousStandbyHasEachCommit(t *testing.T) {
	t.Parallel()
	primary := pgtest.Private(t, pgtest.Options{})
	ask(t, primary.DSN("postgres"), "create table t (n int)")
	standby := standbyOf(t, primary, pgtest.StandbyOptions{Name: "sync", Sync: true})
	ask(t, primary.DSN("postgres"), "insert into t values (1)")
	try(t, primary.Kill())
	try(t, standby.Promote(t.Context()))
	if got := ask(t, standby.DSN("postgres"), "select count(*) from t"); got != "1" {
		t.Errorf("%s rows, want 1", got)
	}
	ask(t, standbyOf(t, standby, pgtest.StandbyOptions{}).DSN("postgres"), "select 1")
	ask(t, standby.DSN("postgres"), "insert into t values (2)")
}

func TestHostsDSNFindsThePrimary(t *testing.T) {
	t.Parallel()
	primary := pgtest.Private(t, pgtest.Options{})
	standby := standbyOf(t, primary, pgtest.StandbyOptions{})
	for attrs, inRecovery := range map[string]string{"": "true", "any": "true", "read-write": "false"} {
		dsn := pgtest.HostsDSN("postgres", attrs, standby.Address(), primary.Address())
		if got := ask(t, dsn, "select pg_is_in_recovery()"); got != inRecovery {
			t.Errorf("%s: pg_is_in_recovery() is %s, want %s", dsn, got, inRecovery)
		}
	}
	try(t, primary.Kill())
	try(t, standby.Promote(t.Context()))
	ask(t, pgtest.HostsDSN("postgres", "read-write", primary.Address(), standby.Address()), "create table t (n int)")
}
