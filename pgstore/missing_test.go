package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestMigrateSkipsATenantWhoseSchemaIsGone(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.ErrorLevel)
	store := migrated(t, openStore(t, pgtest.Database(t), Options{Logger: slog.New(zapslog.NewHandler(core))}))
	for _, name := range []string{"a", "b", "c"} {
		newTenant(t, store, name)
	}
	mustExec(t, store, "alter schema millrace_b rename to away")
	mustExec(t, store, "alter schema millrace_default rename to away_default")
	own := len(ownMigrations.tenant)
	versions := func(want map[string]int) {
		t.Helper()
		for tenant, version := range want {
			if got := one[int](t, store, "select version from millrace.tenants where tenant = $1",
				tenant); got != version {
				t.Errorf("%s is at version %d, want %d", tenant, got, version)
			}
		}
	}
	noError(t, store.migrate(testContext(t), withMore(1)))
	versions(map[string]int{"a": own + 1, "b": own, "c": own + 1, "default": own})
	said := make(map[any]bool)
	for _, entry := range logs.TakeAll() {
		said[entry.ContextMap()["tenant"]] = strings.Contains(entry.ContextMap()["error"].(string), "is gone")
	}
	if len(said) != 2 || !said["b"] || !said["default"] {
		t.Errorf("logged: %v", said)
	}
	mustExec(t, store, "alter schema away rename to millrace_b")
	mustExec(t, store, "alter schema away_default rename to millrace_default")
	noError(t, store.migrate(testContext(t), withMore(1)))
	versions(map[string]int{"b": own + 1, "default": own + 1})
	if logs.Len() > 0 {
		t.Errorf("logged: %v", logs.All())
	}
}

func TestOutageIsNotTakenForAMissingTenant(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel() // the read of the reason fails
	missing := &pgconn.PgError{Code: pgerr.UndefinedTable, Message: "no table"}
	err := store.tenant.absent(ctx, missing)
	if !errors.Is(err, context.Canceled) || pgerr.IsMissing(err) || !strings.Contains(err.Error(), "no table") {
		t.Errorf("error %v", err)
	}
}

func TestErrorSaysWhyATenantIsAbsent(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	read := func(tenant string) error {
		_, err := store.port().Read(ctx, tenant, engine.ReadRange{UpTo: 10, Limit: 1})
		return err
	}
	newTenant(t, store, "table")
	mustExec(t, store, "drop table millrace_table.events")
	newTenant(t, store, "schema")
	mustExec(t, store, "drop schema millrace_schema cascade")
	newTenant(t, store, "old")
	mustExec(t, store, "drop table millrace_old.events")
	mustExec(t, store, "update millrace.tenants set version = 0 where tenant = 'old'")
	for tenant, want := range map[string]struct {
		err  error
		says string
	}{
		"table":   {tenancy.ErrDropped, `a table in the schema "millrace_table" of tenant "table" is gone`},
		"schema":  {tenancy.ErrDropped, `the schema "millrace_schema" of tenant "schema" is gone`},
		"old":     {ErrNotMigrated, "schema version 0 is older"},
		"unknown": {tenancy.ErrUnknown, `"unknown"`},
	} {
		absent := must(store.ForTenant(tenant))(t)
		_, appendErr := absent.Append(ctx, "s", event.Any, someEvents(1)...)
		_, keyedErr := absent.Append(ctx, "s", event.Exact(1).WithKey("k"), someEvents(1)...)
		_, pollErr := store.port().TailPoller(tenant).Poll(ctx)
		errs := map[string]error{"Read": read(tenant), "Absent": store.port().Absent(ctx, tenant), "Append": appendErr,
			"Append with a key": keyedErr,
			"ReadAll":           firstError(absent.ReadAll(ctx, event.ReadOptions{})),
			"ReadStream":        firstError(absent.ReadStream(ctx, "s", 1)), "Poll": pollErr}
		for what, err := range errs {
			if !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.says) ||
				classify(err).Class != faults.Configuration {
				t.Errorf("%s of %s: %v", what, tenant, err)
			}
		}
	}
	noError(t, store.port().Absent(ctx, "default"))
	mustExec(t, store, "drop schema millrace cascade")
	_, tenantsErr := store.Tenants(ctx)
	_, createErr := store.CreateTenant(ctx, "a")
	_, projectionsErr := store.plane().Projections(ctx, engine.ProjectionFilter{})
	_, nodesErr := store.plane().Nodes(ctx)
	_, overviewErr := store.plane().Overview(ctx, 0, nil)
	_, aliasErr := store.Alias(ctx, "a")
	for _, err := range []error{read("table"), tenantsErr, createErr, projectionsErr, nodesErr, overviewErr, aliasErr} {
		if !errors.Is(err, ErrNotMigrated) || !strings.Contains(err.Error(), `control schema "millrace"`) {
			t.Errorf("without a control schema: %v", err)
		}
	}
}

func TestUnknownTenantsAndProjectionsAreNamed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	must(store.plane().Ensure(ctx, projectionsOf([]string{projection.DefaultTenant}, "known")))(t)
	all := projection.DeadLetterFilter{All: true}
	calls := map[string]func(id projection.ID) error{
		"List": func(id projection.ID) error {
			_, err := store.DeadLetters(id).List(ctx, projection.DeadLetterPage{})
			return err
		},
		"Count": func(id projection.ID) error {
			_, err := store.DeadLetters(id).Count(ctx, projection.DeadLetterFilter{})
			return err
		},
		"Purge": func(id projection.ID) error {
			_, err := store.DeadLetters(id).Purge(ctx, all, time.Hour, 10)
			return err
		},
		"SetWanted": func(id projection.ID) error { return store.plane().SetDesiredState(ctx, id, engine.WantRun) },
	}
	unknown := map[string]func(id projection.ID) error{
		"Get": func(id projection.ID) error {
			_, _, err := store.DeadLetters(id).Get(ctx, 1)
			return err
		},
		"Replay": func(id projection.ID) error {
			_, err := store.DeadLetters(id).Replay(ctx, all, 10)
			return err
		},
		"Discard": func(id projection.ID) error {
			_, err := store.DeadLetters(id).Discard(ctx, all, 10)
			return err
		},
	}
	for what, call := range calls {
		if err := call(projection.ID{Name: "known"}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		unknown[what] = call
	}
	for what, call := range unknown {
		if err := call(projection.ID{Name: "other"}); !errors.Is(err, projection.ErrUnknownProjection) ||
			errors.Is(err, tenancy.ErrUnknown) {
			t.Errorf("%s of an unknown projection: %v", what, err)
		}
		if err := call(projection.ID{Tenant: "unknown", Name: "known"}); !errors.Is(err, tenancy.ErrUnknown) ||
			errors.Is(err, projection.ErrUnknownProjection) {
			t.Errorf("%s of an unknown tenant: %v", what, err)
		}
	}
}

func TestSchemasOfTheServerAreRefusedByName(t *testing.T) {
	t.Parallel()
	store := openStore(t, pgtest.Database(t), Options{})
	for _, schema := range []string{"information_schema", "pg_catalog", "pg_toast", "pg_mine", "pg", "public"} {
		_, err := OpenPool(testContext(t), store.pool, Options{Schema: schema})
		if err == nil || !strings.Contains(err.Error(), "Options.Schema") ||
			!strings.Contains(err.Error(), `"`+schema+`"`) {
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
		"a table": {"create table millrace.tenants (id int)", `"tenants"`},
		"a view":  {"create view millrace.leases as select 1 as id", `"leases"`},
		"a function": {
			"create function millrace.advance() returns int language sql as 'select 1'", `"advance"`,
		},
		"versions of another tool": {
			"create table millrace.schema_versions (version int, applied boolean)", `"schema_versions"`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			store := openStore(t, pgtest.Database(t), Options{})
			mustExec(t, store, "create schema millrace")
			mustExec(t, store, theirs.sql)
			const objects = "select count(*) from pg_class where relnamespace = 'millrace'::regnamespace"
			before := one[int](t, store, objects)
			err := store.Migrate(testContext(t))
			if !errors.Is(err, ErrForeignSchema) || !strings.Contains(err.Error(), theirs.name) ||
				!strings.Contains(err.Error(), `"millrace"`) {
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
		if !one[bool](t, store,
			`select exists (select from pg_class where relnamespace = 'millrace'::regnamespace and relname = $1)
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

// newRole makes a role of its own that may log in and nothing else, and returns its name and the DSN with it.
func newRole(t testing.TB, store *Store, dsn string) (role, roleDSN string) {
	t.Helper()
	role = fmt.Sprintf("role_%x", rand.Uint64())
	mustExec(t, store, "create role "+role+" login password 'secret'")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(testContext(t))
		for _, sql := range []string{"drop owned by " + role + " cascade", "drop role " + role} {
			if _, err := store.pool.Exec(ctx, sql); err != nil {
				t.Error(err)
			}
		}
	})
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if u.User != nil || u.Host != "" {
		u.User = url.UserPassword(role, "secret")
		return role, u.String()
	}
	roleDSN, err = pgtest.WithSetting(dsn, "user", role)
	if err != nil {
		t.Fatal(err)
	}
	return role, roleDSN
}

func TestMigrateWithNothingToDoNeedsNoRightToCreate(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	owner := migrated(t, openStore(t, dsn, Options{}))
	role, roleDSN := newRole(t, owner, dsn)
	mustExec(t, owner, "grant usage on schema millrace to "+role)
	mustExec(t, owner, "grant select on millrace.schema_versions, millrace.tenants to "+role)
	store := openStore(t, roleDSN, Options{})
	noError(t, store.Migrate(testContext(t)))
	if _, err := store.CreateTenant(testContext(t), "default"); err != nil {
		t.Errorf("a tenant that exists: %v", err)
	}
}

// The error names the right, and the role that has it. Advice to grant it to the role that runs would make an owner of
// that role.
func TestMigrateNamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	owner := openStore(t, dsn, Options{})
	role, roleDSN := newRole(t, owner, dsn)
	store := openStore(t, roleDSN, Options{})
	database, ownerRole := one[string](t, owner, "select current_database()"),
		one[string](t, owner, "select current_user")
	ctx := testContext(t)
	var refused = func(what string, err error, parts ...string) {
		t.Helper()
		if !pgerr.Is(err, "42501") {
			t.Fatalf("%s: error %v", what, err)
		}
		for _, part := range append(parts, fmt.Sprintf("role %q", role)) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in the error: %v", what, part, err)
			}
		}
		if strings.Contains(err.Error(), "grant") {
			t.Errorf("%s: the advice makes the role an owner: %v", what, err)
		}
	}
	asOwner := fmt.Sprintf("run this as the role %q, which owns the schemas", ownerRole)
	refused("no control schema", store.Migrate(ctx), fmt.Sprintf("may not create schemas in database %q", database),
		"run this as the role that is to own the schemas")
	mustExec(t, owner, "create schema millrace")
	refused("a control schema of another", store.Migrate(ctx), `may not use schema "millrace"`, asOwner)
	mustExec(t, owner, "grant usage on schema millrace to "+role)
	refused("may only use it", store.Migrate(ctx), `may not create in schema "millrace"`, asOwner)

	noError(t, owner.Migrate(ctx))
	mustExec(t, owner, "grant all on schema millrace to "+role)
	mustExec(t, owner, "grant all on all tables in schema millrace to "+role)
	refused("a tenant of another", store.migrate(ctx, withMore(1)), `may not use schema "millrace_default"`, asOwner)
	mustExec(t, owner, "grant all on schema millrace_default to "+role)
	refused("tables of another", store.migrate(ctx, withMore(1)), `may not alter tables in schema "millrace_default"`,
		asOwner)
	_, err := store.CreateTenant(ctx, "new")
	refused("a new tenant", err, fmt.Sprintf("may not create schemas in database %q", database), asOwner)
	refused("an archive", store.ArchiveTenant(ctx, "default"), asOwner)
}

// The role that migrates owns the schemas. If it may not create another, the error says what it needs.
func TestOwnerThatMayNotCreateSchemasIsToldTheGrant(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	admin := openStore(t, dsn, Options{})
	role, roleDSN := newRole(t, admin, dsn)
	database := sqltext.Name(one[string](t, admin, "select current_database()"))
	mustExec(t, admin, fmt.Sprintf("grant create on database %s to %s", database, role))
	store := openStore(t, roleDSN, Options{})
	migrated(t, store)
	mustExec(t, admin, fmt.Sprintf("revoke create on database %s from %s", database, role))
	ctx := testContext(t)
	grant := fmt.Sprintf("grant create on database %s to %s", database, sqltext.Name(role))
	if _, err := store.CreateTenant(ctx, "new"); !pgerr.Is(err, "42501") || !strings.Contains(err.Error(), grant) {
		t.Fatalf("error %v, want %q", err, grant)
	}
	mustExec(t, admin, grant)
	newTenant(t, store, "new")
}

// A process may be frozen or cut off between two statements of a transaction of the store, while it holds a lock on its
// lease's row. Claims skip locked rows. The session runs no batch, so the next owner would not end it.
func TestFrozenOwnerDoesNotKeepItsLeaseLocked(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 0)
	var next *owner
	err := o.store.durable(testContext(t), "be frozen", func(tx pgx.Tx) error {
		_, err := tx.Exec(testContext(t), o.store.control.sql("lock_lease"), o.lease.Row)
		if err != nil {
			return err
		}
		if early, err := tryClaim(t, o.store, projection.DefaultTenant); err != nil || early != nil {
			t.Errorf("claimed %v at once, %v: nothing is locked, so this shows nothing", early, err)
		}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for limit := time.Now().Add(20 * time.Second); next == nil && time.Now().Before(limit); <-tick.C {
			next, err = tryClaim(t, o.store, projection.DefaultTenant)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if next == nil {
		t.Fatalf("no other node could claim the lease: %v", err)
	}
	if fault := o.store.port().Classify(err); err == nil || fault.Class != faults.Infrastructure {
		t.Errorf("the frozen transaction ended with %v, want a fault of the infrastructure", err)
	}
}
