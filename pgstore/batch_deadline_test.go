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

func TestDeadlineIsTheHandlersFault(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for name, handler := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"in a statement": sends("select pg_sleep(60)"),
		"outside": func(ctx context.Context, _ pgx.Tx) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), projection.ErrTimeout) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return ctx.Err()
		},
		"in a statement with less time": func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			return sends("select pg_sleep(60)")(ctx, tx)
		},
		"swallowed": func(ctx context.Context, tx pgx.Tx) error {
			_ = sends("select pg_sleep(60)")(ctx, tx)
			return nil
		},
	} {
		err := o.apply(writeAnd(handler), engine.ApplyOptions{Timeout: 200 * time.Millisecond})
		if fault := classify(err); err == nil || fault.Class != engine.HandlerFault {
			t.Errorf("%s: %v", name, err)
		}
		o.untouched()
	}
}

// A handler that only looks at the clock too late has done its work all the same.
func TestHandlerThatFinishesBehindItsDeadlineIsNotWasted(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	err := o.apply(writeAnd(func(ctx context.Context, _ pgx.Tx) error {
		<-ctx.Done()
		<-time.After(300 * time.Millisecond)
		return nil
	}), engine.ApplyOptions{Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	o.applied(1)
}

func TestHandlerThatIgnoresItsContextIsAbandoned(t *testing.T) {
	t.Parallel()
	store := onePool(t)
	o := claimAs(t, store, projection.DefaultTenant)
	release, late := make(chan struct{}), make(chan error, 1)
	began := time.Now()
	err := o.apply(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		if err := write(ctx, tx, events); err != nil {
			t.Error(err)
		}
		<-release
		late <- write(context.WithoutCancel(ctx), tx, events)
		return nil
	}, engine.ApplyOptions{Timeout: 100 * time.Millisecond})
	wantClass(t, err, engine.HandlerFault)
	if !errors.Is(err, projection.ErrAbandoned) || !errors.Is(err, projection.ErrTimeout) {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the handler was waited for %v", took)
	}
	if store.port().Abandoned() != 1 {
		t.Errorf("%d handlers abandoned", store.port().Abandoned())
	}
	// The pool of one connection has room again, while the handler still hangs.
	o.untouched()
	noError(t, o.apply(write, engine.ApplyOptions{}))
	close(release)
	if err := <-late; err == nil {
		t.Error("the handler could write after it was abandoned")
	}
	o.applied(1)
}

func TestEndOfTheRuntimeUnderAHandlerIsNobodysFault(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	ctx, cancel := context.WithCancel(testContext(t))
	events, err := o.pending()
	if err != nil {
		t.Fatal(err)
	}
	err = o.store.port().apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		cancel()
		return sends("select pg_sleep(60)")(ctx, tx)
	}), engine.ApplyOptions{Timeout: testDeadline})(ctx, o.lease, engine.Batch{Events: events, To: events[0].Position})
	wantClass(t, err, engine.Infrastructure)
	o.untouched()
}

// locked lets a stranger lock rows of the read model, each until its release is called.
func locked(t *testing.T, o *owner, n int) (release []func()) {
	t.Helper()
	mustExec(t, o.store, "create table public.row (id int primary key, n int default 0)")
	for i := range n {
		mustExec(t, o.store, "insert into public.row values ($1)", i)
		conn := strange(t, o.store)
		must(conn.Exec(testContext(t), "begin; select * from public.row where id = "+string(rune('0'+i))+" for update"))(t)
		release = append(release, func() { _, _ = conn.Exec(context.Background(), "rollback") })
	}
	return release
}

func TestStrangersLockIsNobodysFault(t *testing.T) {
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
		if fault := classify(err); err == nil || fault.Class != engine.Infrastructure {
			t.Errorf("%s: %v", name, err)
		}
		o.untouched()
	}
	release[0]()
	if err := o.apply(writeAnd(sends("update public.row set n = n + 1")), engine.ApplyOptions{Timeout: testDeadline}); err != nil {
		t.Error(err)
	}
	o.applied(1)
}

// Several waits, each too short for the time-out of locks, end at the deadline and not at the time-out of statements,
// with which it could not be told any more what the session waited for.
func TestManyWaitsForLocksInOneStatementAreNobodysFault(t *testing.T) {
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
	mustExec(t, o.store, "create function public.touch(i int) returns void language sql as $$ update public.row set n = n + 1 where id = i $$")
	err := o.apply(writeAnd(sends("select public.touch(i) from generate_series(0, 2) i")), engine.ApplyOptions{Timeout: deadline})
	wantClass(t, err, engine.Infrastructure)
	if !errors.Is(err, projection.ErrLockWait) {
		t.Error(err)
	}
	o.untouched()
}

func TestDeadlineWhenTheServerCannotBeAskedIsNotCounted(t *testing.T) {
	t.Parallel()
	const most = 6
	s := pgtest.Private(t, pgtest.Options{Settings: map[string]string{"max_connections": fmt.Sprint(most), "superuser_reserved_connections": "1"}})
	// The batch has the only connection of the pool, so that it cannot be asked over that either.
	store := migrated(t, openStore(t, s.DSN("postgres"), Options{}, connections(1)))
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	o := claimAs(t, store, projection.DefaultTenant)
	hangs := func(ctx context.Context, _ pgx.Tx) error {
		<-ctx.Done()
		return ctx.Err()
	}
	wantClass(t, o.apply(writeAnd(hangs), engine.ApplyOptions{Timeout: 100 * time.Millisecond}), engine.HandlerFault)
	var strangers []*pgx.Conn
	ctx := testContext(t)
	for int(store.pool.Stat().TotalConns())+len(strangers) < most {
		// One that fails came before the server noticed that the asking connection is gone.
		if conn, err := pgx.Connect(ctx, s.DSN("postgres")); err == nil {
			strangers = append(strangers, conn)
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	wantClass(t, o.apply(writeAnd(hangs), engine.ApplyOptions{Timeout: 100 * time.Millisecond}), engine.Infrastructure)
	for _, conn := range strangers {
		_ = conn.Close(testContext(t))
	}
	o.untouched()
}
