package pgstore

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
)

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
	return pgx.BeginFunc(testContext(t), store.pool, func(tx pgx.Tx) error { return execScript(testContext(t), tx, sql) })
}

func TestMigrationsAsSQLDoWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	reference := newStore(t)
	newTenant(t, reference, "acme")
	want := catalog(t, reference)
	control, initial, acme := must(ControlMigrations("", 0))(t), must(TenantMigrations("", "default", 0))(t), must(TenantMigrations("", "acme", 0))(t)
	for name, run := range map[string]func(t *testing.T, store *Store, sql string) error{"at once": runScript, "by psql": psql} {
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
	cmd := exec.CommandContext(testContext(t), findPSQL(t), "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-f", "-", config.ConnString())
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
			if err := runScript(t, store, must(controlScript("", wrong, newest.control))(t)); wrong < len(newest.control) && err == nil {
				t.Errorf("control migrations after version %d run at version %d", wrong, len(old.control))
			}
			if err := runScript(t, store, must(tenantScript("", "default", wrong, newest.tenant))(t)); wrong < len(newest.tenant) && err == nil {
				t.Errorf("tenant migrations after version %d run at version %d", wrong, len(old.tenant))
			}
		}
		for _, sql := range []string{must(controlScript("", len(old.control), newest.control))(t), must(tenantScript("", "default", len(old.tenant), newest.tenant))(t)} {
			noError(t, runScript(t, store, sql))
		}
		if got := catalog(t, store); got != want {
			t.Errorf("from version %d the catalogs differ: %s", len(old.control), difference(want, got))
		}
	}
	own := ownMigrations
	if sql := must(ControlMigrations("", len(own.control)))(t) + must(TenantMigrations("", "a", len(own.tenant)))(t); sql != "" {
		t.Errorf("nothing is left, but: %s", sql)
	}
}

func TestMigrationsAsSQLOfHostileNames(t *testing.T) {
	t.Parallel()
	const schema = `we"ird 'quoted' {tenant}`
	store := openStore(t, pgtest.Database(t), Options{Schema: schema})
	noError(t, runScript(t, store, must(ControlMigrations(schema, 0))(t)))
	names := []string{"default", `"; drop schema a; --`, `'quoted'`, `{tenant}`, `{control}`, `$1`, `$$`, `\`, `/*`, `--`}
	newest := slices.Concat(ownMigrations.tenant, []migration{{"more", "alter table {tenant}.streams add more int"}})
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
