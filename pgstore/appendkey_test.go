package pgstore

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

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

func TestWaitingRepeatAppendsIfTheFirstRollsBack(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{false, true} {
		t.Run(fmt.Sprintf("commit %v", commit), func(t *testing.T) {
			store := newStore(t)
			ctx := testContext(t)
			tx := must(store.pool.Begin(ctx))(t)
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
			if _, err := store.AppendTx(ctx, tx, "s", event.NoStream.WithKey("k"), someEvents(2)...); err != nil {
				t.Fatal(err)
			}
			waiting := make(chan event.Appended, 1)
			failed := make(chan error, 1)
			go func() {
				result, err := store.Append(ctx, "s", event.NoStream.WithKey("k"), someEvents(2)...)
				failed <- err
				waiting <- result
			}()
			waitBlocked(t, store, 1)
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			noError(t, end(ctx))
			noError(t, <-failed)
			if got := <-waiting; got.Repeated != commit || got.Version != 2 || len(got.Positions) != 2 {
				t.Errorf("got %+v", got)
			}
			if n := countEvents(t, store.tenant); n != 2 {
				t.Errorf("%d events", n)
			}
		})
	}
}

// keys counts the keys and the results that are kept.
func keys(t testing.TB, tenant *Tenant) (claims, results int) {
	t.Helper()
	q := sqltext.Name(tenant.schema)
	return one[int](t, tenant.store, "select count(*) from "+q+".append_keys"),
		one[int](t, tenant.store, "select count(*) from "+q+".append_results")
}

// age makes all keys older.
func age(t testing.TB, tenant *Tenant, by time.Duration) {
	t.Helper()
	mustExec(t, tenant.store, "update "+sqltext.Name(tenant.schema)+
		".append_keys set created_at = created_at - $1::interval", by)
}

// keyed appends an event with each of these keys.
func keyed(t testing.TB, tenant *Tenant, format string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		mustAppend(t, tenant, "s", event.Any.WithKey(fmt.Sprintf(format, i)), someEvents(1)...)
	}
}

func TestKeyedAppendsDeleteExpiredKeys(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const old = 200
	keyed(t, store.tenant, "old %d", 0, old)
	age(t, store.tenant, defaultKeyRetention-time.Minute)
	keyed(t, store.tenant, "new %d", 0, old)
	if claims, results := keys(t, store.tenant); claims != 2*old || results != 2*old {
		t.Fatalf("keys were deleted before their time: %d claims and %d results are left", claims, results)
	}
	age(t, store.tenant, time.Hour)
	for i := 0; ; i++ {
		if i > 100*expireEvery {
			t.Fatalf("after %d more appends with keys old ones are kept", i)
		}
		keyed(t, store.tenant, "newest %d", i, i+1)
		if claims, results := keys(t, store.tenant); claims == results && claims == old+i+1 {
			break
		} else if claims < old {
			t.Fatalf("%d claims are left, and %d results", claims, results)
		}
	}
	// What is not old is a repeat still.
	if got := mustAppend(t, store.tenant, "s", event.Any.WithKey("new 7"), someEvents(1)...); !got.Repeated {
		t.Error("a key that is not old was deleted")
	}
	if got := mustAppend(t, store.tenant, "s", event.Any.WithKey("old 7"), someEvents(1)...); got.Repeated {
		t.Error("a key that was deleted is a repeat")
	}
}

func TestKeysAreKeptForEverIfRequested(t *testing.T) {
	t.Parallel()
	store := migrated(t, openStore(t, pgtest.Database(t), Options{KeyRetention: -1}))
	keyed(t, store.tenant, "old %d", 0, 10)
	age(t, store.tenant, 1000*defaultKeyRetention)
	keyed(t, store.tenant, "new %d", 0, 10*expireEvery)
	if claims, _ := keys(t, store.tenant); claims != 10+10*expireEvery {
		t.Errorf("%d keys are left", claims)
	}
}

// expiring appends under a key in a way that deletes old ones.
func expiring(ctx context.Context, tenant *Tenant, q querier, stream, key string) (event.Appended, error) {
	a, err := tenant.newAppend(event.Appending{Stream: stream, Expected: event.Any.WithKey(key), Events: someEvents(1)})
	if err != nil {
		return event.Appended{}, err
	}
	a.expire = true
	return tenant.append(ctx, q, a, func() (event.Appended, error) { return tenant.appendOnce(ctx, q, a) })
}

// Each of them deletes keys that others of them repeat.
func TestAppendsThatDeleteEachOthersKeysDoNotDeadlock(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const callers, rounds, old = 8, 40, 20
	for round := range rounds {
		mustExec(t, store, "truncate millrace_default.append_keys, millrace_default.append_results")
		for i := range old {
			mustExec(t, store, "insert into millrace_default.append_keys values ($1, 's', now() - interval '1 year')",
				fmt.Sprint(i))
			mustExec(t, store, "insert into millrace_default.append_results values ($1, 1, 1)", fmt.Sprint(i))
		}
		noError(t, together(callers, func(i int) error {
			for n := range 5 {
				// Half of them use keys that are old, in different orders, half new ones.
				key := fmt.Sprint((i*7 + n*3 + round) % old)
				if i%2 == 0 {
					key = fmt.Sprintf("new %d %d", i, n)
				}
				if _, err := expiring(testContext(t), store.tenant, store.pool, "s", key); err != nil &&
					!errors.Is(err, event.ErrKeyReused) {
					return err
				}
			}
			return nil
		}))
	}
}

func TestExpiredKeysThatAreLockedAreLeftToOthers(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	keyed(t, store.tenant, "old %d", 0, 10)
	age(t, store.tenant, 2*defaultKeyRetention)
	tx := must(store.pool.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	must(expiring(ctx, store.tenant, tx, "other", "first"))(t)
	// That transaction has deleted them and stays open. The next one must not wait for it.
	must(expiring(ctx, store.tenant, store.pool, "s", "second"))(t)
	if claims, _ := keys(t, store.tenant); claims != 11 {
		t.Errorf("%d keys", claims)
	}
	noError(t, tx.Rollback(ctx))
	must(expiring(ctx, store.tenant, store.pool, "s", "third"))(t)
	if claims, results := keys(t, store.tenant); claims != 2 || results != 2 {
		t.Errorf("%d keys and %d results are left", claims, results)
	}
}

func TestRepeatableReadTransactionIsNotFailedByKeysThatOthersDelete(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	keyed(t, store.tenant, "old %d", 0, 10)
	age(t, store.tenant, 2*defaultKeyRetention)
	tx := must(store.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	must(tx.Exec(ctx, "select"))(t)
	must(expiring(ctx, store.tenant, store.pool, "s", "first"))(t)
	must(expiring(ctx, store.tenant, tx, "other", "second"))(t)
}

// meddler does something before statements that contain a text.
type meddler struct {
	text   string
	meddle func()
}

func (m *meddler) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, m.text) {
		m.meddle()
	}
	return ctx
}

func (*meddler) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestRepeatWhoseKeyIsDeletedMeanwhileAppends(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	other := migrated(t, openStore(t, dsn, Options{}))
	var meddled atomic.Int32
	m := &meddler{text: "array(select e.global_seq", meddle: func() {
		meddled.Add(1)
		mustExec(t, other, "delete from millrace_default.append_keys")
		mustExec(t, other, "delete from millrace_default.append_results")
	}}
	store := openStore(t, dsn, Options{}, func(config *pgxpool.Config) { config.ConnConfig.Tracer = m })
	keyed(t, other.tenant, "k%d", 0, 1)
	result, err := store.Append(testContext(t), "s", event.Any.WithKey("k0"), someEvents(1)...)
	if err != nil || result.Repeated || result.Version != 2 || meddled.Load() != 1 {
		t.Errorf("got %+v, %v; the key was deleted %d times", result, err, meddled.Load())
	}
}
