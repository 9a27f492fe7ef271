package pgstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

// withoutFence replaces the advance by a conditional update, which raises no error if it matches no row.
const withoutFence = `create or replace function millrace.advance(batch text, lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint, old bigint, new bigint)
	returns void language sql as $$
	update millrace.leases l set checkpoint = new
	 where l.id = lease and l.owner = lease_owner and l.epoch = lease_epoch and l.checkpoint = old $$`

// A release leaves the epoch as it is, and a node that claims a lease anew is the same owner.
func TestEachPartOfTheFenceCountsAlone(t *testing.T) {
	t.Parallel()
	for part, change := range map[string]struct {
		sql  string
		want faults.Class
	}{
		"owner":       {"update millrace.leases set owner = null", faults.LeaseLost},
		"epoch":       {"update millrace.leases set epoch = epoch + 1", faults.LeaseLost},
		"checkpoint":  {"update millrace.leases set checkpoint = checkpoint + 1", faults.LeaseLost},
		"incarnation": {"update millrace.incarnation set id = id + 1", faults.Infrastructure},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			o := newOwner(t, 3)
			other := func(ctx context.Context, _ pgx.Tx) error {
				_, err := o.store.pool.Exec(ctx, change.sql)
				return err
			}
			wantClass(t, o.apply(writeAnd(other), engine.ApplyOptions{}), change.want)
			if n := o.written(); n != 0 {
				t.Errorf("%d rows were written", n)
			}
		})
	}
}

// An update that matches no row is no error, and the following commit succeeds.
func TestConditionalUpdateInPlaceOfTheFenceWouldCommit(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	mustExec(t, o.store, withoutFence)
	steal := func(context.Context, pgx.Tx) error {
		claimAs(t, o.store, projection.DefaultTenant)
		return nil
	}
	noError(t, o.apply(writeAnd(steal), engine.ApplyOptions{}))
	if o.written() != 3 || o.checkpoint() != o.lease.Checkpoint {
		t.Errorf("%d rows, checkpoint %d: the control does not show the damage", o.written(), o.checkpoint())
	}
}

func TestLeaseOfADeadNodeIsClaimedAndOfALivingOneIsNot(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	ctx := testContext(t)
	session := must(o.store.port().Connect(ctx, o.node))(t)
	defer func() { _ = session.Close(ctx) }()
	other := engine.Node{ID: "5f0d7b7c-37f4-4b5a-8a0c-3a9e0c6f4a11", Projections: []string{"p"}}
	claim := func() []engine.Lease {
		leases := must(claimFree(ctx, o.store, other, 10))(t)
		return leases
	}
	if got := claim(); len(got) != 0 {
		t.Fatalf("claimed %v from a node that is alive", got)
	}
	mustExec(t, o.store, "update millrace.nodes set expires_at = clock_timestamp() - interval '1 ms'")
	got := claim()
	if len(got) != 1 || got[0].Epoch != o.lease.Epoch+1 || got[0].CrashCount != o.lease.CrashCount+1 {
		t.Fatalf("claimed %v after %v", got, o.lease)
	}
	if _, err := reload(ctx, o.store, o.lease); !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("reload of the lost lease: %v", err)
	}
	wantClass(t, o.apply(write, engine.ApplyOptions{}), faults.LeaseLost)
}

// race lets two owners take the lease from each other all the time while both apply, and returns how many rows of the
// read model are doubled, and how many are missing.
func race(t *testing.T, store *Store, events int) (doubled, missing int) {
	t.Helper()
	noError(t, together(2, func(int) error {
		for {
			o, err := tryClaim(t, store, projection.DefaultTenant)
			if err != nil {
				return err
			}
			for range 4 {
				if o == nil {
					break // the other one is claiming
				}
				pending, err := o.pending()
				if err != nil || len(pending) == 0 {
					return err
				}
				batch := engine.Batch{Events: pending[:min(3, len(pending))]}
				batch.To = batch.Events[len(batch.Events)-1].Position
				err = store.port().apply(write, engine.ApplyOptions{Timeout: testDeadline})(testContext(t), o.lease,
					batch)
				if err != nil && classify(err).Class != faults.LeaseLost {
					return err
				}
				if err == nil {
					o.lease.Checkpoint = batch.To
				}
			}
		}
	}))
	return one[int](t, store, "select count(*) - count(distinct position) from public.model"),
		events - one[int](t, store, "select count(distinct position) from public.model")
}

func TestTwoOwnersThatRaceApplyEverythingOnce(t *testing.T) {
	t.Parallel()
	const events = 120
	o := newOwner(t, events)
	if doubled, missing := race(t, o.store, events); doubled != 0 || missing != 0 {
		t.Errorf("%d events doubled, %d missing", doubled, missing)
	}
	if back := one[int](t, o.store, `select count(*) from (select position < lag(position) over (order by at) as back
		from public.model) as x where back`); back != 0 {
		t.Errorf("%d events out of order", back)
	}
}

func TestTwoOwnersThatRaceWithoutTheFenceApplyTwice(t *testing.T) {
	t.Parallel()
	const events = 120
	for range 10 {
		o := newOwner(t, events)
		mustExec(t, o.store, withoutFence)
		if doubled, _ := race(t, o.store, events); doubled > 0 {
			return
		}
	}
	t.Error("nothing was doubled in ten races: they are none")
}

// skipsLocked reports whether a claim would skip the lease because its row is locked.
func skipsLocked(t *testing.T, conn *pgx.Conn, lease engine.Lease) bool {
	t.Helper()
	var free bool
	err := conn.QueryRow(testContext(t), `select exists (select from millrace.leases where id = $1
		for no key update skip locked)`, lease.Row).Scan(&free)
	if err != nil {
		t.Fatal(err)
	}
	return !free
}

func TestNoRowOfLeasesIsLockedWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	conn := strange(t, o.store)
	noError(t, o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		if skipsLocked(t, conn, o.lease) {
			t.Error("a claim would have to wait for the handler")
		}
		// The control: if the row is locked, skipsLocked reports true.
		if _, err := tx.Exec(ctx, "select 1 from millrace.leases where id = $1 for no key update",
			o.lease.Row); err != nil {
			return err
		}
		if !skipsLocked(t, conn, o.lease) {
			t.Error("a lock on the row was not noticed")
		}
		return nil
	}), engine.ApplyOptions{}))
	if skipsLocked(t, conn, o.lease) {
		t.Error("a lock outlived the batch")
	}
}

// sessionState reads every kind of state that one user of a connection could leave to the next.
func sessionState(t testing.TB, store *Store) map[string]string {
	t.Helper()
	return sessionStateIn(t, store.pool)
}

// sessionStateIn is sessionState in a transaction.
func sessionStateIn(t testing.TB, q interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}) map[string]string {
	t.Helper()
	rows, err := q.Query(testContext(t), `
		select 'setting ' || name, setting from pg_settings where source = 'session'
		union all select 'role', current_user || ' of ' || session_user || ' as ' || current_setting('role')
		union all select format('lock %s %s %s %s', mode, classid, objid, objsubid), '' from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
		union all select 'listens', c from pg_listening_channels() c
		union all select 'temporary ' || relname, '' from pg_class where relnamespace = pg_my_temp_schema()
		union all select 'own setting', coalesce(current_setting('app.who', true), '')
		union all select 'cursor ' || name, '' from pg_cursors where is_holdable
		union all select 'pid', pg_backend_pid()::text`, pgx.QueryExecModeExec)
	if err != nil {
		t.Fatal(err)
	}
	state := make(map[string]string)
	var name, value string
	must(pgx.ForEachRow(rows, []any{&name, &value}, func() error { state[name] = value; return nil }))(t)
	return state
}

// leaks are the ways in which a handler can change its session although the text of its statements does not show it.
func leaks(t testing.TB, store *Store) map[string]func(ctx context.Context, tx pgx.Tx) error {
	t.Helper()
	mustExec(t, store,
		`create function public.sets() returns void language sql as $$ select set_config('work_mem', '77MB', false) $$`)
	mustExec(t, store, `create function public.locks() returns void language sql as $$ select pg_advisory_lock(77) $$`)
	mustExec(t, store, `do $$ begin if to_regrole('millrace_leak') is null then create role millrace_leak; end if;
		exception when duplicate_object or unique_violation then null; end $$`)
	return map[string]func(ctx context.Context, tx pgx.Tx) error{
		"setting by a function":          sends("select public.sets()"),
		"setting by DO":                  sends("do $$ declare session bool := false; begin perform set_config('work_mem', '77MB', session); end $$"),
		"setting of its own by DO":       sends("do $$ begin execute 'set app.who = eve'; end $$"),
		"setting by EXECUTE":             sends("do $$ begin execute 'set statement_timeout = 77000'; end $$"),
		"setting by raw text":            sendsRaw("set work_mem = '77MB'; set search_path = nowhere"),
		"role by EXECUTE":                sends("do $$ begin execute 'set role millrace_leak'; execute 'reset role'; execute 'set session role none'; end $$"),
		"lock by a function":             sends("select public.locks()"),
		"shared lock by EXECUTE":         sends("do $$ begin execute 'select pg_advisory_' || 'lock_shared(7, 7)'; end $$"),
		"LISTEN by EXECUTE":              sends("do $$ begin execute 'listen leak'; end $$"),
		"temporary table":                sends("create temp table leak (a int)"),
		"temporary table behind it":      sendsRaw("create temp table leak (a int)"),
		"cursor with hold":               sendsRaw("declare leak cursor with hold for select 1"),
		"isolation of later ones":        sendsRaw("set session characteristics as transaction isolation level serializable"),
		"session authorization and back": sendsRaw("set session authorization millrace_leak; reset session authorization"),
	}
}

// sameSession checks that two states of a session differ only in what a new connection changes.
func sameSession(t *testing.T, store *Store, what string, before map[string]string) {
	t.Helper()
	after := sessionState(t, store)
	delete(after, "pid")
	before = maps.Clone(before)
	delete(before, "pid")
	if !maps.Equal(before, after) {
		t.Errorf("%s: before %v, after %v", what, before, after)
	}
}

func TestNothingOfAHandlerLeaksToTheNextUserOfItsConnection(t *testing.T) {
	t.Parallel()
	nothingLeaks(t, onePool(t))
}

// nothingLeaks runs handlers that leave something in the one session of the store.
func nothingLeaks(t *testing.T, store *Store) {
	t.Helper()
	ways := leaks(t, store)
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		for end, fails := range map[string]func(error) error{
			"commit":   func(err error) error { return err },
			"rollback": func(err error) error { return errors.Join(errors.New("on purpose"), err) },
		} {
			before := sessionState(t, store)
			o := claimAs(t, store, projection.DefaultTenant)
			done := false
			err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
				if err := ways[name](ctx, tx); err != nil {
					return err
				}
				done = true
				return fails(nil)
			}), engine.ApplyOptions{})
			if !done || (err == nil) != (end == "commit") {
				t.Fatalf("%s, %s: %v", name, end, err)
			}
			sameSession(t, store, name+" and "+end, before)
			if after := sessionState(t, store); after["pid"] != before["pid"] {
				t.Errorf("%s and %s cost the connection", name, end)
			}
			mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
		}
	}
}

func TestRoleThatABatchEndsInDoesNotLeak(t *testing.T) {
	t.Parallel()
	store := onePool(t)
	leaks(t, store)
	mustExec(t, store,
		"grant usage on schema millrace to millrace_leak; grant all on all tables in schema millrace to millrace_leak")
	before := sessionState(t, store)
	o := claimAs(t, store, projection.DefaultTenant)
	noError(t, o.apply(writeAnd(sendsRaw("set role millrace_leak")), engine.ApplyOptions{}))
	sameSession(t, store, "role", before)
}

// The role may have no rights on the store's schemas. A handler that works under its tenant's role need not reset it.
func TestRoleThatAHandlerSetsLocallyDoesNotHinderTheCommit(t *testing.T) {
	t.Parallel()
	store := onePool(t)
	leaks(t, store)
	before := sessionState(t, store)
	o := claimAs(t, store, projection.DefaultTenant)
	noError(t, o.apply(writeAnd(sends("set local role millrace_leak")), engine.ApplyOptions{}))
	o.applied(1)
	sameSession(t, store, "role", before)
}

// The control: in a transaction of the host's own the same changes do leak, and sessionState shows them.
func TestLeakCheckNoticesEachLeak(t *testing.T) {
	t.Parallel()
	store := onePool(t)
	for name, leak := range leaks(t, store) {
		if name == "role by EXECUTE" || name == "session authorization and back" {
			continue // they take back what they do
		}
		before := sessionState(t, store)
		if err := pgx.BeginFunc(testContext(t), store.pool,
			func(tx pgx.Tx) error { return leak(testContext(t), tx) }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		after := sessionState(t, store)
		if maps.Equal(before, after) {
			t.Errorf("%s: no leak is seen in %v", name, after)
		}
		store.pool.Reset()
	}
}

func TestBatchWhoseHandlerCommitsLeavesNothing(t *testing.T) {
	t.Parallel()
	store := onePool(t)
	for _, returned := range []error{nil, errors.New("on purpose")} {
		before := sessionState(t, store)
		o := claimAs(t, store, projection.DefaultTenant)
		err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			if err := sendsRaw("set work_mem = '77MB'; commit; set app.who = 'eve'; select pg_advisory_lock(77)")(ctx,
				tx); err != nil {
				t.Error(err)
			}
			return returned
		}), engine.ApplyOptions{})
		wantClass(t, err, faults.Handler)
		sameSession(t, store, "after a commit", before)
		// A connection that was closed must not come back from the pool.
		for range 3 {
			if err := store.port().Ping(testContext(t)); err != nil {
				t.Errorf("the pool lends what does not work: %v", err)
			}
		}
	}
}

func TestSettingsOfAPoolSurviveBatches(t *testing.T) {
	t.Parallel()
	store := onePool(t, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["application_name"] = "a host"
		config.ConnConfig.RuntimeParams["app.who"] = "a host"
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx,
				"set work_mem = '5MB'; set search_path = 'it''s', public; set timezone = 'Asia/Tokyo'; set bytea_output = 'escape'")
			return err
		}
	})
	before := sessionState(t, store)
	if before["setting work_mem"] != "5120" {
		t.Fatalf("the session is %v", before)
	}
	for _, then := range []func(ctx context.Context, tx pgx.Tx) error{
		sends("select 1"), sends("select 1/0"),
		sendsRaw("set work_mem = '77MB'; set timezone = 'UTC'; set application_name = 'eve'; set app.who = 'eve'"),
		sends("set local work_mem = '77MB'"),
	} {
		o := claimAs(t, store, projection.DefaultTenant)
		_ = o.apply(writeAnd(then), engine.ApplyOptions{})
		sameSession(t, store, "a host's settings", before)
		if name := show(testContext(t), store.pool, "application_name"); name != "a host" {
			t.Errorf("application_name is %q", name)
		}
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	}
}

func TestRoleOfAPoolSurvivesBatches(t *testing.T) {
	t.Parallel()
	store := onePool(t, func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx,
				"set role pg_write_all_data; set role none; set role pg_monitor; reset role; set role postgres")
			return err
		}
	})
	before := sessionState(t, store)
	o := claimAs(t, store, projection.DefaultTenant)
	noError(t, o.apply(writeAnd(sendsRaw("reset role")), engine.ApplyOptions{}))
	sameSession(t, store, "a host's role", before)
}

func TestBatchesWorkOnAPoolOfOne(t *testing.T) {
	t.Parallel()
	store := onePool(t)
	for range 5 {
		o := claimAs(t, store, projection.DefaultTenant)
		noError(t, o.apply(write, engine.ApplyOptions{}))
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	}
	if n := store.pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}
