package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

const testDeadline = 30 * time.Second

// show reads a setting of the session.
func show(ctx context.Context, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, name string) string {
	var value string
	if err := q.QueryRow(ctx, "select current_setting($1, true)", name).Scan(&value); err != nil {
		return err.Error()
	}
	return value
}

// settingIn runs a batch and returns what a setting was in its handler.
func (o *owner) settingIn(opts engine.ApplyOptions, name string) (value string) {
	o.t.Helper()
	err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		value = show(ctx, tx, name)
		return nil
	}), opts)
	if err != nil {
		o.t.Fatal(err)
	}
	o.refresh()
	mustAppend(o.t, o.store.tenant, "s", event.Any, someEvents(1)...)
	return value
}

func TestBatchAnnouncesItselfWithItsPid(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	conn := strange(t, o.store)
	announced := func() (pids []int32) {
		rows, err := conn.Query(testContext(t), `select pid from pg_locks where locktype = 'advisory' and objsubid = 2
			and database = (select oid from pg_database where datname = current_database())
			and classid::bigint = $1 and objid::bigint = $2 and granted`, int64(uint32(o.store.control.batchClass)), int64(o.lease.Row))
		if err == nil {
			pids, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		}
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	noError(t, o.apply(writeAnd(func(_ context.Context, tx pgx.Tx) error {
		if pids := announced(); len(pids) != 1 || uint32(pids[0]) != tx.Conn().PgConn().PID() {
			t.Errorf("announced are %v, want %d", pids, tx.Conn().PgConn().PID())
		}
		return nil
	}), engine.ApplyOptions{}))
	if pids := announced(); len(pids) != 0 {
		t.Errorf("announced after the batch: %v", pids)
	}
}

func TestBatchHasTimeoutsOfItsOwn(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	most := fmt.Sprintf("%dms", (7_250*time.Millisecond + afterDeadline).Milliseconds())
	for name, want := range map[string]string{
		"lock_timeout": "3625ms", "statement_timeout": most, "idle_in_transaction_session_timeout": most,
		"transaction_isolation": "read committed", "transaction_read_only": "off",
	} {
		if got := o.settingIn(engine.ApplyOptions{Timeout: 7_250 * time.Millisecond}, name); got != want {
			t.Errorf("%s is %q in the batch, want %q", name, got, want)
		}
		if strings.Contains(name, "timeout") {
			if after := show(testContext(t), o.store.pool, name); after != "0" {
				t.Errorf("%s is %q after the batch", name, after)
			}
		}
	}
}

// PL/pgSQL plans a function's statements again if the search path differs from that of the previous call.
func TestFenceIsNotPlannedAgainForAnotherTenant(t *testing.T) {
	t.Parallel()
	planned := 0
	store := newStore(t, connections(1), func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["log_planner_stats"] = "on"
		config.ConnConfig.RuntimeParams["client_min_messages"] = "log"
		config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
			if notice.Message == "PLANNER STATISTICS" {
				planned++
			}
		}
	})
	var owners []*owner
	for _, name := range []string{"a", "b"} {
		mustAppend(t, newTenant(t, store, name), "s", event.Any, someEvents(1)...)
		owners = append(owners, claimAs(t, store, name))
	}
	store.notify.close() // statements of notifications would be counted, too
	batch := func(o *owner) int {
		before := planned
		noError(t, store.port().apply(nil, engine.ApplyOptions{})(testContext(t),
			o.lease, engine.Batch{To: o.lease.Checkpoint}))
		return planned - before
	}
	const generic = 10 // the server plans a statement with its arguments until it keeps a generic plan
	for range generic {
		batch(owners[0])
	}
	same := batch(owners[0])
	if other := batch(owners[1]); other != same || same == 0 {
		t.Errorf("%d statements are planned for another tenant, %d for the same", other, same)
	}
}

func TestTimeoutAboveTheMaximumOfSettingsWorks(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	noError(t, o.apply(write, engine.ApplyOptions{Timeout: math.MaxInt64 / 2}))
	o.applied(1)
}

func TestBatchWithAsyncCommitDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for relaxed, want := range map[bool]string{true: "off", false: "on"} {
		if got := o.settingIn(engine.ApplyOptions{AsyncCommit: relaxed}, "synchronous_commit"); got != want {
			t.Errorf("relaxed %v: synchronous_commit is %q", relaxed, got)
		}
		if after := show(testContext(t), o.store.pool, "synchronous_commit"); after != "on" {
			t.Errorf("relaxed %v: synchronous_commit is %q after the batch", relaxed, after)
		}
	}
}

func TestAppendInABatchWithAsyncCommitWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	woken := wakeCount(t, o.store)
	noError(t, o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		if before := show(ctx, tx, "synchronous_commit"); before != "off" {
			t.Errorf("synchronous_commit is %q before the append", before)
		}
		if _, err := o.store.AppendTx(ctx, tx, "other", event.Any, someEvents(1)...); err != nil {
			return err
		}
		if after := show(ctx, tx, "synchronous_commit"); after != "on" {
			t.Errorf("synchronous_commit is %q after the append", after)
		}
		if woken(projection.DefaultTenant) != 0 {
			t.Error("woken before the commit")
		}
		return nil
	}), engine.ApplyOptions{AsyncCommit: true}))
	if woken(projection.DefaultTenant) != 1 || countEvents(t, o.store.tenant) != 2 {
		t.Errorf("woken %d times, %d events", woken(projection.DefaultTenant), countEvents(t, o.store.tenant))
	}
}

// locked locks rows of the read model in other connections, each until its release is called.
func locked(t *testing.T, o *owner, n int) (release []func()) {
	t.Helper()
	mustExec(t, o.store, "create table public.row (id int primary key, n int default 0)")
	for i := range n {
		mustExec(t, o.store, "insert into public.row values ($1)", i)
		conn := strange(t, o.store)
		must(conn.Exec(testContext(t), "begin; select * from public.row where id = "+string(rune('0'+i))+
			" for update"))(t)
		release = append(release, func() { _, _ = conn.Exec(context.Background(), "rollback") })
	}
	return release
}

func TestLockOfAnotherSessionDoesNotCount(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	release := locked(t, o, 1)
	for name, handler := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"passed on": sends("update public.row set n = n + 1"),
		"swallowed": func(ctx context.Context, tx pgx.Tx) error {
			_ = sends("update public.row set n = n + 1")(ctx, tx)
			return errors.New("could not")
		},
		"until the deadline": func(ctx context.Context, tx pgx.Tx) error {
			return sends("set local lock_timeout = 0; update public.row set n = n + 1")(ctx, tx)
		},
		"until the deadline and swallowed": func(ctx context.Context, tx pgx.Tx) error {
			_ = sends("set local lock_timeout = 0; update public.row set n = n + 1")(ctx, tx)
			return nil
		},
	} {
		err := o.apply(writeAnd(handler), engine.ApplyOptions{Timeout: 400 * time.Millisecond})
		if fault := classify(err); err == nil || fault.Class != faults.Infrastructure {
			t.Errorf("%s: %v", name, err)
		}
		o.untouched()
	}
	release[0]()
	noError(t, o.apply(writeAnd(sends("update public.row set n = n + 1")), engine.ApplyOptions{Timeout: testDeadline}))
	o.applied(1)
}

// Several lock waits, each too short for lock_timeout, end at the handler's deadline and not by statement_timeout:
// after that it could not be determined whether the session waited.
func TestManyLockWaitsInOneStatementDoNotCount(t *testing.T) {
	t.Parallel()
	const deadline = 2400 * time.Millisecond
	o := newOwner(t, 1)
	release := locked(t, o, 3)
	var group sync.WaitGroup
	defer group.Wait()
	for i := range release {
		group.Go(func() {
			<-time.After(time.Duration(i+1) * deadline * 3 / 8)
			release[i]()
		})
	}
	mustExec(t, o.store,
		"create function public.touch(i int) returns void language sql as $$ update public.row set n = n + 1 where id = i $$")
	err := o.apply(writeAnd(sends("select public.touch(i) from generate_series(0, 2) i")),
		engine.ApplyOptions{Timeout: deadline})
	wantClass(t, err, faults.Infrastructure)
	if !errors.Is(err, projection.ErrLockWait) {
		t.Error(err)
	}
	o.untouched()
}

func TestTimeoutIsNotCountedIfTheServerCannotBeAsked(t *testing.T) {
	t.Parallel()
	const most = 6
	s := pgtest.Private(t,
		pgtest.Options{
			Settings: map[string]string{"max_connections": fmt.Sprint(most), "superuser_reserved_connections": "1"},
		})
	// The batch has the only connection of the pool, so the server cannot be asked over the pool either.
	store := migrated(t, openStore(t, s.DSN("postgres"), Options{}, connections(1)))
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	o := claimAs(t, store, projection.DefaultTenant)
	hangs := func(ctx context.Context, _ pgx.Tx) error {
		<-ctx.Done()
		return ctx.Err()
	}
	wantClass(t, o.apply(writeAnd(hangs), engine.ApplyOptions{Timeout: 100 * time.Millisecond}), faults.Handler)
	var strangers []*pgx.Conn
	ctx := testContext(t)
	for int(store.pool.Stat().TotalConns())+len(strangers) < most {
		// A connection may fail because the server has not yet noticed that the connection which asked is gone.
		if conn, err := pgx.Connect(ctx, s.DSN("postgres")); err == nil {
			strangers = append(strangers, conn)
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	wantClass(t, o.apply(writeAnd(hangs), engine.ApplyOptions{Timeout: 100 * time.Millisecond}), faults.Infrastructure)
	for _, conn := range strangers {
		_ = conn.Close(testContext(t))
	}
	o.untouched()
}
