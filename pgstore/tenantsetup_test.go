package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

// calls counts how often each step ran for each tenant, under "tenant 1".
type calls struct {
	mu     sync.Mutex
	counts map[string]int
}

// counting makes a step count its runs as step n.
func (c *calls) counting(n int, step TenantStep) TenantStep {
	return func(ctx context.Context, tx pgx.Tx, tenant string) error {
		c.mu.Lock()
		if c.counts == nil {
			c.counts = make(map[string]int)
		}
		c.counts[fmt.Sprint(tenant, " ", n)]++
		c.mu.Unlock()
		return step(ctx, tx, tenant)
	}
}

// A step's context is that of the transaction that creates the tenant.
func TestStepMayNotWriteOutsideOfItsTransaction(t *testing.T) {
	t.Parallel()
	var store *Store
	var errs []error
	store = migrated(t, setUpStore(t, pgtest.Database(t), func(ctx context.Context, _ pgx.Tx, tenant string) error {
		if tenant == "x" {
			_, appended := store.Append(ctx, "s", event.Any, someEvents(1)...)
			_, created := store.CreateTenant(ctx, "y")
			errs = append(errs, appended, created, store.InTx(ctx, func(context.Context, pgx.Tx) error { return nil }))
		}
		return nil
	}))
	must(store.CreateTenant(testContext(t), "x"))(t)
	if len(errs) != 3 || !slices.EqualFunc(errs, slices.Repeat([]error{ErrWithinTx}, 3), errors.Is) {
		t.Error(errs)
	}
}

// setUpStore opens a store of the database with these steps.
func setUpStore(t testing.TB, dsn string, steps ...TenantStep) *Store {
	t.Helper()
	return openStore(t, dsn, Options{TenantSetup: steps})
}

// tablesOf lists the user's tables of a tenant's schema, as "table" or "table.column" beyond its first two columns.
func tablesOf(t testing.TB, store *Store, schema string) []string {
	t.Helper()
	return one[[]string](t, store,
		`select coalesce(array_agg(c.relname || case when a.attnum > 1 then '.' || a.attname else '' end order by 1), '{}')
		from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
		where c.relnamespace = to_regnamespace($1) and c.relkind = 'r' and c.relname like 'my%'`, sqltext.Name(schema))
}

var (
	firstStep  = TenantSQL("create table my_table (id int); create index on my_table (id)")
	secondStep = TenantSQL("alter table my_table add more text")
)

func TestTenantIsCreatedWithItsSetupOrNotAtAll(t *testing.T) {
	t.Parallel()
	store := migrated(t, setUpStore(t, pgtest.Database(t),
		firstStep, func(ctx context.Context, tx pgx.Tx, tenant string) error {
			if tenant == "broken" {
				return errors.New("on purpose")
			}
			return secondStep(ctx, tx, tenant)
		}))
	acme := newTenant(t, store, "acme")
	for _, schema := range []string{acme.EventsSchema(), "public"} { // that of DefaultTenant's path
		if got := tablesOf(t, store, schema); !slices.Equal(got, []string{"my_table", "my_table.more"}) {
			t.Errorf("%s has %v", schema, got)
		}
	}
	_, err := store.CreateTenant(testContext(t), "broken")
	if err == nil || err.Error() != `create tenant "broken": step 2 of Options.TenantSetup: on purpose` {
		t.Errorf("error %v", err)
	}
	if one[bool](t, store,
		"select to_regnamespace('millrace_broken') is not null or exists (select from millrace.tenants where tenant = 'broken')") {
		t.Error("half of the tenant stayed")
	}
	if n := one[int](t, store, "select min(setup) from millrace.tenants"); n != 2 {
		t.Errorf("setup %d is recorded, want 2", n)
	}
}

func TestMigrateAppliesNewStepsToEveryTenantOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	var c calls
	first := migrated(t, setUpStore(t, dsn, c.counting(1, firstStep)))
	names := []string{"a", "b", `it's "c"`}
	for _, name := range names {
		newTenant(t, first, name)
	}
	second := setUpStore(t, dsn, c.counting(1, firstStep), c.counting(2, secondStep))
	for range 2 {
		migrated(t, second)
		newTenant(t, second, "d")
		newTenant(t, second, "a")
	}
	want := make(map[string]int)
	for _, name := range append(names, "d", projection.DefaultTenant) {
		want[name+" 1"], want[name+" 2"] = 1, 1
		if name != projection.DefaultTenant {
			if got := tablesOf(t, second, "millrace_"+name); !slices.Equal(got, []string{"my_table", "my_table.more"}) {
				t.Errorf("%s has %v", name, got)
			}
		}
	}
	if !maps.Equal(c.counts, want) {
		t.Errorf("steps ran %v, want %v", c.counts, want)
	}
}

// An operator may remove a tenant while those before it are migrated (docs/ownership.md, "A tenant's schema is gone").
func TestMigrateDoesNotCreateATenantThatWasRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	first := migrated(t, setUpStore(t, dsn, firstStep))
	for _, name := range []string{"a", "b", "c"} {
		newTenant(t, first, name)
	}
	second := migrated(t, setUpStore(t, dsn, firstStep, func(ctx context.Context, tx pgx.Tx, tenant string) error {
		if tenant == "a" {
			mustExec(t, first, "drop schema millrace_b cascade")
			mustExec(t, first, "delete from millrace.tenants where tenant = 'b'")
		}
		return secondStep(ctx, tx, tenant)
	}))
	if got, want := must(second.Tenants(testContext(t)))(t),
		[]string{"a", "c", projection.DefaultTenant}; !slices.Equal(got, want) {
		t.Errorf("tenants %q, want %q", got, want)
	}
	if got := tablesOf(t, second, "millrace_c"); !slices.Equal(got, []string{"my_table", "my_table.more"}) {
		t.Errorf("the tenant after it has %v", got)
	}
}

// The cases fail at one tenant in the middle. It has nothing then, and the others are complete, unless the caller went
// away.
func TestMigrateGoesOnAfterABadTenant(t *testing.T) {
	t.Parallel()
	ways := map[string]func(ctx context.Context, tx pgx.Tx, cancel func()) error{
		"an error":     func(context.Context, pgx.Tx, func()) error { return errors.New("on purpose") },
		"cancellation": func(ctx context.Context, _ pgx.Tx, cancel func()) error { cancel(); return nil },
		"its death": func(ctx context.Context, tx pgx.Tx, _ func()) error {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		},
		"an error that the step does not return": func(ctx context.Context, tx pgx.Tx, _ func()) error {
			_, _ = tx.Exec(ctx, "select 1/0")
			return nil
		},
		"a rollback behind its back": func(ctx context.Context, tx pgx.Tx, _ func()) error {
			return tx.Conn().PgConn().Exec(ctx, "rollback").Close()
		},
	}
	for way, end := range ways {
		t.Run(way, func(t *testing.T) {
			dsn := pgtest.Database(t)
			first := migrated(t, setUpStore(t, dsn, firstStep))
			names := []string{"a", "b", "c"}
			for _, name := range names {
				newTenant(t, first, name)
			}
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			broken := true
			second := setUpStore(t, dsn, firstStep, func(ctx context.Context, tx pgx.Tx, tenant string) error {
				if err := secondStep(ctx, tx, tenant); err != nil || tenant != "b" || !broken {
					return err
				}
				return end(ctx, tx, cancel)
			})
			err := second.Migrate(ctx)
			if err == nil || !strings.Contains(err.Error(), `migrate tenant "b": `) {
				t.Fatalf("error %v", err)
			}
			if way != "cancellation" && !strings.Contains(err.Error(), "step 2 of Options.TenantSetup") {
				t.Errorf("error %v does not name the step", err)
			}
			want := []string{"a:2", "b:1", "c:2", "default:2"}
			if way == "cancellation" {
				want[2] = "c:1"
			}
			if got := setups(t, second); !slices.Equal(got, want) {
				t.Errorf("setups are %v, want %v", got, want)
			}
			if got := tablesOf(t, second, "millrace_b"); !slices.Equal(got, []string{"my_table"}) {
				t.Errorf("b has %v", got)
			}
			broken = false
			migrated(t, second)
			if got := setups(t, second); !slices.Equal(got, []string{"a:2", "b:2", "c:2", "default:2"}) {
				t.Errorf("setups are %v after the next migration", got)
			}
		})
	}
}

func TestMigrateJoinsTheErrorsOfBadTenants(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	first := migrated(t, setUpStore(t, dsn, firstStep))
	for i := range badTenantsNamed + 5 {
		newTenant(t, first, fmt.Sprintf("t%02d", i))
	}
	errOdd, errDefault := errors.New("odd"), errors.New("default is bad")
	ran := make(map[string]int)
	second := setUpStore(t, dsn, firstStep, func(_ context.Context, _ pgx.Tx, tenant string) error {
		ran[tenant]++
		switch {
		case tenant == projection.DefaultTenant:
			return errDefault
		case tenant == "t24":
			return nil
		}
		return errOdd
	})
	err := second.Migrate(testContext(t))
	for _, part := range []string{`migrate tenant "default": `, `migrate tenant "t00": `, `migrate tenant "t18": `,
		"migrate 5 more tenants"} {
		if err == nil || !errors.Is(err, errOdd) || !errors.Is(err, errDefault) ||
			!strings.Contains(err.Error(), part) {
			t.Fatalf("error %v, want %q in it", err, part)
		}
	}
	for tenant, n := range ran {
		if n != 1 {
			t.Errorf("the step of %s ran %d times", tenant, n)
		}
	}
	if got := setups(t, second); len(ran) != badTenantsNamed+6 || !slices.Contains(got, "t24:2") ||
		!slices.Contains(got, "t23:1") {
		t.Errorf("setups are %v", got)
	}
}

func setups(t testing.TB, store *Store) []string {
	t.Helper()
	return one[[]string](t, store, "select array_agg(tenant || ':' || setup order by tenant) from millrace.tenants")
}

func TestProcessesThatMigrateAtOnceRunEachStepOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	first := migrated(t, setUpStore(t, dsn, firstStep))
	const tenants, processes = 12, 4
	for i := range tenants {
		newTenant(t, first, fmt.Sprint("t", i))
	}
	var c calls
	stores := make([]*Store, processes)
	for i := range stores {
		stores[i] = setUpStore(t, dsn, c.counting(1, firstStep), c.counting(2, secondStep))
	}
	ctx := testContext(t)
	if err := together(2*processes, func(i int) error {
		if i%2 == 0 {
			return stores[i/2].Migrate(ctx)
		}
		_, err := stores[i/2].CreateTenant(ctx, fmt.Sprint("new", i/4))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for call, n := range c.counts {
		if n != 1 {
			t.Errorf("step %q ran %d times", call, n)
		}
	}
	if want := tenants + 1 + 2*2; len(c.counts) != want {
		t.Errorf("%d steps ran, want %d: %v", len(c.counts), want, c.counts)
	}
}

func TestProgramWithFewerStepsCreatesTenantsThatTheOtherCompletes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	old := migrated(t, setUpStore(t, dsn, firstStep))
	acme := newTenant(t, old, "acme")
	// The new program has come no further than DefaultTenant.
	newer := setUpStore(t, dsn, firstStep, func(ctx context.Context, tx pgx.Tx, tenant string) error {
		if tenant != projection.DefaultTenant {
			return errors.New("on purpose")
		}
		return nil
	}, TenantSQL("select 1"))
	if err := newer.Migrate(testContext(t)); err == nil {
		t.Fatal("the newer program migrated")
	}
	migrated(t, old)
	mustAppend(t, acme, "s", event.Any, someEvents(1)...)
	must(old.CreateTenant(testContext(t), "acme"))(t)
	globex := newTenant(t, old, "globex")
	noError(t, old.CreateTenants(testContext(t), "initech", "umbrella"))
	mustAppend(t, globex, "s", event.Any, someEvents(1)...)
	if got := setups(t, old); !slices.Equal(got, []string{"acme:1",
		"default:3", "globex:1", "initech:1", "umbrella:1"}) {
		t.Errorf("setups are %v", got)
	}
	repaired := setUpStore(t, dsn, firstStep, TenantSQL("select 1"), TenantSQL("select 1"))
	must(repaired.CreateTenant(testContext(t), "acme"))(t)
	noError(t, repaired.CreateTenants(testContext(t), "initech", "new"))
	if got := setups(t, old); !slices.Equal(got, []string{"acme:3",
		"default:3", "globex:1", "initech:3", "new:3", "umbrella:1"}) {
		t.Errorf("after CreateTenants of the newer program setups are %v", got)
	}
	migrated(t, repaired)
	if got := setups(t, old); !slices.Equal(got, []string{"acme:3",
		"default:3", "globex:3", "initech:3", "new:3", "umbrella:3"}) {
		t.Errorf("after Migrate of the newer program setups are %v", got)
	}
}

func TestStepsCannotEndOrKeepTheirTransaction(t *testing.T) {
	t.Parallel()
	var kept pgx.Tx
	store := setUpStore(t, pgtest.Database(t), func(ctx context.Context, tx pgx.Tx, _ string) error {
		kept = tx
		_, err := tx.Exec(ctx, "set local search_path = nowhere") // the next step has its own again
		return err
	}, func(ctx context.Context, tx pgx.Tx, tenant string) error {
		if _, err := kept.Exec(ctx, "select 1"); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("the transaction of the first step: %v", err)
		}
		if err := tx.Commit(ctx); !errors.Is(err, ErrTxControl) {
			t.Errorf("commit: %v", err)
		}
		if _, err := tx.Exec(ctx, "commit"); !errors.Is(err, ErrTxControl) {
			t.Errorf("COMMIT: %v", err)
		}
		if path := show(ctx, tx, "search_path"); tenant == "acme" && path != "millrace_acme, pg_temp" {
			t.Errorf("search_path is %s", path)
		}
		return nil
	})
	migrated(t, store)
	newTenant(t, store, "acme")
}

func TestNilStepIsRefused(t *testing.T) {
	t.Parallel()
	err := Options{Schema: "millrace", TenantSetup: []TenantStep{firstStep, nil}}.validate()
	if err == nil || !strings.Contains(err.Error(), "Options.TenantSetup[1] must not be nil") {
		t.Errorf("error %v", err)
	}
}

// sums is the handler of the README: it names its table without a schema.
func sums(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	for _, e := range events {
		_, err := tx.Exec(ctx, `insert into totals values ($1, $2::numeric)
			on conflict (stream) do update set total = totals.total + excluded.total`, e.Stream, string(e.Body))
		if err != nil {
			return err
		}
	}
	return nil
}

// amount returns an event with this amount.
func amount(n string) event.Event { return event.Event{Type: "ItemAdded", Body: []byte(n)} }

// tenantApplies makes a tenant with an order, and applies the handler to it.
func tenantApplies(t *testing.T, store *Store, name, worth string, h batchFunc) error {
	t.Helper()
	mustAppend(t, newTenant(t, store, name), "order-1", event.Any, amount(worth))
	return claimAs(t, store, name).apply(h, engine.ApplyOptions{})
}

func TestHandlerOfANamedTenantDoesNotFallThroughToPublic(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"by default": "", "with an empty path": " ",
		"with a path of the DSN": "app, public"} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, func(config *pgxpool.Config) {
				if path != "" {
					config.ConnConfig.RuntimeParams["search_path"] = strings.TrimSpace(path)
				}
			})
			mustExec(t, store,
				"create schema app; create table public.totals (stream text primary key, total numeric); create table app.totals (like public.totals including all)")
			for tenant, worth := range map[string]string{"acme": "30", "globex": "12"} {
				if err := tenantApplies(t, store, tenant, worth, sums); !pgerr.Is(err, "42P01") {
					t.Errorf("%s: error %v, want that there is no table totals", tenant, err)
				}
			}
			if n := one[int](t, store,
				"select (select count(*) from public.totals) + (select count(*) from app.totals)"); n != 0 {
				t.Errorf("%d rows of tenants stand in tables of the host", n)
			}
		})
	}
}

func TestPathOfANamedTenantIsItsSchemaSharedSchemasAndTemporaryTables(t *testing.T) {
	t.Parallel()
	store := migrated(t, openStore(t, pgtest.Database(t),
		Options{SharedSchemas: []string{"public", `it's "shared"`}}, connections(2)))
	for _, name := range []string{"acme", `it's "a" \ tenant`} {
		tenant := newTenant(t, store, name)
		mustAppend(t, tenant, "s", event.Any, someEvents(1)...)
		want := one[string](t, store, "select quote_ident($1)", tenant.EventsSchema()) +
			`, public, "it's ""shared""", pg_temp`
		look := func(ctx context.Context, tx pgx.Tx) error {
			if got := show(ctx, tx, "search_path"); got != want {
				t.Errorf("%s: search_path is %s, want %s", name, got, want)
			}
			return nil
		}
		noError(t, tenant.InTx(testContext(t), look))
		noError(t, claimAs(t, store, name).apply(func(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
			return look(ctx, tx)
		}, engine.ApplyOptions{}))
		if after := show(testContext(t), store.pool, "search_path"); after != `"$user", public` {
			t.Errorf("search_path is %s afterwards", after)
		}
	}
}

func TestDefaultTenantKeepsThePathOfItsSession(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "public, pg_temp", `"$user", public`} {
		store := newStore(t, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["search_path"] = path })
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
		look := func(ctx context.Context, tx pgx.Tx) error {
			var got string
			if err := tx.QueryRow(ctx, "select current_setting('search_path')").Scan(&got); err != nil || got != path {
				t.Errorf("search_path is %q, want %q: %v", got, path, err)
			}
			return nil
		}
		if err := store.InTx(testContext(t), look); err != nil {
			t.Error(err)
		}
		err := claimAs(t, store, projection.DefaultTenant).apply(func(ctx context.Context,
			tx pgx.Tx, _ []event.Envelope) error {
			return look(ctx, tx)
		}, engine.ApplyOptions{})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestInvalidSharedSchemasAreRefusedByName(t *testing.T) {
	t.Parallel()
	for reason, shared := range map[string][]string{
		"must not be empty":        {"public", ""},
		"must be at most 63 bytes": {strings.Repeat("x", 64)},
		"control character":        {"a\nb"},
		"listed twice":             {"public", "app", "public"},
		"another schema in each":   {"$user"},
		"searched first anyway":    {"pg_catalog"},
		"schemas of the system":    {"pg_temp"},
		"it is the control schema": {"events"},
		`begin with "events_"`:     {"events_acme"},
	} {
		err := Options{Schema: "events", SharedSchemas: shared}.validate()
		if err == nil || !strings.Contains(err.Error(), reason) ||
			!strings.Contains(err.Error(), "Options.SharedSchemas") {
			t.Errorf("%q: error %v, want %q", shared, err, reason)
		}
	}
}
