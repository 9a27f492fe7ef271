package pgstore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
)

func TestSchemasOfTheServerAreRefusedByName(t *testing.T) {
	t.Parallel()
	store := openStore(t, pgtest.Database(t), Options{})
	for _, schema := range []string{"information_schema", "pg_catalog", "pg_toast", "pg_mine", "pg", "public"} {
		_, err := OpenPool(testContext(t), store.pool, Options{Schema: schema})
		if err == nil || !strings.Contains(err.Error(), "Options.Schema") || !strings.Contains(err.Error(), `"`+schema+`"`) {
			t.Errorf("%s: error %v", schema, err)
		}
	}
	for _, schema := range []string{"pgstore", "publications", "information"} {
		if _, err := OpenPool(testContext(t), store.pool, Options{Schema: schema}); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func TestSchemaWithForeignObjectsOfOurNamesIsNotTakenOver(t *testing.T) {
	t.Parallel()
	for what, theirs := range map[string]struct{ sql, name string }{
		"a table":                  {"create table millrace.tenants (id int)", `"tenants"`},
		"a view":                   {"create view millrace.leases as select 1 as id", `"leases"`},
		"a function":               {"create function millrace.advance() returns int language sql as 'select 1'", `"advance"`},
		"versions of another tool": {"create table millrace.schema_versions (version int, applied boolean)", `"schema_versions"`},
	} {
		t.Run(what, func(t *testing.T) {
			store := openStore(t, pgtest.Database(t), Options{})
			mustExec(t, store, "create schema millrace")
			mustExec(t, store, theirs.sql)
			const objects = "select count(*) from pg_class where relnamespace = 'millrace'::regnamespace"
			before := one[int](t, store, objects)
			err := store.Migrate(testContext(t))
			if !errors.Is(err, ErrForeignSchema) || !strings.Contains(err.Error(), theirs.name) || !strings.Contains(err.Error(), `"millrace"`) {
				t.Errorf("error %v", err)
			}
			if after := one[int](t, store, objects); after != before {
				t.Errorf("%d objects, before Migrate %d", after, before)
			}
		})
	}
}

func TestSchemaWithForeignObjectsOfOtherNamesIsShared(t *testing.T) {
	t.Parallel()
	store := openStore(t, pgtest.Database(t), Options{})
	mustExec(t, store, "create schema millrace")
	mustExec(t, store, "create table millrace.theirs (id int)")
	migrated(t, store)
}

func TestNamesOfTheControlSchemaAreFoundInItsMigrations(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for _, name := range controlNames(ownMigrations.control) {
		if !one[bool](t, store, `select exists (select from pg_class where relnamespace = 'millrace'::regnamespace and relname = $1)
			or exists (select from pg_proc where pronamespace = 'millrace'::regnamespace and proname = $1)`, name) {
			t.Errorf("%s was not created", name)
		}
	}
	created := one[[]string](t, store, `select array_agg(name) from (
		select relname::text as name from pg_class where relnamespace = 'millrace'::regnamespace and relkind in ('r', 'v', 'p')
		union select proname::text from pg_proc where pronamespace = 'millrace'::regnamespace) n`)
	for _, name := range created {
		if !slices.Contains(controlNames(ownMigrations.control), name) {
			t.Errorf("%s is not among the names", name)
		}
	}
}
