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

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
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

// setUpStore opens a store of the database with these steps.
func setUpStore(t testing.TB, dsn string, steps ...TenantStep) *Store {
	t.Helper()
	return openStore(t, dsn, Options{TenantSetup: steps})
}

// tablesOf lists the user's tables of a tenant's schema, as "table" or "table.column" beyond its first two columns.
func tablesOf(t testing.TB, store *Store, schema string) []string {
	t.Helper()
	return one[[]string](t, store, `select coalesce(array_agg(c.relname || case when a.attnum > 1 then '.' || a.attname else '' end order by 1), '{}')
		from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
		where c.relnamespace = to_regnamespace($1) and c.relkind = 'r' and c.relname like 'my%'`, sqltext.Name(schema))
}

var (
	firstStep  = TenantSQL("create table my_table (id int); create index on my_table (id)")
	secondStep = TenantSQL("alter table my_table add more text")
)

func TestTenantIsCreatedWithItsSetupOrNotAtAll(t *testing.T) {
	t.Parallel()
	store := migrated(t, setUpStore(t, pgtest.Database(t), firstStep, func(ctx context.Context, tx pgx.Tx, tenant string) error {
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
	if one[bool](t, store, "select to_regnamespace('millrace_broken') is not null or exists (select from millrace.tenants where tenant = 'broken')") {
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

// What ends a migration in the middle, and how: the tenants before it are done, it has nothing, and those after it wait.
func TestMigrateGoesOnWithTheTenantThatItEndedAt(t *testing.T) {
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
			want := []string{"a:2", "b:1", "c:1", "default:2"}
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

func TestProgramWithFewerStepsWorksOnButMakesNoTenants(t *testing.T) {
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
	if _, err := old.CreateTenant(testContext(t), "acme"); err != nil {
		t.Error(err)
	}
	_, err := old.CreateTenant(testContext(t), "globex")
	if !errors.Is(err, ErrSchemaTooNew) || !strings.Contains(err.Error(), "have 3 steps of Options.TenantSetup, this program has 1") {
		t.Errorf("error %v", err)
	}
	if got := setups(t, old); !slices.Equal(got, []string{"acme:1", "default:3"}) {
		t.Errorf("setups are %v", got)
	}
}

func TestStepsCannotEndTheirTransactionNorKeepIt(t *testing.T) {
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

func TestSetupThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	err := Options{Schema: "millrace", TenantSetup: []TenantStep{firstStep, nil}}.validate()
	if err == nil || !strings.Contains(err.Error(), "Options.TenantSetup[1] is nil") {
		t.Errorf("error %v", err)
	}
}
