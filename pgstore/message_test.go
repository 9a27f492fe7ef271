package pgstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

type queueFunc = func(ctx context.Context, q Queue, events []event.Envelope) error

// queue runs one batch over all that is pending by a handler that queues. The lease stays as it is.
func (o *owner) queue(f queueFunc) error {
	o.t.Helper()
	return o.queueWithin(10*time.Second, f)
}

func (o *owner) queueWithin(timeout time.Duration, f queueFunc) error {
	o.t.Helper()
	events, err := o.pending()
	if err != nil || len(events) == 0 {
		o.t.Fatalf("there is nothing to apply: %v", err)
	}
	run := o.store.Engine().Apply(Queued(f).Engine(), engine.ApplyOptions{Timeout: timeout})
	return run(testContext(o.t), o.lease, engine.Batch{Events: events, To: events[len(events)-1].Position})
}

// queueWrites is write for a queue.
func queueWrites(_ context.Context, q Queue, events []event.Envelope) error {
	for _, e := range events {
		q.At(e).Exec("insert into public.model (position) values ($1)", e.Position)
	}
	return nil
}

// queuesToo queues what queueWrites does, and a statement for the event of an index after it.
func queuesToo(i int, sql string, args ...any) queueFunc {
	return func(ctx context.Context, q Queue, events []event.Envelope) error {
		err := queueWrites(ctx, q, events)
		q.At(events[i]).Exec(sql, args...)
		return err
	}
}

func TestQueuedBatchCommitsWithItsCheckpoint(t *testing.T) {
	o := newOwner(t, 3)
	noError(t, o.queue(queueWrites))
	o.applied(3)
	if err := o.queue(queueWrites); !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("from a checkpoint that has moved: %v", err)
	}
	o.applied(3)
}

func TestQueuedBatchWithoutItsLeaseCommitsNothing(t *testing.T) {
	for name, loses := range map[string]func(l *engine.Lease){
		"owner":       func(l *engine.Lease) { l.Owner = uuid.NewString() },
		"epoch":       func(l *engine.Lease) { l.Epoch++ },
		"incarnation": func(l *engine.Lease) { l.Incarnation++ },
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(t, 2)
			held := o.lease
			loses(&o.lease)
			if err := o.queue(queueWrites); err == nil {
				t.Error("no error")
			}
			o.lease = held
			o.untouched()
		})
	}
}

func TestQueuedStatementThatFailsNamesItsEvent(t *testing.T) {
	mustFail := func(class faults.Class, f queueFunc) func(t *testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			o := newOwner(t, 3)
			for range 2 { // the second time, the statements are prepared
				fault := wantClass(t, o.queueWithin(time.Second, f), class)
				if events, err := o.pending(); err != nil || fault.Position != events[1].Position {
					t.Errorf("position %d is named: %v", fault.Position, fault.Err)
				}
				o.untouched()
			}
			noError(t, o.queue(queueWrites))
			o.applied(3)
		}
	}
	t.Run("constraint", mustFail(faults.Handler,
		queuesToo(1, "insert into public.model (position) values (null)")))
	t.Run("division", mustFail(faults.Handler,
		queuesToo(1, "insert into public.model (position) values (1 / $1::integer)", 0)))
	t.Run("syntax", mustFail(faults.Handler, queuesToo(1, "insert nothing")))
	t.Run("two statements", mustFail(faults.Handler,
		queuesToo(1, "delete from public.model; delete from public.model")))
	t.Run("missing table", mustFail(faults.MissingObject, queuesToo(1, "insert into public.absent values (1)")))
	t.Run("serialization", mustFail(faults.Infrastructure,
		queuesToo(1, "do $$ begin raise exception 'again' using errcode = '40001'; end $$")))
	t.Run("argument", mustFail(faults.Handler,
		queuesToo(1, "insert into public.model (position) values ($1)", make(chan int))))
	t.Run("too many arguments", mustFail(faults.Handler,
		queuesToo(1, "insert into public.model (position) values (1)", 2)))
	t.Run("commit", mustFail(faults.Handler, queuesToo(1, "commit")))
	t.Run("copy", mustFail(faults.Handler, queuesToo(1, "/* all */ COPY public.model from stdin")))
	t.Run("copy out", mustFail(faults.Handler, queuesToo(1, "copy(select 1) to stdout")))
	t.Run("rows", mustFail(faults.Handler, func(ctx context.Context, q Queue, events []event.Envelope) error {
		q.At(events[1]).Expect(1).Exec("update public.model set position = 1 where position = -1")
		return queueWrites(ctx, q, events)
	}))
	t.Run("error of the handler", mustFail(faults.Handler,
		func(ctx context.Context, q Queue, events []event.Envelope) error {
			return errors.Join(queueWrites(ctx, q, events), projection.At(events[1].Position, io.EOF))
		}))
	t.Run("append", mustFail(faults.Configuration, func(ctx context.Context, q Queue, events []event.Envelope) error {
		return projection.At(events[1].Position, projection.ErrWithinTx)
	}))
}

func TestQueuedHandlerHasItsTimeLimitAndCannotAppend(t *testing.T) {
	o := newOwner(t, 1)
	late := o.queueWithin(20*time.Millisecond, func(ctx context.Context, _ Queue, _ []event.Envelope) error {
		<-ctx.Done()
		return ctx.Err()
	})
	wantClass(t, late, faults.Handler)
	if !errors.Is(late, projection.ErrTimeout) {
		t.Error(late)
	}
	var kept Queue
	err := o.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		kept = q
		_, err := o.store.Append(ctx, "s", event.Any, someEvents(1)...)
		return err
	})
	wantClass(t, err, faults.Configuration)
	if !errors.Is(err, projection.ErrWithinTx) {
		t.Error(err)
	}
	kept.Exec("insert into public.model (position) values (1)")
	o.untouched()
}

func TestQueuedStatementHasTheTimeLimitOfItsHandler(t *testing.T) {
	o := newOwner(t, 1)
	slow := o.queueWithin(500*time.Millisecond, queuesToo(0, "select pg_sleep(20)"))
	wantClass(t, slow, faults.Handler)
	if !errors.Is(slow, projection.ErrTimeout) {
		t.Error(slow)
	}
	// It waits for two locks in turn, each for less than the limit of a wait.
	ctx := testContext(t)
	for _, held := range []time.Duration{400 * time.Millisecond, 3 * time.Second} {
		tx, err := o.store.pool.Begin(ctx)
		noError(t, err)
		released := make(chan struct{})
		t.Cleanup(func() { <-released })
		_, err = tx.Exec(ctx, "select pg_advisory_xact_lock($1)", held.Milliseconds())
		noError(t, err)
		time.AfterFunc(held, func() {
			defer close(released)
			_ = tx.Rollback(context.WithoutCancel(ctx))
		})
	}
	waited := o.queueWithin(time.Second, queuesToo(0,
		"select pg_advisory_xact_lock(400), pg_sleep(0.3), pg_advisory_xact_lock(3000)"))
	if fault := wantClass(t, waited, faults.Infrastructure); !fault.Conflict {
		t.Errorf("%+v", fault)
	}
	o.untouched()
}

// Something may discard the prepared statements of a session, and change the tables that they were prepared for.
func TestQueuedStatementsArePreparedAnew(t *testing.T) {
	store := onePool(t)
	mustExec(t, store, "create table public.narrow (n smallint)")
	o := claimAs(t, store, projection.DefaultTenant)
	big := func(_ context.Context, q Queue, events []event.Envelope) error {
		q.At(events[0]).Exec("insert into public.narrow values ($1)", 100_000)
		return nil
	}
	next := func() {
		o.lease.Checkpoint = o.checkpoint()
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	}
	noError(t, o.queue(queueWrites))
	next()
	for _, alone := range []int{0, 1} {
		mustExec(t, store, "deallocate all")
		store.sharing.setAlone(o.lease.Row, alone)
		noError(t, o.queue(queueWrites))
		next()
	}
	wantClass(t, o.queue(big), faults.Handler)
	mustExec(t, store, "alter table public.narrow alter column n type bigint")
	noError(t, o.queue(big))
	if n := one[int](t, store, "select count(*) from public.narrow"); n != 1 || o.written() != 3 {
		t.Errorf("%d and %d rows", n, o.written())
	}
}

// The error of a message that was sent as a whole does not say whether it was committed. The row of the lease does.
func TestQueuedBatchWhoseConnectionBreaks(t *testing.T) {
	o := newOwner(t, 2)
	err := o.queue(queuesToo(1, "select pg_terminate_backend(pg_backend_pid())"))
	wantClass(t, err, faults.Unclear)
	o.untouched()
	noError(t, o.queue(queueWrites))
	o.applied(2)
}

func TestQueuedBatchWhoseCommitFails(t *testing.T) {
	o := newOwner(t, 2)
	mustExec(t, o.store,
		"create table public.parent (position bigint primary key); create table public.child (position bigint references public.parent deferrable initially deferred)")
	wantClass(t, o.queue(queuesToo(0, "insert into public.child values (7)")), faults.Handler)
	o.untouched()
}

// The statements of a tenant mean its tables, also those that another tenant has used on the connection before.
func TestQueuedStatementsMeanTheTablesOfTheTenant(t *testing.T) {
	store := onePool(t)
	var owners []*owner
	for _, name := range []string{"a", "b", projection.DefaultTenant} {
		if name != projection.DefaultTenant {
			mustAppend(t, newTenant(t, store, name), "s", event.Any, someEvents(4)...)
			mustExec(t, store, "create table "+schemaName("millrace", name)+".own (tenant text)")
		}
		owners = append(owners, claimAs(t, store, name))
	}
	mustExec(t, store, "create table public.own (tenant text)")
	for range 2 {
		for _, o := range owners {
			noError(t, o.queue(func(_ context.Context, q Queue, _ []event.Envelope) error {
				q.Exec("insert into own values ($1)", o.lease.ID.Tenant)
				return nil
			}))
			o.refresh()
			o.lease.Checkpoint = o.checkpoint()
			mustAppend(t, must(store.ForTenant(o.lease.ID.Tenant))(t), "s", event.Any, someEvents(1)...)
		}
	}
	for _, o := range owners {
		schema := "public"
		if o.lease.ID.Tenant != projection.DefaultTenant {
			schema = schemaName("millrace", o.lease.ID.Tenant)
		}
		if n := one[int](t, store, "select count(*) from "+schema+".own where tenant = $1", o.lease.ID.Tenant); n != 2 {
			t.Errorf("%s: %d rows", o.lease.ID.Tenant, n)
		}
	}
}

// Parameters have the types of the tenant's tables, also where those of another tenant are older.
func TestQueuedStatementsHaveTheTypesOfTheTenantsTables(t *testing.T) {
	store := onePool(t)
	var owners []*owner
	for name, kind := range map[string]string{"old": "real", "new": "numeric"} {
		mustAppend(t, newTenant(t, store, name), "s", event.Any, someEvents(1)...)
		mustExec(t, store, "create table "+schemaName("millrace", name)+".own (n "+kind+")")
	}
	for _, name := range []string{"old", "new"} {
		o := claimAs(t, store, name)
		owners = append(owners, o)
		noError(t, o.queue(func(_ context.Context, q Queue, _ []event.Envelope) error {
			q.Exec("insert into own values ($1)", 0.123456789012345)
			return nil
		}))
	}
	if n := one[string](t, store, "select n::text from "+schemaName("millrace", "new")+
		".own"); n != "0.123456789012345" {
		t.Errorf("the new tenant of %d has %s", len(owners), n)
	}
}

// A hook of the pool may discard what a session keeps, after each use.
func TestQueuedBatchesOnAPoolThatResetsItsSessions(t *testing.T) {
	store := onePool(t, func(c *pgxpool.Config) {
		c.AfterRelease = func(conn *pgx.Conn) bool {
			_, err := conn.Exec(context.Background(), "discard all", pgx.QueryExecModeSimpleProtocol)
			return err == nil
		}
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	})
	o := claimAs(t, store, projection.DefaultTenant)
	for range 3 {
		noError(t, o.queue(queueWrites))
		o.lease.Checkpoint = o.checkpoint()
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	}
	if n := o.written(); n != 3 {
		t.Errorf("%d rows", n)
	}
}

type secret struct{ Plain string }

func (secret) Value() (driver.Value, error) { return nil, io.ErrUnexpectedEOF }

func TestQueuedArgumentThatRefusesIsNotSentOtherwise(t *testing.T) {
	o := newOwner(t, 1)
	if fault := wantClass(t, o.queue(queuesToo(0, "select $1::jsonb", secret{"x"})),
		faults.Handler); !errors.Is(fault, io.ErrUnexpectedEOF) {
		t.Error(fault)
	}
	o.untouched()
}

// What statements set or take ends with their transaction, or is restored.
func TestQueuedStatementsLeaveTheSessionAsItWas(t *testing.T) {
	store := onePool(t)
	o := claimAs(t, store, projection.DefaultTenant)
	mustExec(t, store,
		"create role queued_lower; grant all on public.model to queued_lower; grant usage on schema public to queued_lower")
	t.Cleanup(func() { mustExec(t, store, "drop owned by queued_lower; drop role queued_lower") })
	state := `select concat_ws(' ', current_user, session_user, current_setting('search_path'), current_setting('work_mem'), current_setting('lock_timeout'),
		current_setting('statement_timeout'), (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
		(select count(*) from pg_listening_channels()))`
	before := one[string](t, store, state)
	noError(t, o.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		q.Exec("do $$ begin execute 'set work_mem = 512'; execute 'select pg_advisory_' || 'lock(7)'; execute 'listen queued'; end $$")
		q.Exec("set local role queued_lower")
		return queueWrites(ctx, q, events)
	}))
	o.applied(1)
	if after := one[string](t, store, state); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}

func TestQueuedArgumentsAreEncodedAtOnce(t *testing.T) {
	o := newOwner(t, 1)
	mustExec(t, o.store,
		`create table public.kinds (n smallint, big numeric, b boolean, t timestamptz, d interval, raw bytea, j jsonb, list text[],
		id uuid, none text, own text)`)
	when, id := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), uuid.New()
	type named string
	noError(t, o.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		raw, list, body := []byte{0, 1, 255}, []string{"a", `b"c`}, map[string]any{"a": 1}
		q.Exec("insert into public.kinds values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)", int8(-3),
			uint64(1<<63), true, when, 90*time.Second, raw, body,
			list, id, (*string)(nil), named("x"))
		raw[0], list[0], body["a"] = 9, "changed", 2
		return nil
	}))
	if !one[bool](t, o.store,
		`select (n, big, b, t, d, raw, j, list, id, own) = (-3, 9223372036854775808, true, $1::timestamptz, interval '90 s',
		'\x0001ff'::bytea, '{"a": 1}'::jsonb, array['a', 'b"c'], $2::uuid, 'x') and none is null from public.kinds`, when, id.String()) {
		t.Error(one[string](t, o.store, "select kinds::text from public.kinds"))
	}
}

// Larger messages and the batches of fenced neighbours go the way of other handlers, with the same result.
func TestLargeQueuedBatchIsSentInParts(t *testing.T) {
	o := newOwner(t, 3)
	text := strings.Repeat("x", mostInMessage)
	noError(t, o.queue(queuesToo(1, "insert into public.model (position) select length($1)", text)))
	o.applied(4)
	again := claimAs(t, o.store, projection.DefaultTenant)
	mustAppend(t, o.store.tenant, "s", event.Any, someEvents(2)...)
	events, err := again.pending()
	noError(t, err)
	fault := wantClass(t, again.queue(func(_ context.Context, q Queue, events []event.Envelope) error {
		for range 2 {
			q.Exec("select $1", text)
		}
		q.At(events[1]).Exec("select 1 / 0")
		return nil
	}), faults.Handler)
	if fault.Position != events[1].Position {
		t.Errorf("position %d is named", fault.Position)
	}
	o.applied(4)
}

func TestSessionKeepsSomeQueuedStatementsPrepared(t *testing.T) {
	store := onePool(t)
	o := claimAs(t, store, projection.DefaultTenant)
	for n := range mostPrepared/20 + 5 {
		noError(t, o.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
			for i := range 20 {
				q.Exec(fmt.Sprintf("insert into public.model (position) values (%d)", 20*n+i))
			}
			return nil
		}))
		o.lease.Checkpoint = o.checkpoint()
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	}
	if n := one[int](t, store,
		"select count(*) from pg_prepared_statements where name like 'millrace_message_%'"); n != mostPrepared {
		t.Errorf("%d statements are prepared, want %d", n, mostPrepared)
	}
	if n := o.written(); n != mostPrepared+100 {
		t.Errorf("%d rows", n)
	}
}
