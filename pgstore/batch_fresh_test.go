package pgstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/projection"
)

// used makes n connections of the pool look used by batches, and returns their processes. They are idle.
func (o *owner) used(n int) (pids []uint32) {
	o.t.Helper()
	var conns []*pgxpool.Conn
	for range n {
		conn := must(o.store.pool.Acquire(testContext(o.t)))(o.t)
		must(session.Of(testContext(o.t), conn.Conn()))(o.t)
		conns, pids = append(conns, conn), append(pids, conn.Conn().PgConn().PID())
	}
	for _, conn := range conns {
		conn.Release()
	}
	return pids
}

// applyFresh applies what is pending on a connection that no batch has used. It returns the process of the connection.
func (o *owner) applyFresh(timeout time.Duration, then func()) (uint32, error) {
	o.t.Helper()
	events := must(o.pending())(o.t)
	batch := engine.Batch{Events: events, To: events[len(events)-1].Position, Fresh: true}
	var pid atomic.Uint32
	err := o.store.port().apply(writeAnd(func(_ context.Context, tx pgx.Tx) error {
		pid.Store(tx.Conn().PgConn().PID())
		then()
		return nil
	}), engine.ApplyOptions{Timeout: timeout})(testContext(o.t), o.lease, batch)
	o.refresh()
	return pid.Load(), err
}

// open counts which of these processes still serve a connection.
func (o *owner) open(pids ...uint32) int {
	o.t.Helper()
	return one[int](o.t, o.store, "select count(*) from pg_stat_activity where pid = any($1::bigint[])", pids)
}

func TestFreshConnectionLeavesThoseOfThePool(t *testing.T) {
	t.Parallel()
	var prepared sync.Map
	store := newStore(t, func(config *pgxpool.Config) {
		config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
			prepared.Store(conn.PgConn().PID(), true)
			return true, nil
		}
	})
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	o := claimAs(t, store, projection.DefaultTenant)
	used := o.used(6)
	hang := make(chan struct{})
	defer close(hang)
	check := func(name string, fresh uint32) {
		t.Helper()
		if _, known := prepared.Load(fresh); !known || slices.Contains(used, fresh) {
			t.Fatalf("%s: the batch got a used connection, or one that the pool's hook has not prepared", name)
		}
		if n := o.open(used...); n != len(used) {
			t.Errorf("%s: of %d idle connections of the pool %d are left", name, len(used), n)
		}
		for ctx := testContext(t); o.open(fresh) > 0; {
			if ctx.Err() != nil {
				t.Fatalf("%s: the connection of the batch stays open", name)
			}
		}
	}
	fresh, err := o.applyFresh(time.Second, func() { <-hang })
	if err == nil {
		t.Error("the handler does not return, and its batch was applied")
	}
	check("abandoned", fresh)
	check("applied", must(o.applyFresh(time.Minute, func() {}))(t))
}

// On a full server a batch gives up a used connection for a new one. If another client takes that place, it waits a
// short time, and then goes on with a used connection.
func TestFreshConnectionOfAFullServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{Settings: map[string]string{"max_connections": "12",
		"superuser_reserved_connections": "0", "max_wal_senders": "0"}})
	var attempts atomic.Int64
	attempted := func() {}
	store := migrated(t, openStore(t, server.DSN("postgres"), Options{NoNotify: true}, func(config *pgxpool.Config) {
		config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			attempts.Add(1)
			attempted()
			return nil
		}
	}))
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	o := claimAs(t, store, projection.DefaultTenant)
	used := o.used(6)
	takePlace := func() (taken bool) {
		conn, err := pgx.ConnectConfig(testContext(t), store.pool.Config().ConnConfig)
		if pgerr.Is(err, pgerr.TooManyConnections) {
			return false
		}
		noError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return true
	}
	for takePlace() {
	}
	attempts.Store(0)
	fresh := must(o.applyFresh(time.Minute, func() {}))(t)
	if slices.Contains(used, fresh) {
		t.Fatal("the batch got a used connection although it could have had a place")
	}
	if n := o.open(used...); n != len(used)-1 {
		t.Errorf("of %d idle connections of the pool %d are left", len(used), n)
	}

	for o.open(fresh) > 0 { // it closes meanwhile
	}
	for takePlace() {
	}
	attempts.Store(0)
	attempted = func() {
		if attempts.Load() == 2 {
			for tries := 0; !takePlace() && tries < 1000; tries++ {
			}
		}
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if pid := must(o.applyFresh(time.Minute, func() {}))(t); !slices.Contains(used, pid) {
		t.Errorf("the batch ran on connection %d, which the server did not have", pid)
	}
	if n := attempts.Load(); n < 2 || n > 20 {
		t.Errorf("%d attempts to connect to a full server", n)
	}
}
