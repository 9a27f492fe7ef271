package pgstore

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/tenancy"
)

func TestConcurrentMigrationsAndTenants(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	const n = 8
	stores := make([]*Store, n)
	for i := range stores {
		stores[i] = openStore(t, dsn, Options{})
	}
	ctx := testContext(t)
	noError(t, together(2*n, func(i int) error {
		if i%2 == 0 {
			return stores[i/2].Migrate(ctx)
		}
		// Tenants are made while others still migrate: every name by two stores.
		for {
			_, err := stores[i/2].CreateTenant(ctx, fmt.Sprint("tenant", i/4))
			if !errors.Is(err, ErrNotMigrated) {
				return err
			}
		}
	}))
	tenants, err := stores[0].Tenants(ctx)
	if err != nil || !slices.Equal(tenants, []string{"default", "tenant0", "tenant1", "tenant2", "tenant3"}) {
		t.Fatalf("tenants %v, %v", tenants, err)
	}
	for _, name := range tenants {
		mustAppend(t, newTenant(t, stores[1], name), "s", event.NoStream, someEvents(1)...)
	}
	if n := one[int](t, stores[0], "select count(*) from millrace.schema_versions"); n != len(ownMigrations.control) {
		t.Errorf("%d versions are recorded", n)
	}
}

// withMore are this program's migrations and n more on both sides.
func withMore(n int) migrations {
	m := migrations{control: slices.Clone(ownMigrations.control), tenant: slices.Clone(ownMigrations.tenant)}
	for i := range n {
		m.control = append(m.control, migration.Step{Name: fmt.Sprint("more", i), SQL: fmt.Sprintf(
			`create function {control}.more%d() returns int language plpgsql as $$ begin return %d; end $$; select 1;`,
			i, i)})
		m.tenant = append(m.tenant, migration.Step{Name: fmt.Sprint("more", i), SQL: fmt.Sprintf(
			`alter table {tenant}.streams add more%d int; comment on column {tenant}.streams.more%d is '{control}';`, i,
			i)})
	}
	return m
}

func TestMigrateGoesForwardFromEveryEarlierVersion(t *testing.T) {
	t.Parallel()
	for from := range 3 {
		t.Run(fmt.Sprintf("from %d more", from), func(t *testing.T) {
			store := openStore(t, pgtest.Database(t), Options{})
			ctx := testContext(t)
			noError(t, store.migrate(ctx, withMore(from)))
			must(store.migrator().createTenant(ctx, "early", withMore(from)))(t)
			mustAppend(t, store.tenant, "s", event.Any, someEvents(2)...)
			noError(t, store.migrate(ctx, withMore(3)))
			if n := one[int](t, store, "select millrace.more2()"); n != 2 {
				t.Errorf("more2 returned %d", n)
			}
			for _, tenant := range []string{"default", "early"} {
				if n := one[int](t, store, "select count(more0) + count(more2) from millrace_"+tenant+
					".streams"); n != 0 {
					t.Errorf("%d rows", n)
				}
				version := one[int](t, store, "select version from millrace.tenants where tenant = $1", tenant)
				if version != len(ownMigrations.tenant)+3 {
					t.Errorf("%s is at version %d", tenant, version)
				}
			}
			mustAppend(t, store.tenant, "s", event.Exact(2), someEvents(1)...)
		})
	}
}

func TestMigrationThatFailsLeavesTheVersionBeforeIt(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	m := withMore(2)
	m.control[len(m.control)-1].SQL = "create table {control}.half (n int); select 1/0"
	err := store.migrate(testContext(t), m)
	if !pgerr.Is(err, "22012") || !strings.Contains(err.Error(), "migration more1") {
		t.Errorf("error %v", err)
	}
	if got := one[int](t, store, "select max(version) from millrace.schema_versions"); got != len(m.control)-1 {
		t.Errorf("version %d, want %d", got, len(m.control)-1)
	}
	if one[bool](t, store, "select to_regclass('millrace.half') is not null") {
		t.Error("half of the migration stayed")
	}
	m = withMore(2)
	m.tenant[len(m.tenant)-1].SQL = "select 1/0"
	if err := store.migrate(testContext(t), m); !pgerr.Is(err, "22012") ||
		!strings.Contains(err.Error(), `tenant "default"`) {
		t.Errorf("error %v", err)
	}
	if got := one[int](t, store, "select version from millrace.tenants"); got != len(ownMigrations.tenant) {
		t.Errorf("tenant version %d", got)
	}
	noError(t, store.migrate(testContext(t), withMore(2)))
}

func TestOneVersionNewerIsAcceptedAndTwoAreRefused(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	use := func() error {
		_, tenantsErr := store.Tenants(ctx)
		_, createErr := store.CreateTenant(ctx, "during")
		return errors.Join(store.Migrate(ctx), tenantsErr, createErr)
	}
	noError(t, store.migrate(ctx, withMore(1)))
	if err := use(); err != nil {
		t.Errorf("one version newer: %v", err)
	}
	noError(t, store.migrate(ctx, withMore(2)))
	own := len(ownMigrations.control)
	want := fmt.Sprintf("schema version %d, this program has %d and accepts up to %d", own+2, own, own+1)
	_, tenantsErr := store.Tenants(ctx)
	_, createErr := store.CreateTenant(ctx, "later")
	for _, err := range []error{store.Migrate(ctx), tenantsErr, createErr} {
		if !errors.Is(err, ErrSchemaTooNew) || !strings.Contains(err.Error(), want) {
			t.Errorf("two versions newer: %v", err)
		}
	}
}

func TestTenantTwoVersionsNewerIsRefusedByName(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	newTenant(t, store, "future")
	mustExec(t, store, "update millrace.tenants set version = version + 2 where tenant = 'future'")
	if err := store.Migrate(testContext(t)); !errors.Is(err, ErrSchemaTooNew) ||
		!strings.Contains(err.Error(), `"future"`) {
		t.Errorf("error %v", err)
	}
}

func TestOlderSchemaIsRefusedUntilMigrated(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	if _, err := store.readTenants(testContext(t), withMore(1), nil); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("error %v", err)
	}
}

func TestForeignSchemaIsNotTakenOver(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, "create schema millrace_theirs")
	_, err := store.CreateTenant(testContext(t), "theirs")
	if !errors.Is(err, ErrForeignSchema) || !strings.Contains(err.Error(), `"millrace_theirs"`) {
		t.Errorf("error %v", err)
	}
	if tenants, err := store.Tenants(testContext(t)); err != nil || len(tenants) != 1 {
		t.Errorf("tenants %v, %v", tenants, err)
	}
	// The schema of a tenant is no control schema: a drop of the tenant would drop the other store.
	acme := newTenant(t, store, "acme")
	other := openStore(t, store.pool.Config().ConnString(), Options{Schema: acme.schema})
	if err := other.Migrate(testContext(t)); !errors.Is(err, ErrForeignSchema) {
		t.Errorf("a control schema in the schema of a tenant: %v", err)
	}
}

func TestHostileTenantNamesWorkAndStayApart(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	names := []string{`"; drop schema millrace; --`, `a"b`, `a""b`, `'quoted'`, `{stream}`, `{tenant}`, `{control}`,
		`$1`,
		`a.b`, `Upper`, `upper`, ` space `, `ünïcödé`, `$$`, `\`, `*`, `/*`, `--`, strings.Repeat("x", 200)}
	for i, name := range names {
		tenant := newTenant(t, store, name)
		mustAppend(t, tenant, "s", event.NoStream.WithKey("k"), someEvents(i+1)...)
		if _, err := tenant.Append(ctx, "s", event.NoStream.WithKey("other"), someEvents(1)...); !errors.Is(err,
			event.ErrVersionConflict) {
			t.Errorf("%q: error %v", name, err)
		}
	}
	for i, name := range names {
		tenant := newTenant(t, store, name)
		if n := len(collect(t, tenant.ReadAll(ctx, event.ReadOptions{Types: []string{"Counted"}}))); n != i+1 {
			t.Errorf("%q: %d events, want %d", name, n, i+1)
		}
		if n := len(collect(t, tenant.ReadStream(ctx, "s", 1))); n != i+1 {
			t.Errorf("%q: %d events in the stream, want %d", name, n, i+1)
		}
	}
	tenants, err := store.Tenants(ctx)
	if err != nil || len(tenants) != len(names)+1 || !slices.IsSorted(tenants) {
		t.Errorf("tenants %q, %v", tenants, err)
	}
	for _, bad := range []string{"", "new\nline", "nul\x00", "\xff", strings.Repeat("x", 201)} {
		if _, err := store.CreateTenant(ctx, bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	for i, name := range names {
		noError(t, store.ArchiveTenant(ctx, name))
		noError(t, store.DropTenant(ctx, name, tenancy.DropOptions{Confirm: name}))
		if n := one[int](t, store,
			"select count(*) from pg_namespace where nspname like 'millrace\\_%'"); n != len(names)-i {
			t.Errorf("%q: %d schemas are left, want %d", name, n, len(names)-i)
		}
	}
}

func TestStoresWithTheirOwnSchemasShareADatabase(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	names := []string{"", "other", `we"ird {tenant}`}
	for i, schema := range names {
		store := openStore(t, dsn, Options{Schema: schema})
		if err := store.Migrate(testContext(t)); err != nil {
			t.Fatalf("%q: %v", schema, err)
		}
		if r := mustAppend(t, store.tenant, "s", event.NoStream.WithKey("k"), someEvents(i+1)...); r.Positions[0] != 1 {
			t.Errorf("%q: positions %v", schema, r.Positions)
		}
	}
}

// catalog is what the server knows of the schemas of a store, as text.
func catalog(t *testing.T, store *Store) string {
	t.Helper()
	lines := one[[]string](t, store, `
		with ours as (select oid, nspname from pg_namespace where nspname like 'millrace%'),
		lines(line) as (
			select format('schema %s %s', nspname, (select nspacl from pg_namespace n where n.oid = ours.oid)) from ours
			union all select format('relation %s.%s %s %s %s %s', nspname, relname, relkind, relpersistence, reloptions, relacl)
			  from pg_class c join ours on ours.oid = relnamespace
			union all select format('column %s.%s %s %s %s %s %s %s %s', nspname, relname, attnum, attname, format_type(atttypid, atttypmod),
			                        attnotnull, attidentity, attcollation, pg_get_expr(adbin, adrelid))
			  from pg_class c join ours on ours.oid = relnamespace join pg_attribute a on attrelid = c.oid and attnum > 0
			  left join pg_attrdef on adrelid = c.oid and adnum = attnum where c.relkind = 'r'
			union all select format('constraint %s %s %s', nspname, conname, pg_get_constraintdef(k.oid))
			  from pg_constraint k join ours on ours.oid = connamespace
			union all select format('index %s', pg_get_indexdef(i.indexrelid))
			  from pg_index i join pg_class c on c.oid = i.indexrelid join ours on ours.oid = c.relnamespace
			union all select format('function %s %s', pg_get_functiondef(p.oid), proacl) from pg_proc p join ours on ours.oid = pronamespace
			union all select format('version %s %s', version, name) from millrace.schema_versions
			union all select format('tenant %s %s %s', tenant, schema_name, version) from millrace.tenants)
		select array_agg(line order by line collate "C") from lines`)
	return strings.Join(lines, "\n")
}

// runScript runs SQL as tools do that send a whole file at once, in a transaction.
func runScript(t *testing.T, store *Store, sql string) error {
	t.Helper()
	return pgx.BeginFunc(testContext(t), store.pool,
		func(tx pgx.Tx) error { return execScript(testContext(t), tx, sql) })
}

func TestMigrationsAsSQLDoWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	reference := newStore(t)
	newTenant(t, reference, "acme")
	want := catalog(t, reference)
	control, initial, acme := must(ControlMigrations("", 0))(t), must(TenantMigrations("", "default", 0))(t),
		must(TenantMigrations("", "acme", 0))(t)
	for name, run := range map[string]func(t *testing.T, store *Store,
		sql string) error{"at once": runScript, "by psql": psql} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Database(t)
			store := openStore(t, dsn, Options{})
			for _, sql := range []string{control, initial, acme} {
				noError(t, run(t, store, sql))
			}
			if got := catalog(t, store); got != want {
				t.Errorf("the catalogs differ: %s", difference(want, got))
			}
			if err := runScript(t, store, control); err == nil {
				t.Error("the migrations run twice")
			}
			if err := runScript(t, store, acme); err == nil {
				t.Error("the tenant is made twice")
			}
			if got := catalog(t, store); got != want {
				t.Errorf("what failed had an effect: %s", difference(want, got))
			}
			role, roleDSN := newRole(t, store, dsn)
			mustExec(t, store, "grant usage on schema millrace to "+role)
			mustExec(t, store, "grant select on all tables in schema millrace to "+role)
			if err := openStore(t, roleDSN, Options{}).Migrate(testContext(t)); err != nil {
				t.Errorf("Migrate finds something to do: %v", err)
			}
			mustAppend(t, newTenant(t, store, "acme"), "s", event.NoStream.WithKey("k"), someEvents(2)...)
		})
	}
}

// psql runs SQL by PostgreSQL's own client. Some distributions of the server lack it.
func psql(t *testing.T, store *Store, sql string) error {
	t.Helper()
	config := store.pool.Config().ConnConfig
	cmd := exec.CommandContext(testContext(t), findPSQL(t), "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-f", "-",
		config.ConnString())
	cmd.Stdin = strings.NewReader(sql)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// findPSQL returns the psql beside the server's binaries, otherwise that of PATH. Without either it skips the test.
func findPSQL(t *testing.T) string {
	t.Helper()
	binaries, missing := pgtest.Find()
	if missing == nil {
		path, err := exec.LookPath(filepath.Join(binaries, "psql"))
		if err == nil {
			return path
		}
		missing = err
	}
	path, err := exec.LookPath("psql")
	if err != nil {
		t.Skipf("psql is missing beside the server's binaries (%v) and in PATH (%v)", missing, err)
	}
	return path
}

// difference is what only one of two texts has.
func difference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	var lines []string
	for _, line := range wants {
		if !slices.Contains(gots, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range gots {
		if !slices.Contains(wants, line) {
			lines = append(lines, "+ "+line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestMigrationsAsSQLGoOnFromEveryVersion(t *testing.T) {
	t.Parallel()
	newest := withMore(3)
	reference := openStore(t, pgtest.Database(t), Options{})
	noError(t, reference.migrate(testContext(t), newest))
	want := catalog(t, reference)
	for from := range 3 {
		store := openStore(t, pgtest.Database(t), Options{})
		old := withMore(from)
		noError(t, store.migrate(testContext(t), old))
		for _, wrong := range []int{0, len(old.control) + 1} {
			if wrong >= len(newest.control) {
				continue
			}
			if err := runScript(t, store, must(controlScript("", wrong, newest.control))(t)); err == nil {
				t.Errorf("control migrations after version %d run at version %d", wrong, len(old.control))
			}
		}
		for _, wrong := range []int{0, len(old.tenant) + 1} {
			if wrong >= len(newest.tenant) {
				continue
			}
			if err := runScript(t, store, must(tenantScript("", "default", wrong, newest.tenant))(t)); err == nil {
				t.Errorf("tenant migrations after version %d run at version %d", wrong, len(old.tenant))
			}
		}
		for _, sql := range []string{must(controlScript("", len(old.control), newest.control))(t),
			must(tenantScript("", "default", len(old.tenant), newest.tenant))(t)} {
			noError(t, runScript(t, store, sql))
		}
		if got := catalog(t, store); got != want {
			t.Errorf("from version %d the catalogs differ: %s", len(old.control), difference(want, got))
		}
	}
	own := ownMigrations
	if sql := must(ControlMigrations("", len(own.control)))(t) + must(TenantMigrations("", "a",
		len(own.tenant)))(t); sql != "" {
		t.Errorf("nothing is left, but: %s", sql)
	}
}

func TestMigrationsAsSQLOfHostileNames(t *testing.T) {
	t.Parallel()
	const schema = `we"ird 'quoted' {tenant}`
	store := openStore(t, pgtest.Database(t), Options{Schema: schema})
	noError(t, runScript(t, store, must(ControlMigrations(schema, 0))(t)))
	names := []string{
		"default", `"; drop schema a; --`, `'quoted'`, `{tenant}`, `{control}`, `$1`, `$$`, `\`, `/*`, `--`,
	}
	newest := slices.Concat(ownMigrations.tenant,
		[]migration.Step{{Name: "more", SQL: "alter table {tenant}.streams add more int"}})
	for _, name := range names {
		if err := runScript(t, store, must(TenantMigrations(schema, name, 0))(t)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustAppend(t, newTenant(t, store, name), "s", event.NoStream, someEvents(1)...)
		if err := runScript(t, store, must(tenantScript(schema, name, len(newest)-1, newest))(t)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, bad := range []struct{ schema, tenant string }{{"pg_x", "a"}, {"", ""}, {"", "new\nline"}} {
		if _, err := TenantMigrations(bad.schema, bad.tenant, 0); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if _, err := ControlMigrations("", -1); err == nil {
		t.Error("a negative version is accepted")
	}
	if _, err := ControlMigrations("", 99); err == nil {
		t.Error("a version that does not exist is accepted")
	}
}
