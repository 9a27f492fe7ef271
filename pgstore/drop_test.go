package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// furnished creates a tenant with events, keys, read models of all kinds, projections, dead letters and commands.
func furnished(t *testing.T, store *Store, name string) *Tenant {
	t.Helper()
	tenant := newTenant(t, store, name)
	mustAppend(t, tenant, "s", event.Any.WithKey("k"), someEvents(3)...)
	schema := pgx.Identifier{tenant.schema}.Sanitize()
	mustExec(t, store, strings.ReplaceAll(`
		create type S.kind as enum ('a', 'b');
		create table S.totals (id int generated always as identity primary key, kind S.kind, n int check (n > 0));
		create table S.details (id int primary key, total int references S.totals) partition by range (id);
		create table S.details_1 partition of S.details for values from (1) to (10);
		create view S.sums as select sum(n) from S.totals;
		create materialized view S.counts as select count(*) from S.sums;
		create function S.twice(t S.totals) returns int language sql as 'select 2';
		create function S.of_events() returns trigger language plpgsql as 'begin return new; end';
		create trigger own after insert on S.totals for each row execute function S.of_events();
		create sequence S.numbers;
		create table S.numbered (n int default nextval('S.numbers'))`, "S", schema), pgx.QueryExecModeSimpleProtocol)
	must(store.plane().Ensure(testContext(t), []engine.NewProjection{{Tenant: name, Name: "p"},
		{Tenant: name, Name: "q", Partitions: 3}}))(t)
	mustExec(t, store,
		`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, error, stack, attempts, first_failed_at, last_failed_at)
		select id, 1, 's', 1, 'T', 'bad', '', 1, now(), now() from millrace.projections where tenant = $1`, name)
	mustExec(t, store,
		"insert into millrace.parked_streams (projection_id, stream_id) select id, 's' from millrace.projections where tenant = $1", name)
	mustExec(t, store,
		"insert into millrace.commands (projection_id, kind, max_events) select id, 'replay', 1 from millrace.projections where tenant = $1", name)
	mustExec(t, store,
		"insert into millrace.retired_projections (tenant, name, reason) values ($1, 'gone', 'forgotten')", name)
	must(tenant.Alias(testContext(t), "alias"))(t)
	mustExec(t, store,
		`insert into millrace.operations (tenant, name, kind, holds, options) values ($1, 'p', 'rebuild', '{p}', '')`,
		name)
	return tenant
}

// leftOf counts what the store has of a tenant: its row, its projections, and the objects of its schema.
func leftOf(t *testing.T, store *Store, tenant *Tenant) int {
	t.Helper()
	return one[int](t, store,
		`select (select count(*) from millrace.tenants where tenant = $1) + (select count(*) from millrace.projections where tenant = $1)
		+ (select count(*) from pg_namespace where nspname = $2)`, tenant.name, tenant.schema)
}

// strays counts rows of the control schema whose projection or tenant is gone.
func strays(t *testing.T, store *Store) int {
	t.Helper()
	return one[int](t, store,
		`select (select count(*) from millrace.leases where id not in (select id from millrace.projections))
		+ (select count(*) from (select projection_id from millrace.dead_letters union all select projection_id from millrace.parked_streams
			union all select projection_id from millrace.commands) x where projection_id not in (select id from millrace.projections))`)
}

func TestDroppedTenantLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	other := furnished(t, store, "other")
	rows := func() string {
		return one[string](t, store,
			`select concat((select count(*) from millrace.leases), (select count(*) from millrace.dead_letters),
			(select count(*) from millrace.parked_streams), (select count(*) from millrace.commands), (select count(*) from millrace.retired_projections), (select count(*) from millrace.aliases), (select count(*) from millrace.operations), (select count(*) from millrace.projections),
			(select count(*) from pg_class), (select count(*) from pg_proc), (select count(*) from pg_type), (select count(*) from pg_trigger))`)
	}
	before := rows()
	for i := range 3 {
		acme := furnished(t, store, "acme {tenant} $1")
		for name, err := range map[string]error{"another name": store.DropTenant(ctx, acme.name,
			tenancy.DropOptions{Confirm: "acme"}),
			"no name":                  store.DropTenant(ctx, acme.name, tenancy.DropOptions{Confirm: ""}),
			"the default tenant":       store.DropTenant(ctx, "default", tenancy.DropOptions{Confirm: "default"}),
			"a name that is not valid": store.DropTenant(ctx, "a\nb", tenancy.DropOptions{Confirm: "a\nb"})} {
			if err == nil || !strings.Contains(err.Error(), "drop tenant") {
				t.Errorf("%s: %v", name, err)
			}
		}
		switch i {
		case 1:
			noError(t, store.ArchiveTenant(ctx, acme.name))
		case 2:
			mustExec(t, store, "drop schema "+acme.quoted+" cascade") // by hand
		}
		noError(t, together(3, func(int) error { // all of them may also find it gone
			if err := store.DropTenant(ctx, acme.name, tenancy.DropOptions{Confirm: acme.name}); !errors.Is(err,
				tenancy.ErrUnknown) {
				return err
			}
			return nil
		}))
		if left, after := leftOf(t, store, acme), rows(); left != 0 || after != before {
			t.Errorf("%d left, %s rows instead of %s", left, after, before)
		}
		for what, err := range map[string]error{"Append": must2(acme.Append(ctx, "s", event.Any, someEvents(1)...)),
			"ReadAll":    firstError(acme.ReadAll(ctx, event.ReadOptions{})),
			"DropTenant": store.DropTenant(ctx, acme.name, tenancy.DropOptions{Confirm: acme.name}),
			"State":      must2(acme.State(ctx))} {
			if !errors.Is(err, tenancy.ErrUnknown) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if events := collect(t, other.ReadAll(ctx, event.ReadOptions{})); len(events) != 3 || leftOf(t, store, other) != 6 {
		t.Errorf("the other tenant has %d events and %d rows", len(events), leftOf(t, store, other))
	}
	again := newTenant(t, store, "acme {tenant} $1")
	if r := mustAppend(t, again, "s", event.NoStream.WithKey("k"), someEvents(1)...); r.Repeated ||
		r.Positions[0] != 1 {
		t.Errorf("the first append to a tenant that was created again: %+v", r)
	}
}

// must2 returns the error of a call with a result.
func must2[T any](_ T, err error) error { return err }

func TestTenantThatOthersDependOnIsDroppedOnlyWithThem(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	mustExec(t, store, "create schema host; create table host.plain (n int)", pgx.QueryExecModeSimpleProtocol)
	for what, sql := range map[string]string{
		"view host.v":             "create view host.v as select * from S.events",
		"materialized view":       "create materialized view host.m as select * from S.counts",
		"constraint f on table":   "create table host.t (id int constraint f references S.totals)",
		"function host.f":         "create function host.f(S.totals) returns int language sql as 'select 1'",
		"column k of table":       "alter table host.plain add k S.kind",
		"default value for":       "create table host.d (n int default nextval('S.numbers'))",
		"table host.child":        "create table host.child () inherits (S.totals)",
		"trigger t on table":      "create trigger t after insert on host.plain for each row execute function S.of_events()",
		"policy p on table":       "create policy p on host.plain using (n > (select count(*) from S.totals))",
		"view millrace_neighbour": "create view millrace_neighbour.v as select * from S.totals",
		"function host.g()":       "create function host.g() returns bigint language sql begin atomic select count(*) from S.totals; end",
		"extension":               "create extension pg_trgm schema millrace_acme",
	} {
		if what == "extension" && !one[bool](t, store,
			"select exists (select from pg_available_extensions where name = 'pg_trgm')") {
			t.Log("there is no extension to test with")
			continue
		}
		acme := furnished(t, store, "acme")
		if strings.Contains(what, "neighbour") {
			newTenant(t, store, "neighbour")
		}
		mustExec(t, store, strings.ReplaceAll(sql, "S.", acme.quoted+"."), pgx.QueryExecModeSimpleProtocol)
		err := store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"})
		if !errors.Is(err, tenancy.ErrNeeded) || !strings.Contains(err.Error(), what) ||
			strings.Contains(err.Error(), "schema millrace_acme,") {
			t.Errorf("%s: error %v", sql, err)
		}
		mustBe(t, acme, tenancy.Active)
		mustAppend(t, acme, "s", event.Any, someEvents(1)...)
		noError(t, store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme", Dependents: true}))
		if left := leftOf(t, store, acme); left != 0 {
			t.Errorf("%s: %d left", sql, left)
		}
	}
	if one[int](t, store,
		"select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where nspname = 'host'") != 3 {
		t.Error("a table that depends on the tenant by one column or constraint was dropped, or a dependent was left")
	}
	// An object that DROP SCHEMA drops without CASCADE is no reason.
	acme := furnished(t, store, "acme")
	mustExec(t, store, "create publication p for table millrace_acme.events, host.plain")
	noError(t, store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
	if one[int](t, store, "select count(*) from pg_publication_tables where pubname = 'p'") != 1 ||
		leftOf(t, store, acme) != 0 {
		t.Error("the publication, or the tenant")
	}
}

// A view that is created while the drop waits makes the drop fail. The drop continues when the view is gone.
func TestDropIsRefusedAgainBeforeItsLastStep(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, acme, node := testContext(t), furnished(t, store, "acme"), aNode()
	present(t, store, node)
	row := one[int32](t, store, "select min(id) from millrace.projections where tenant = 'acme'")
	mustExec(t, store, "update millrace.leases set owner = $1 where id = $2", node.ID, row)
	done := make(chan error, 1)
	go func() { done <- store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}) }()
	for must(acme.State(ctx))(t) != tenancy.Dropping {
		noError(t, ctx.Err())
	}
	mustExec(t, store,
		"create view public.late as select * from millrace_acme.events; update millrace.leases set owner = null",
		pgx.QueryExecModeSimpleProtocol)
	if err := <-done; !errors.Is(err, tenancy.ErrNeeded) {
		t.Errorf("error %v", err)
	}
	for what, err := range map[string]error{"Append": must2(acme.Append(ctx, "s", event.Any, someEvents(1)...)),
		"CreateTenant":  must2(store.CreateTenant(ctx, "acme")),
		"CreateTenants": store.CreateTenants(ctx, "b", "acme"), "archive": store.ArchiveTenant(ctx, "acme"),
		"unarchive": store.UnarchiveTenant(ctx, "acme"),
		"pause":     store.plane().SetTenantDesired(ctx, "acme", engine.WantPause)} {
		if !errors.Is(err, tenancy.ErrDropping) {
			t.Errorf("%s while the tenant is being dropped: %v", what, err)
		}
	}
	noError(t, store.Migrate(ctx))
	mustExec(t, store, "drop view public.late")
	noError(t, store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
	if leftOf(t, store, acme) != 0 {
		t.Error("something is left")
	}
}

// cutConn is a connection that breaks when its last write is due, before or after the write is sent.
type cutConn struct {
	net.Conn
	left *atomic.Int64 // how many writes are left
	sent bool
}

func (c cutConn) Write(b []byte) (int, error) {
	if c.left.Add(-1) != 0 {
		return c.Conn.Write(b)
	}
	if c.sent {
		_, _ = c.Conn.Write(b)
	}
	_ = c.Conn.Close()
	return 0, errors.New("cut on purpose")
}

// TestDropContinuesAfterAnInterruptionAtEachStep breaks the connection at each message of a drop, before and after it
// is sent. What is not committed then is rolled back, as after a kill of the process.
func TestDropContinuesAfterAnInterruptionAtEachStep(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	store := migrated(t, openStore(t, dsn, Options{}))
	ctx := testContext(t)
	states := make(map[tenancy.State]int)
	for at, cuts := int64(1), 2; cuts == 2; at++ {
		cuts = 0
		for _, sent := range []bool{false, true} {
			acme := furnished(t, store, "acme")
			var writes atomic.Int64
			breaking := openStore(t, dsn, Options{}, connections(1), func(config *pgxpool.Config) {
				config.ConnConfig.RuntimeParams["application_name"] = "breaking"
				dial := config.ConnConfig.DialFunc
				config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return cutConn{Conn: conn, left: &writes, sent: sent}, err
				}
			})
			writes.Store(at)
			err := breaking.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"})
			if writes.Load() <= 0 {
				cuts++
			}
			breaking.pool.Close()
			for one[int](t, store,
				"select count(*) from pg_stat_activity where datname = current_database() and application_name = 'breaking'") > 0 {
				noError(t, ctx.Err()) // the server may still be at work
			}
			state, asked := acme.State(ctx)
			switch {
			case errors.Is(asked, tenancy.ErrUnknown):
				state = "gone"
				if _, err := store.CreateTenant(ctx, "acme"); err != nil {
					t.Errorf("create it again: %v", err)
				}
			case err == nil:
				t.Errorf("cut at %d: no error, but the tenant is %s, %v", at, state, asked)
			case state == tenancy.Active:
				mustAppend(t, acme, "s", event.Any, someEvents(1)...)
			case state == tenancy.Dropping:
				if _, err := acme.Append(ctx, "s", event.Any, someEvents(1)...); !errors.Is(err, tenancy.ErrDropping) {
					t.Errorf("cut at %d: append: %v", at, err)
				}
			}
			states[state]++
			noError(t, store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
			if left, lost := leftOf(t, store, acme), strays(t, store); left != 0 || lost != 0 {
				t.Fatalf("cut at %d: %d rows of the tenant are left, and %d without one", at, left, lost)
			}
		}
	}
	t.Logf("states after the cuts: %v", states)
	for _, state := range []tenancy.State{tenancy.Active, tenancy.Dropping, "gone"} {
		if states[state] < 2 {
			t.Errorf("the tenant was in state %s after %d cuts", state, states[state])
		}
	}
}

// A drop waits for a prepared transaction that only reads, which holds its locks, and leaves other tenants alone.
func TestDropWaitsForReadersAndNamesThem(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	furnished(t, store, "acme")
	tx := must(store.pool.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(ctx) }() // so that the pool can be closed
	must(tx.Exec(ctx, "select count(*) from millrace_acme.totals"))(t)
	pid := tx.Conn().PgConn().PID()
	short, cancel := context.WithTimeout(ctx, 4*lockWait)
	defer cancel()
	if err := store.DropTenant(short, "acme", tenancy.DropOptions{Confirm: "acme"}); !errors.Is(err,
		context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprint("backend ", pid)) {
		t.Errorf("error %v, want one that names backend %d", err, pid)
	}
	mustBe(t, must(store.ForTenant("acme"))(t), tenancy.Dropping)
	done := make(chan error, 1)
	go func() { done <- store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}) }()
	waitBlocked(t, store, 1)
	noError(t, tx.Rollback(ctx))
	noError(t, <-done)
	if names := must(store.Tenants(ctx))(t); !slices.Equal(names, []string{projection.DefaultTenant}) {
		t.Errorf("tenants %q", names)
	}
}
