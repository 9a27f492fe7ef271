package pgstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func mustBe(t *testing.T, tenant *Tenant, want tenancy.State) {
	t.Helper()
	if state := must(tenant.State(testContext(t)))(t); state != want {
		t.Errorf("tenant %q is %s, want %s", tenant.name, state, want)
	}
}

// appendWays are the ways in which events are appended to a tenant.
var appendWays = map[string]func(ctx context.Context, tenant *Tenant) error{
	"Append": func(ctx context.Context, tenant *Tenant) error {
		_, err := tenant.Append(ctx, "s", event.Any, someEvents(2)...)
		return err
	},
	"Append to a new stream": func(ctx context.Context, tenant *Tenant) error {
		_, err := tenant.Append(ctx, "new", event.NoStream, someEvents(1)...)
		return err
	},
	"Append of a version": func(ctx context.Context, tenant *Tenant) error {
		_, err := tenant.Append(ctx, "s", event.Exact(3), someEvents(1)...)
		return err
	},
	"Append with a key": func(ctx context.Context, tenant *Tenant) error {
		_, err := tenant.Append(ctx, "s", event.Any.WithKey("k2"), someEvents(1)...)
		return err
	},
	"AppendTx": func(ctx context.Context, tenant *Tenant) error {
		return tenant.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "create table half_written (n int)"); err != nil {
				return err
			}
			_, err := tenant.AppendTx(ctx, tx, "s", event.Any, someEvents(1)...)
			return err
		})
	},
	"AppendTx with a key": func(ctx context.Context, tenant *Tenant) error {
		return tenant.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tenant.AppendTx(ctx, tx, "s", event.Any.WithKey("k3"), someEvents(1)...)
			return err
		})
	},
	"SQL": func(ctx context.Context, tenant *Tenant) error {
		return pgx.BeginFunc(ctx, tenant.store.pool, func(tx pgx.Tx) error {
			return execScript(ctx, tx,
				sqltext.Fill(`update {tenant}.streams set version = version + 1 where stream_id = 's';
				insert into {tenant}.events (stream_id, stream_version, type, body) select stream_id, version, 'T', '1' from {tenant}.streams where stream_id = 's'`,
					"{tenant}", tenant.quoted))
		})
	},
	"SQL of a replica": func(ctx context.Context, tenant *Tenant) error {
		return pgx.BeginFunc(ctx, tenant.store.pool, func(tx pgx.Tx) error {
			return execScript(ctx, tx, sqltext.Fill(`set local session_replication_role = replica;
				insert into {tenant}.events (stream_id, stream_version, type, body) values ('other', 1, 'T', '1')`, "{tenant}", tenant.quoted))
		})
	},
}

// written is everything that an append may write, and what the ways above would leave behind.
func written(t *testing.T, tenant *Tenant) string {
	t.Helper()
	return one[string](t, tenant.store,
		sqltext.Fill(`select concat((select string_agg(e::text, ' ' order by global_seq) from {tenant}.events e),
		(select string_agg(s::text, ' ' order by stream_id) from {tenant}.streams s), (select string_agg(k::text, ' ' order by key) from {tenant}.append_keys k),
		(select string_agg(r::text, ' ' order by key) from {tenant}.append_results r),
		(select count(*) from pg_class where relname = 'half_written'))`, "{tenant}", tenant.quoted))
}

func TestArchivedTenantIsReadOnly(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	acme, ctx := newTenant(t, store, "acme {state} $1"), testContext(t)
	mustAppend(t, acme, "s", event.Any.WithKey("k"), someEvents(3)...)
	before, events := written(t, acme), collect(t, acme.ReadAll(ctx, event.ReadOptions{}))
	for range 2 {
		for range 2 {
			noError(t, store.ArchiveTenant(ctx, acme.name))
			mustBe(t, acme, tenancy.Archived)
		}
		for way, fn := range appendWays {
			err := fn(ctx, acme)
			if way := strings.HasPrefix(way, "SQL"); way && !pgerr.Is(err, pgerr.TenantArchived) ||
				!way && !errors.Is(err, tenancy.ErrArchived) {
				t.Errorf("%v: error %v", way, err)
			}
		}
		if after := written(t, acme); after != before {
			t.Errorf("after appends that failed the tenant has\n%s\nwant\n%s", after, before)
		}
		if read := collect(t, acme.ReadAll(ctx, event.ReadOptions{})); len(read) != len(events) ||
			len(collect(t, acme.ReadStream(ctx, "s", 1))) != 3 {
			t.Errorf("read %d events, want %d", len(read), len(events))
		}
		must(store.CreateTenant(ctx, acme.name))(t)
		noError(t, store.Migrate(ctx))
		mustBe(t, acme, tenancy.Archived)
		mustAppend(t, newTenant(t, store, "other"), "s", event.Any, someEvents(1)...)

		for range 2 {
			noError(t, store.UnarchiveTenant(ctx, acme.name))
			mustBe(t, acme, tenancy.Active)
		}
	}
	for way, fn := range appendWays {
		if err := fn(ctx, acme); err != nil && way != "Append of a version" {
			t.Errorf("%s to a tenant that was brought back: %v", way, err)
		}
	}
	// The trigger is there when it is needed, whatever was restored.
	mustExec(t, store, "drop trigger millrace_closed on "+acme.quoted+".events")
	noError(t, store.ArchiveTenant(ctx, acme.name))
	mustExec(t, store, "drop trigger millrace_closed on "+acme.quoted+".events")
	noError(t, store.UnarchiveTenant(ctx, acme.name))
	mustAppend(t, acme, "s", event.Any, someEvents(1)...)
	mustExec(t, store, "drop schema millrace_other cascade")
	if err := store.ArchiveTenant(ctx, "other"); !errors.Is(err, tenancy.ErrDropped) {
		t.Errorf("archive a tenant whose schema is gone: %v", err)
	}
	for doing, err := range map[string]error{"archive": store.ArchiveTenant(ctx, "none"),
		"unarchive": store.UnarchiveTenant(ctx, "none")} {
		if !errors.Is(err, tenancy.ErrUnknown) {
			t.Errorf("%s a tenant that does not exist: %v", doing, err)
		}
	}
}

// Archiving waits for open appends, including prepared ones. Other appends and reads continue meanwhile.
func TestArchivingWaitsForOpenAppendsAndNamesThem(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{InMemory: true,
		Settings: map[string]string{"max_prepared_transactions": "5"}})
	store := migrated(t, openStore(t, server.DSN("postgres"), Options{}))
	acme, ctx := newTenant(t, store, "acme"), testContext(t)
	mustExec(t, store,
		"begin; insert into millrace_acme.events (stream_id, stream_version, type, body) values ('x', 1, 'T', '1'); prepare transaction 'open'", pgx.QueryExecModeSimpleProtocol)
	for doing, fn := range map[string]func(context.Context) error{
		"archive": func(ctx context.Context) error { return store.ArchiveTenant(ctx, "acme") },
		"drop": func(ctx context.Context) error {
			return store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"})
		},
	} {
		short, cancel := context.WithTimeout(ctx, 3*lockWait)
		done := make(chan error, 1)
		go func() { done <- fn(short) }()
		appends := 0
		for short.Err() == nil {
			mustAppend(t, acme, "s", event.Any, someEvents(1)...)
			appends++
		}
		cancel()
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "prepared transaction -1/") &&
				!strings.Contains(err.Error(), "prepared transaction ") {
			t.Errorf("%s while a prepared transaction is open: %v", doing, err)
		}
		mustBe(t, acme, tenancy.Active)
		if appends < 2 {
			t.Errorf("%s: %d appends meanwhile", doing, appends)
		}
	}
	done := make(chan error, 1)
	go func() { done <- store.ArchiveTenant(ctx, "acme") }()
	waitBlocked(t, store, 1)
	mustExec(t, store, "commit prepared 'open'", pgx.QueryExecModeSimpleProtocol)
	noError(t, <-done)
	if events := collect(t, acme.ReadAll(ctx, event.ReadOptions{})); events[0].Stream != "x" {
		t.Errorf("the first event is %+v", events[0])
	}
}

// Reads do not wait for an archiving and do not delay it.
func TestReadsDoNotDelayArchiving(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	newTenant(t, store, "acme")
	ctx := testContext(t)
	noError(t, pgx.BeginFunc(ctx, store.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select from millrace_acme.events"); err != nil {
			return err
		}
		return errors.Join(store.ArchiveTenant(ctx, "acme"), store.UnarchiveTenant(ctx, "acme"),
			store.ArchiveTenant(ctx, "acme"))
	}))
}

// mustWait returns when a session of the store's database waits for a lock, and ends the test if done is sent before.
func mustWait(t *testing.T, store *Store, done <-chan bool) {
	t.Helper()
	for one[int](t, store,
		"select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 0 {
		select {
		case <-done:
			t.Fatal("it does not wait for a claim in progress")
		default:
		}
	}
}

// TestSuspensionEndsWhenAllLeasesAreFree has a claim in progress, which locks the rows before it commits.
func TestSuspensionEndsWhenAllLeasesAreFree(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, node := testContext(t), aNode()
	node.Projections = []string{"a", "b", "c"}
	present(t, store, node)
	rows := ensured(t, store, "a", "b", "c")
	port := store.port()
	ended := func() bool { return must(store.plane().SuspensionEnded(ctx, projection.DefaultTenant))(t) }
	if _, err := store.plane().SuspensionEnded(ctx, projection.DefaultTenant); !errors.Is(err, projection.ErrResumed) {
		t.Errorf("a tenant that runs: %v", err)
	}
	lost := aNode()
	claimed(t, store, lost, true, rows[0]) // it is not registered, and so it is dead
	claimed(t, store, node, true, rows[1])
	noError(t, store.plane().SetTenantDesired(ctx, projection.DefaultTenant, engine.WantPause))
	if ended() {
		t.Error("it ended while a lease is held")
	}
	if leases := must(port.Leases(ctx, rows[1:2]))(t); leases[0].Desired.Runs() {
		t.Errorf("lease %+v of a paused tenant", leases[0])
	}
	if orders := must(port.Orders(ctx, node, nil))(t); orders[rows[1]].Desired.Runs() {
		t.Errorf("orders %+v", orders)
	}
	if leases := claimed(t, store, node, true, rows[2]); len(leases) > 0 {
		t.Fatalf("claimed %+v", leases)
	}
	noError(t, port.Release(ctx, []engine.Advance{{Lease: must(port.Leases(ctx, rows[1:2]))(t)[0]}}))
	if !ended() {
		t.Error("it does not end")
	}
	if got := stateOf(t, store, rows[0]); got.Owner != "" || got.Epoch != 2 {
		t.Errorf("the lease of a dead owner: %+v", got)
	}
	if free := must(port.Free(ctx, node, true, true))(t); len(free) > 0 {
		t.Errorf("free leases %+v", free)
	}
	if counts := must(port.Counts(ctx, nil, nil))(t); len(counts) > 0 {
		t.Errorf("wanted leases %+v", counts)
	}
	// A claim that began before the pause.
	tx := must(store.pool.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(ctx) }() // so that the pool can be closed
	must(tx.Exec(ctx, "update millrace.leases set owner = $1 where id = $2", node.ID, rows[2]))(t)
	done := make(chan bool, 1)
	go func() { done <- ended() }()
	mustWait(t, store, done)
	noError(t, tx.Commit(ctx))
	if <-done {
		t.Error("it ended while a lease is being claimed")
	}
	asleep := func() int { return one[int](t, store, "select count(*) from millrace.leases where asleep") }
	mustExec(t, store, "update millrace.leases set owner = null")
	if !ended() || asleep() != len(rows) {
		t.Errorf("%d leases sleep, want %d", asleep(), len(rows))
	}
	noError(t, store.plane().SetTenantDesired(ctx, projection.DefaultTenant, engine.WantRun))
	if asleep() != 0 || len(must(port.Free(ctx, node, true, true))(t)) != len(rows) {
		t.Errorf("%d leases sleep after the tenant was resumed", asleep())
	}
}

// TestPauseEndsAfterClaimsInProgress has a claim that read the projection before the pause, and commits after it.
func TestPauseEndsAfterClaimsInProgress(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, node := testContext(t), aNode()
	present(t, store, node)
	row, id := ensured(t, store, "a")[0], engine.FullID(projection.ID{Name: "a"})
	tx := must(store.pool.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(ctx) }() // so that the pool can be closed
	must(tx.Exec(ctx, "update millrace.leases set owner = $1 where id = $2", node.ID, row))(t)
	noError(t, store.plane().SetDesiredState(ctx, id, engine.WantPause))
	done := make(chan bool, 1)
	go func() { done <- must(store.plane().PauseEnded(ctx, id))(t) }()
	mustWait(t, store, done)
	noError(t, tx.Commit(ctx))
	if <-done || must(store.plane().PauseEnded(ctx, id))(t) {
		t.Error("it ended while the lease is held")
	}
	mustExec(t, store, "update millrace.leases set owner = null")
	if !must(store.plane().PauseEnded(ctx, id))(t) {
		t.Error("it does not end")
	}
}

// pg_restore --data-only --disable-triggers, and bulk loads, disable all triggers and enable them again.
func TestUnarchivedTenantStaysOpenIfAllTriggersAreEnabled(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	acme, ctx := newTenant(t, store, "acme"), testContext(t)
	for range 2 {
		noError(t, store.ArchiveTenant(ctx, acme.name))
		noError(t, store.UnarchiveTenant(ctx, acme.name))
		mustExec(t, store, "alter table millrace_acme.events disable trigger all")
		mustExec(t, store, "alter table millrace_acme.events enable trigger all")
		mustAppend(t, acme, "s", event.Any, someEvents(2)...)
	}
	noError(t, store.ArchiveTenant(ctx, acme.name))
	if _, err := acme.Append(ctx, "s", event.Any, someEvents(1)...); !errors.Is(err, tenancy.ErrArchived) {
		t.Errorf("append to the archived tenant: %v", err)
	}
}

// Leases that are inserted while the tenant is suspended add no cost to searches for free leases, and run when it is
// resumed.
func TestNewLeasesOfASuspendedTenantSleep(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	all := []engine.NewProjection{
		{Tenant: projection.DefaultTenant, Name: "p", Partitions: 1},
		{Tenant: projection.DefaultTenant, Name: "q", Partitions: 2},
	}
	must(store.plane().Ensure(ctx, all[:1]))(t)
	noError(t, store.plane().SetTenantDesired(ctx, projection.DefaultTenant, engine.WantPause))
	must(store.plane().Ensure(ctx, all))(t)
	resplitInto(t, store, 3)
	const asleep = "select count(*) from millrace.leases where asleep"
	if n := one[int](t, store, asleep); n != 5 {
		t.Errorf("%d leases of 5 sleep", n)
	}
	noError(t, store.plane().SetTenantDesired(ctx, projection.DefaultTenant, engine.WantRun))
	resplitInto(t, store, 4)
	if n := one[int](t, store, asleep); n != 0 {
		t.Errorf("%d leases sleep", n)
	}
}

func TestLifeOfATenantNeedsTheOwnerOfItsSchema(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	owner := migrated(t, openStore(t, dsn, Options{}))
	newTenant(t, owner, "acme")
	role := "role_" + strings.ReplaceAll(owner.pool.Config().ConnConfig.Database, "-", "_")
	mustExec(t, owner,
		sqltext.Fill(`create role {role}; grant usage on schema millrace, millrace_acme to {role}; grant select, insert, update, delete on all tables in schema millrace, millrace_acme to {role}`,
			"{role}", sqltext.Name(role)), pgx.QueryExecModeSimpleProtocol)
	t.Cleanup(func() {
		mustExec(t, owner, sqltext.Fill("drop owned by {role}; drop role {role}", "{role}", sqltext.Name(role)),
			pgx.QueryExecModeSimpleProtocol)
	})
	other := openStore(t, must(pgtest.WithSetting(dsn, "options", "-crole="+role))(t), Options{})
	ctx := testContext(t)
	for doing, err := range map[string]error{
		"archive": other.ArchiveTenant(ctx, "acme"),
		"drop":    other.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}),
	} {
		if err == nil || !strings.Contains(err.Error(), "run this as the role ") ||
			!strings.Contains(err.Error(), "which owns the schemas") {
			t.Errorf("%s: %v", doing, err)
		}
	}
	tenants := must(owner.port().Tenants(ctx, nil))(t)
	if slices.ContainsFunc(tenants, func(t engine.Tenant) bool { return t.State != tenancy.Active }) {
		t.Errorf("tenants %+v", tenants)
	}
	mustAppend(t, must(owner.ForTenant("acme"))(t), "s", event.Any, someEvents(1)...)
}

// Appends queue behind a change of a tenant that waits for a lock.
func TestWaitForLocksIsShortIfNoVacuumWorks(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for _, schema := range []any{nil, store.tenant.schema} {
		tx := must(store.pool.Begin(testContext(t)))(t)
		must(tx.Exec(testContext(t), queries.Text("limit_lock_wait"), pgx.QueryExecModeExec, 50, schema))(t)
		var limit string
		noError(t, tx.QueryRow(testContext(t), "show lock_timeout").Scan(&limit))
		noError(t, tx.Rollback(testContext(t)))
		if limit != "50ms" {
			t.Errorf("with schema %v a wait may take %s", schema, limit)
		}
	}
}
