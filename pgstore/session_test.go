package pgstore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

func aNode() engine.Node {
	return engine.Node{ID: uuid.NewString(), Projections: []string{"p"}, LeaseDuration: time.Minute}
}

// connect opens a session that is closed at the end of the test.
func connect(t *testing.T, store *Store, node engine.Node) (engine.Session, error) {
	t.Helper()
	session, err := store.port().Connect(testContext(t), node)
	if err == nil {
		t.Cleanup(func() { _ = session.Close(testContext(t)) })
	}
	return session, err
}

// lingering holds a node's session lock as its previous session does when the server has not noticed that it is gone.
func lingering(t *testing.T, store *Store, node engine.Node) *pgx.Conn {
	t.Helper()
	conn := strange(t, store)
	var locked bool
	key := lockKey("millrace node " + store.control.name + " " + node.ID)
	if err := conn.QueryRow(testContext(t), "select pg_try_advisory_lock($1)", key).Scan(&locked); err != nil ||
		!locked {
		t.Fatalf("locked %v, %v", locked, err)
	}
	return conn
}

func TestNodeEndsItsPreviousSessionThatHoldsItsLock(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	node, another := aNode(), aNode()
	old, foreign := lingering(t, store, node), lingering(t, store, another)
	_, err := connect(t, store, node)
	if fault := wantClass(t, err, faults.Infrastructure); fault.Unreachable ||
		!strings.Contains(err.Error(), "previous session still held") {
		t.Errorf("the first try says: %v", err)
	}
	if err := old.Ping(testContext(t)); err == nil {
		t.Error("the previous session lives")
	}
	// The server releases the session's lock a moment after the session has ended.
	ctx, cancel := context.WithTimeout(testContext(t), hangs)
	defer cancel()
	for _, err = connect(t, store, node); err != nil; _, err = connect(t, store, node) {
		if ctx.Err() != nil {
			t.Fatalf("the node gets no session: %v", err)
		}
		pause(ctx, 10*time.Millisecond)
	}
	if err := foreign.Ping(testContext(t)); err != nil {
		t.Errorf("another node's session was ended: %v", err)
	}
}

// The role of the node may have changed meanwhile.
func TestNodeRunsWithoutItsLockIfItMayNotEndItsPreviousSession(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, `do $$ begin if to_regrole('millrace_lesser') is null then create role millrace_lesser; end if;
		exception when duplicate_object or unique_violation then null; end $$`)
	mustExec(t, store,
		"grant usage on schema millrace to millrace_lesser; grant all on all tables in schema millrace to millrace_lesser")
	node := aNode()
	old := lingering(t, store, node)
	dsn := must(pgtest.WithSetting(store.pool.Config().ConnString(), "options", "-c role=millrace_lesser"))(t)
	lesser := openStore(t, store.pool.Config().ConnString(), Options{SessionDSN: dsn})
	session := must(connect(t, lesser, node))(t)
	noError(t, session.Heartbeat(testContext(t), &engine.NodeSummary{}))
	if err := old.Ping(testContext(t)); err != nil {
		t.Errorf("the session of another role was ended: %v", err)
	}
}

// rotating makes a pool whose connections can be opened only by its BeforeConnect hook, and only while works is true.
func rotating(works *atomic.Bool) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) {
		right := config.ConnConfig.Database
		config.ConnConfig.Database = "rotated_away"
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			if !works.Load() {
				return errors.New("no credentials at the moment")
			}
			c.Database = right
			return nil
		}
	}
}

func TestSessionIsOpenedAsThePoolOpensItsConnections(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	works.Store(true)
	store := onePool(t, rotating(&works))
	session := must(connect(t, store, aNode()))(t)
	noError(t, session.Heartbeat(testContext(t), &engine.NodeSummary{}))
	works.Store(false)
	if _, err := connect(t, store, aNode()); err == nil ||
		!strings.Contains(err.Error(), "no credentials at the moment") {
		t.Errorf("what BeforeConnect says is not passed on: %v", err)
	}
}

// hang is a handler that exceeds its timeout without waiting for a lock, so it is at fault.
func hang(ctx context.Context, _ pgx.Tx, _ []event.Envelope) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestLockWaitIsCheckedOverAConnectionLikeThePools(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	works.Store(true)
	store := onePool(t, rotating(&works)) // whose one connection is the batch's
	err := claimAs(t, store, projection.DefaultTenant).apply(hang, engine.ApplyOptions{Timeout: 50 * time.Millisecond})
	wantClass(t, err, faults.Handler)
	if !errors.Is(err, projection.ErrTimeout) {
		t.Error(err)
	}
}

func TestLockWaitIsCheckedThroughThePoolIfNoConnectionCanBeOpened(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	works.Store(true)
	ctx, dsn := testContext(t), pgtest.Database(t)
	migrated(t, openStore(t, dsn, Options{}))
	store := openStore(t, dsn, Options{}, rotating(&works), connections(2))
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	o := claimAs(t, store, projection.DefaultTenant)
	var both []*pgxpool.Conn // one for the batch, one for the question
	for range 2 {
		conn := must(store.pool.Acquire(ctx))(t)
		both = append(both, conn)
	}
	for _, conn := range both {
		conn.Release()
	}
	works.Store(false)
	err := o.apply(hang, engine.ApplyOptions{Timeout: 50 * time.Millisecond})
	wantClass(t, err, faults.Handler)
	if !errors.Is(err, projection.ErrTimeout) {
		t.Error(err)
	}
}
