package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/lifecycle"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// furnished creates a tenant with rows in every table of the store. It has that many events, in streams of ten.
func furnished(t testing.TB, store *Store, name string, events int) *Tenant {
	t.Helper()
	tenant := newTenant(t, store, name)
	mustAppend(t, tenant, "s", event.Any.WithKey("k"), someEvents(1)...)
	noError(t, store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		for n := 1; n < events; n += 10 {
			if _, err := tenant.AppendTx(ctx, tx, fmt.Sprint("s", n), event.NoStream,
				someEvents(min(10, events-n))...); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, projection := range []string{"p", "q"} {
		addProjection(t, store, name, projection, "")
	}
	const own = " from millrace_projections where tenant = (select id from millrace_tenants where name = ?1)"
	mustExec(t, store,
		`insert into millrace_dead_letters (projection, position, stream_id, version, type, error, stack, attempts, first_failed_at, last_failed_at)
		select id, 1, 's', 1, 'T', 'bad', '', 1, 0, 0`+own, name)
	mustExec(t, store, "insert into millrace_parked_streams (projection, stream_id) select id, 's'"+own, name)
	mustExec(t, store,
		"insert into millrace_commands (projection, kind, max_events, created_at) select id, 'replay', 1, 0"+own, name)
	mustExec(t, store,
		"insert into millrace_retired_projections (tenant, name, reason, retired_at) select id, 'gone', 'forgotten', 0 from millrace_tenants where name = ?1", name)
	must(tenant.Alias(testContext(t), "alias"))(t)
	mustExec(t, store, `insert into millrace_operations (tenant, name, kind, holds, options, requested_at)
		select id, 'p', 'rebuild', '["p"]', '', 0 from millrace_tenants where name = ?1`, name)
	mustExec(t, store,
		"insert into millrace_snapshots (tenant, stream_id) select id, 's' from millrace_tenants where name = ?1", name)
	return tenant
}

// rowsOfTables returns the rows of each table of the store, without notices, which are deleted later.
func rowsOfTables(t testing.TB, store *Store) map[string]string {
	t.Helper()
	tables := make(map[string]string)
	for _, table := range must(columnOf(testContext(t), store,
		"select name from sqlite_schema where type = 'table' and name like 'millrace_%'"))(t) {
		if table != "millrace_notices" {
			names := must(columnOf(testContext(t), store, "select name from pragma_table_xinfo('"+table+"')"))(t)
			tables[table] = one[string](t, store, "select coalesce(group_concat(concat_ws('|', "+
				strings.Join(names, ", ")+"), ' '), '') from "+table)
		}
	}
	return tables
}

func columnOf(ctx context.Context, store *Store, query string) (values []string, err error) {
	rows, err := store.DB().QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, rows.Err()
}

// mustBeAs checks that the tables have the same rows as before.
func mustBeAs(t testing.TB, store *Store, before map[string]string) {
	t.Helper()
	after := rowsOfTables(t, store)
	if maps.Equal(before, after) && len(before) > 8 {
		return
	}
	for table := range after {
		if after[table] != before[table] {
			t.Fatalf("%s has\n%.500s\nwant\n%.500s", table, after[table], before[table])
		}
	}
	t.Fatalf("only %d tables", len(before))
}

func TestDroppedTenantLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	furnished(t, store, "other", 30)
	before := rowsOfTables(t, store)
	for i, state := range []func(acme *Tenant) error{
		func(*Tenant) error { return nil },
		func(acme *Tenant) error { return store.ArchiveTenant(ctx, acme.name) },
		func(acme *Tenant) error { return store.plane().SetTenantDesired(ctx, acme.name, engine.WantPause) },
	} {
		acme := furnished(t, store, "acme", 30)
		if full := rowsOfTables(t, store); i == 0 {
			for table := range full {
				if full[table] == before[table] &&
					!slices.Contains([]string{"millrace_nodes", "millrace_probe", "millrace_copy"}, table) {
					t.Errorf("the tenant has nothing in %s", table)
				}
			}
		}
		noError(t, state(acme))
		noError(t, together(3, func(int) error { // all of them may also find it gone
			if err := store.DropTenant(ctx, acme.name, tenancy.DropOptions{Confirm: acme.name}); !errors.Is(err,
				tenancy.ErrUnknown) {
				return err
			}
			return nil
		}))
		mustBeAs(t, store, before)
	}
	if n := one[int](t, store, "select seq from sqlite_sequence where name = 'millrace_tenants'"); n != 5 {
		t.Errorf("the last tenant had number %d", n)
	}
	newTenant(t, store, "acme")
	if n := one[int](t, store, "select id from millrace_tenants where name = 'acme'"); n != 6 {
		t.Errorf("a tenant that is created again has number %d", n)
	}
}

// TestDropContinuesAfterEachTransaction stops a drop after each of its transactions.
func TestDropContinuesAfterEachTransaction(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, before := testContext(t), rowsOfTables(t, store)
	partly, steps := 0, 0
	for done := false; !done; steps++ {
		const events = 220
		acme := furnished(t, store, "acme", events)
		row := must(store.decideState(ctx, acme.name, control.To(tenancy.Dropping)))(t)
		for range steps {
			noError(t, store.transact(ctx, func(tx *sql.Tx) (err error) {
				done, err = store.deleteSome(ctx, tx, acme.name, row, 0)
				return err
			}))
		}
		left := one[int](t, store, "select count(*) from millrace_events where tenant = ?1", row)
		read, err := readUpTo(acme.ReadAll(ctx, event.ReadOptions{}))
		want := map[bool]error{steps > 0: tenancy.ErrDropping, done: tenancy.ErrUnknown}[true]
		if !errors.Is(err, want) || err == nil && read != events || err != nil && read > 0 {
			t.Errorf("after %d transactions, with %d events left: %d events, %v", steps, left, read, err)
		}
		if left > 0 && left < events {
			partly++
		}
		if done {
			break
		}
		for what, err := range map[string]error{"Append": must2(acme.Append(ctx, "s", event.Any, someEvents(1)...)),
			"CreateTenant":  must2(store.CreateTenant(ctx, "acme")),
			"CreateTenants": store.CreateTenants(ctx, "b", "acme"), "archive": store.ArchiveTenant(ctx, "acme"),
			"unarchive": store.UnarchiveTenant(ctx, "acme"),
			"pause":     store.plane().SetTenantDesired(ctx, "acme", engine.WantPause)} {
			if !errors.Is(err, tenancy.ErrDropping) {
				t.Errorf("%s after %d transactions: %v", what, steps, err)
			}
		}
		noError(t, store.Migrate(ctx))
		noError(t, store.DropTenant(ctx, acme.name, tenancy.DropOptions{Confirm: acme.name}))
		mustBeAs(t, store, before)
	}
	mustBeAs(t, store, before)
	if partly < 2 || steps < 10 {
		t.Errorf("%d transactions, %d of them leave some events", steps, partly)
	}
}

// A drop deletes events while a page of them is read.
func TestPageThatADropInterruptsIsAnError(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	for want, during := range map[error]func(row int32) error{
		tenancy.ErrDropping: func(row int32) error {
			return store.transact(ctx,
				func(tx *sql.Tx) error { return must2(store.deleteSome(ctx, tx, "acme", row, 0)) })
		},
		tenancy.ErrUnknown: func(row int32) error {
			return errors.Join(store.endDrop(ctx, "acme", row, 0), must2(store.CreateTenant(ctx, "acme")))
		},
	} {
		acme := furnished(t, store, "acme", 300)
		pages := acme.pages(ctx, "read_all", 0, nil, func(tenant, _ int64, limit int) []any {
			noError(t, during(must(store.decideState(ctx, "acme", control.To(tenancy.Dropping)))(t)))
			return []any{tenant << positionBits, tenant<<positionBits + lastPosition, limit}
		})
		if page, err := pages.Read(0, 1000); !errors.Is(err, want) {
			t.Errorf("%d of 300 events, %v", len(page.Events), err)
		}
		noError(t, store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
	}
}

// must2 returns the error of a call with a result.
func must2[T any](_ T, err error) error { return err }

// readUpTo counts the events that are read, and returns the error after them.
func readUpTo(events func(yield func(event.Envelope, error) bool)) (n int, err error) {
	for _, err := range events {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// endingContext ends at the last of a number of checks.
type endingContext struct {
	context.Context
	end   context.CancelFunc
	looks *atomic.Int64
}

func (c endingContext) Err() error {
	c.look()
	return c.Context.Err()
}

func (c endingContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c endingContext) look() {
	if c.looks.Add(-1) == 0 {
		c.end()
	}
}

func TestDropContinuesAfterItsContextEnded(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, before := testContext(t), rowsOfTables(t, store)
	states := make(map[tenancy.State]int)
	for looks := 1; ; looks += 1 + looks/4 {
		acme := furnished(t, store, "acme", 30)
		inner, end := context.WithCancel(ctx)
		ending := endingContext{inner, end, new(atomic.Int64)}
		ending.looks.Store(int64(looks))
		err := store.DropTenant(ending, acme.name, tenancy.DropOptions{Confirm: acme.name})
		ended := inner.Err() != nil
		end()
		state, asked := acme.State(ctx)
		switch {
		case errors.Is(asked, tenancy.ErrUnknown):
			state = "gone"
		case asked != nil, err == nil:
			t.Fatalf("after %d looks: the tenant is %s, %v; the drop: %v", looks, state, asked, err)
		}
		states[state]++
		if state != "gone" {
			noError(t, store.DropTenant(ctx, acme.name, tenancy.DropOptions{Confirm: acme.name}))
		}
		mustBeAs(t, store, before)
		if !ended {
			break
		}
	}
	t.Logf("states after the interruptions: %v", states)
	for _, state := range []tenancy.State{tenancy.Active, tenancy.Dropping, "gone"} {
		if states[state] == 0 {
			t.Errorf("no interruption left the tenant in state %s", state)
		}
	}
}

// childDrops drops a tenant.
func childDrops(path string) error {
	store, err := Open(context.Background(), path, Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	return store.DropTenant(context.Background(), "acme", tenancy.DropOptions{Confirm: "acme"})
}

func TestDropContinuesAfterItsProcessWasKilled(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := migrated(t, openStore(t, path, Options{}))
	ctx, before := testContext(t), rowsOfTables(t, store)
	began := func() bool {
		return one[int](t, store,
			"select count(*) from millrace_tenants where name = 'acme' and state <> 'dropping'") == 0
	}
	const events = 3000
	partly := 0
	for kills := 0; kills < 3 || partly == 0; kills++ {
		acme := furnished(t, store, "acme", events)
		cmd := child(ctx, "drop", path)
		noError(t, cmd.Start())
		until(t, "the drop begins", began)
		<-time.After(rand.N(30 * time.Millisecond))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if n := one[int](t, store, "select count(*) from millrace_events where tenant > 1"); n > 0 && n < events {
			partly++
		}
		if _, err := acme.State(ctx); !errors.Is(err, tenancy.ErrUnknown) {
			noError(t, store.DropTenant(ctx, acme.name, tenancy.DropOptions{Confirm: acme.name}))
		}
		mustBeAs(t, store, before)
	}
	if check := one[string](t, store, "pragma integrity_check"); check != "ok" {
		t.Error(check)
	}
}

// A drop gives way to appends between two transactions.
func TestAppendsToOthersRunDuringADrop(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	acme := furnished(t, store, "acme", 5000)
	row := must(store.decideState(ctx, acme.name, control.To(tenancy.Dropping)))(t)
	done := make(chan error, 1)
	go func() { done <- store.endDrop(ctx, acme.name, row, 0) }()
	deleting := func() bool { return one[int](t, store, "select count(*) from millrace_tenants where deleting") > 0 }
	during := 0
	for running := true; running; {
		before := deleting()
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
		if before && deleting() {
			during++
		}
		select {
		case err := <-done:
			noError(t, err)
			running = false
		default:
		}
	}
	if during == 0 {
		t.Error("no append during the drop")
	}
}

func TestDropThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	newTenant(t, store, "acme")
	for what, err := range map[string]error{"another name": store.DropTenant(ctx, "acme",
		tenancy.DropOptions{Confirm: "acm"}), "no name": store.DropTenant(ctx,
		"acme", tenancy.DropOptions{Confirm: ""}),
		"the default tenant":       store.DropTenant(ctx, "default", tenancy.DropOptions{Confirm: "default"}),
		"a name that is not valid": store.DropTenant(ctx, "a\nb", tenancy.DropOptions{Confirm: "a\nb"}),
		"an unknown tenant":        store.DropTenant(ctx, "none", tenancy.DropOptions{Confirm: "none"})} {
		if err == nil || !strings.HasPrefix(err.Error(), "drop tenant") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if names := must(store.Tenants(ctx))(t); !slices.Equal(names, []string{"acme", projection.DefaultTenant}) {
		t.Errorf("tenants %q", names)
	}
	// The owner of the file runs the tenant's projections until they have stopped.
	row := addProjection(t, store, "acme", "p", living(t, store))
	short, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- store.DropTenant(short, "acme", tenancy.DropOptions{Confirm: "acme"}) }()
	until(t, "the tenant is being dropped", func() bool {
		return must(must(store.ForTenant("acme"))(t).State(ctx))(t) == tenancy.Dropping
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("while the owner has a lease: %v", err)
	}
	if n := one[int](t, store, "select count(*) from millrace_tenants where deleting"); n > 0 {
		t.Error("rows are deleted although a projection runs")
	}
	mustExec(t, store, "update millrace_leases set owner = null where id = ?1", row)
	noError(t, store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
	if names := must(store.Tenants(ctx))(t); fmt.Sprint(names) != "[default]" {
		t.Errorf("tenants %q", names)
	}
}

// viewed is a port that calls after when View has run.
type viewed struct {
	port
	after func()
}

func (v viewed) View(ctx context.Context, fn func(store.View) error) error {
	defer v.after()
	return v.port.View(ctx, fn)
}

// A node ends the last batch of a tenant while a drop checks again and again whether anything of it runs.
func TestDropRemovesNothingWhileAProjectionRuns(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx := testContext(t)
	newTenant(t, s, "acme")
	row := addProjection(t, s, "acme", "p", living(t, s))
	checks := 0
	plane := control.On(viewed{s.port(), func() {
		checks++
		if checks == 3 {
			mustExec(t, s, "update millrace_leases set owner = null where id = ?1", row)
		}
	}})
	noError(t, lifecycle.Drop(ctx, plane, "acme", "acme",
		func() (int32, error) { return s.decideState(ctx, "acme", control.To(tenancy.Dropping)) },
		func(row int32) error {
			if n := one[int](t, s, "select count(*) from millrace_leases where owner is not null"); n > 0 {
				t.Errorf("after %d checks rows are deleted although a projection runs", checks)
			}
			return s.endDrop(ctx, "acme", row, deletionTime)
		}))
	if names := must(s.Tenants(ctx))(t); !slices.Equal(names, []string{projection.DefaultTenant}) {
		t.Errorf("tenants %q", names)
	}
}

// An older program drops a tenant and leaves its aliases. The next drop deletes them, and no others.
func TestDropDeletesAliasesThatAnOlderProgramLeft(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	const aliases = 2*deletedTogether + 1
	for _, name := range []string{"a", "left", "b", "left too", "acme", "c"} {
		tenant := must(store.CreateTenant(ctx, name))(t)
		noError(t, store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for i := range aliases {
				if _, err := tenant.AliasTx(ctx, tx, fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	mustExec(t, store, "delete from millrace_tenants where name like 'left%'")
	noError(t, store.DropTenant(ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
	for name, want := range map[string]int{"a": aliases, "b": aliases, "c": aliases, "": 0} {
		if n := one[int](t, store,
			"select count(*) from millrace_aliases a left join millrace_tenants t on t.id = a.tenant where coalesce(t.name, '') = ?", name); n != want {
			t.Errorf("tenant %q has %d aliases, want %d", name, n, want)
		}
	}
}
