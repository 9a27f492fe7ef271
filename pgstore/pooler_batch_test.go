package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

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

// What a session was belongs to the session and not to the client that gets it for a transaction.
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

func TestStrangersLockBehindAPoolerIsNobodysFault(t *testing.T) {
	t.Parallel()
	through, around := behind(t, pgtest.PgBouncerOptions{PoolSize: 4})
	direct := migrated(t, openStore(t, around, Options{}))
	makeModel(t, direct)
	mustAppend(t, direct.tenant, "s", event.Any, someEvents(1)...)
	locked(t, claimAs(t, direct, projection.DefaultTenant), 1)
	for name, options := range map[string]Options{"asked through the pooler": {}, "asked around it": {SessionDSN: around}} {
		store, err := Open(testContext(t), through, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		o := claimAs(t, store, projection.DefaultTenant)
		err = o.apply(writeAnd(sends("set local lock_timeout = 0; update public.row set n = n + 1")), engine.ApplyOptions{Timeout: 400 * time.Millisecond})
		if fault := classify(err); err == nil || fault.Class != engine.Infrastructure || !errors.Is(err, projection.ErrLockWait) {
			t.Errorf("%s: %v", name, err)
		}
		err = o.apply(writeAnd(sends("select pg_sleep(60)")), engine.ApplyOptions{Timeout: 400 * time.Millisecond})
		if fault := classify(err); err == nil || fault.Class != engine.HandlerFault || !errors.Is(err, projection.ErrTimeout) {
			t.Errorf("%s, without a lock: %v", name, err)
		}
		o.untouched()
	}
}

// What is left of a dead owner's batch is ended by the session that the server knows, whatever its client was told.
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
				if err == nil {
					o.lease, err = reload(testContext(t), store, o.lease)
				}
				if err == nil {
					_, err = tenant.Append(testContext(t), "s", event.Any, someEvents(1)...)
				}
				if err != nil {
					t.Errorf("tenant %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	for i := range tenants {
		if n := one[int](t, store, fmt.Sprintf("select count(*) from millrace_t%d.seen where n = %d", i, i)); n != rounds {
			t.Errorf("tenant %d has %d rows", i, n)
		}
	}
}

func TestTransactionEndedBehindTheBatchIsNoticedBehindAPooler(t *testing.T) {
	t.Parallel()
	store, _ := oneSession(t)
	o := claimAs(t, store, projection.DefaultTenant)
	for _, sql := range []string{"rollback", "commit", "commit; begin", "commit and chain"} {
		err := o.apply(writeAnd(sendsRaw(sql)), engine.ApplyOptions{})
		wantClass(t, err, engine.HandlerFault)
		if !errors.Is(err, ErrBatchEnded) {
			t.Errorf("%s: %v", sql, err)
		}
		if o.checkpoint() != o.lease.Checkpoint {
			t.Errorf("%s: the checkpoint moved", sql)
		}
	}
	mustExec(t, store, "truncate public.model")
	noError(t, o.apply(write, engine.ApplyOptions{}))
	o.applied(1)
}
