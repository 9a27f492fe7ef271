package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// tenantNames returns n names that are not sorted.
func tenantNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("t", (i*37+11)%n)
	}
	return names
}

// mustBeComplete checks that the store has exactly these tenants beside the default one, each with the steps and
// events.
func mustBeComplete(t *testing.T, store *Store, names []string) {
	t.Helper()
	want := append(slices.Clone(names), projection.DefaultTenant)
	slices.Sort(want)
	tenants := must(store.Tenants(testContext(t)))(t)
	if !slices.Equal(tenants, slices.Compact(want)) {
		t.Fatalf("tenants %q, want %q", tenants, want)
	}
	if left := must(store.migrator().incompleteTenants(testContext(t), tenants))(t); len(left) > 0 {
		t.Fatalf("%d tenants are incomplete, such as %q", len(left), left[0].name)
	}
	if n := one[int](t, store,
		"select count(*) from pg_namespace where nspname like 'millrace\\_%'"); n != len(tenants) {
		t.Errorf("%d schemas for %d tenants", n, len(tenants))
	}
}

func TestCreateTenantsCreatesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, most := range []int32{1, 2, 20} {
		t.Run(fmt.Sprint(most, " connections"), func(t *testing.T) {
			dsn := pgtest.Database(t)
			newTenant(t, migrated(t, setUpStore(t, dsn, firstStep)), "t1") // lacks the second step
			var c calls
			store := migrated(t, openStore(t, dsn,
				Options{TenantSetup: []TenantStep{firstStep, c.counting(2, secondStep)}}, connections(most)))
			clear(c.counts)
			mustExec(t, store,
				"update millrace.tenants set setup = 1 where tenant = 't1'; alter table millrace_t1.my_table drop more",
				pgx.QueryExecModeSimpleProtocol)
			newTenant(t, store, "t2") // lacks nothing
			names := tenantNames(130)
			for range 2 {
				noError(t, store.CreateTenants(testContext(t), append(names, "t3", "t2", "t1")...))
			}
			mustBeComplete(t, store, names)
			if len(c.counts) != len(names) {
				t.Errorf("the step ran for %d tenants, want %d", len(c.counts), len(names))
			}
			for call, n := range c.counts {
				if n != 1 {
					t.Errorf("step of %s ran %d times", call, n)
				}
			}
			for _, name := range names[:5] {
				mustAppend(t, must(store.ForTenant(name))(t), "s", event.NoStream.WithKey("k"), someEvents(1)...)
			}
			noError(t, store.CreateTenants(testContext(t)))
		})
	}
}

// TestCreateTenantsUsesSeveralConnections has steps that return when two run at once.
func TestCreateTenantsUsesSeveralConnections(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	store := migrated(t, setUpStore(t, pgtest.Database(t), func(_ context.Context, _ pgx.Tx, tenant string) error {
		if tenant != projection.DefaultTenant {
			both.Done()
			both.Wait()
		}
		return nil
	}))
	noError(t, store.CreateTenants(testContext(t), "a", "b"))
}

func TestCreateTenantsGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	ways := map[string]func(ctx context.Context, tx pgx.Tx, cancel func()) error{
		"an error":     func(context.Context, pgx.Tx, func()) error { return errors.New("on purpose") },
		"a panic":      func(context.Context, pgx.Tx, func()) error { panic("on purpose") },
		"Goexit":       func(context.Context, pgx.Tx, func()) error { runtime.Goexit(); return nil },
		"cancellation": func(ctx context.Context, _ pgx.Tx, cancel func()) error { cancel(); return ctx.Err() },
		"its death": func(ctx context.Context, tx pgx.Tx, _ func()) error {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		},
	}
	for way, end := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			broken := true
			steps := []TenantStep{func(ctx context.Context, tx pgx.Tx, tenant string) error {
				if err := firstStep(ctx, tx, tenant); err != nil || tenant != "t77" || !broken {
					return err
				}
				return end(ctx, tx, cancel)
			}}
			// With one connection, the transactions before that of t77 have committed, and those after it do not begin.
			store := migrated(t, openStore(t, pgtest.Database(t), Options{TenantSetup: steps}, connections(1)))
			names := tenantNames(200)
			err := store.CreateTenants(ctx, names...)
			if err == nil || !strings.Contains(err.Error(), `create tenant "t77": `) {
				t.Fatalf("error %v", err)
			}
			slices.Sort(names)
			mustBeComplete(t, store, names[:slices.Index(names, "t77")/createdTogether*createdTogether])
			broken = false
			noError(t, store.CreateTenants(testContext(t), names...))
			mustBeComplete(t, store, names)
		})
	}
}

func TestProcessesThatCreateTheSameTenantsAtOnceRunEachStepOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	var c calls
	stores := make([]*Store, 4)
	for i := range stores {
		stores[i] = setUpStore(t, dsn, c.counting(1, firstStep))
	}
	migrated(t, stores[0])
	clear(c.counts)
	// While one call inserts its rows slowly, another one inserts the same in the opposite order.
	mustExec(t, stores[0],
		`create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.002); return new; end $$;
		create trigger slow before insert on millrace.tenants for each row execute function public.slow()`, pgx.QueryExecModeSimpleProtocol)
	names := tenantNames(120)
	reversed := slices.Clone(names)
	slices.Reverse(reversed)
	ctx := testContext(t)
	noError(t, together(2*len(stores), func(i int) error {
		store := stores[i/2]
		switch i % 4 {
		case 0:
			return store.CreateTenants(ctx, names...)
		case 2:
			return store.CreateTenants(ctx, reversed...)
		}
		_, err := store.CreateTenant(ctx, names[i*10])
		return errors.Join(err, store.Migrate(ctx))
	}))
	mustBeComplete(t, stores[0], names)
	// A step runs again if its transaction was rolled back, which does not happen here.
	for call, n := range c.counts {
		if n != 1 {
			t.Errorf("step of %s ran %d times", call, n)
		}
	}
}

// TestMigrateFindsTenantsThatAreBeingCreated has an old program that creates tenants while a newer one migrates.
func TestMigrateFindsTenantsThatAreBeingCreated(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	running, held := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	old := migrated(t, setUpStore(t, dsn, func(ctx context.Context, tx pgx.Tx, tenant string) error {
		if tenant == "b" {
			close(running)
			<-held
		}
		return firstStep(ctx, tx, tenant)
	}))
	created := make(chan error, 1)
	go func() { created <- old.CreateTenants(testContext(t), "a", "b", "c") }()
	<-running
	newer := setUpStore(t, dsn, firstStep, secondStep)
	// Each tenant is created in a transaction of its own. The old program must not begin one after the newer program
	// has begun.
	for one[int](t, newer, "select count(*) from millrace.tenants where tenant in ('a', 'c')") < 2 {
	}
	done := make(chan error, 1)
	go func() { done <- newer.Migrate(testContext(t)) }()
	waitBlocked(t, newer, 1)
	release()
	noError(t, errors.Join(<-done, <-created))
	mustBeComplete(t, newer, []string{"a", "b", "c"})
	noError(t, old.CreateTenants(testContext(t), "d")) // with its own steps
	noError(t, newer.CreateTenants(testContext(t), "d"))
	mustBeComplete(t, newer, []string{"a", "b", "c", "d"})
}

func TestCreateTenantsNamesTheTenantAtFault(t *testing.T) {
	t.Parallel()
	store := openStore(t, pgtest.Database(t), Options{})
	ctx := testContext(t)
	if err := store.CreateTenants(ctx, "a"); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("before Migrate: %v", err)
	}
	migrated(t, store)
	if err := store.CreateTenants(ctx, "a", "new\nline"); err == nil || !strings.Contains(err.Error(), `"new\nline"`) {
		t.Errorf("an invalid name: %v", err)
	}
	mustExec(t, store, "create schema millrace_theirs")
	if err := store.CreateTenants(ctx, "a", "theirs"); !errors.Is(err, ErrForeignSchema) ||
		!strings.Contains(err.Error(), `tenant "theirs"`) {
		t.Errorf("a foreign schema: %v", err)
	}
	newTenant(t, store, "gone")
	mustExec(t, store, "drop schema millrace_gone cascade; drop schema millrace_theirs",
		pgx.QueryExecModeSimpleProtocol)
	if err := store.CreateTenants(ctx, "gone"); !errors.Is(err, tenancy.ErrDropped) ||
		!strings.Contains(err.Error(), `tenant "gone"`) {
		t.Errorf("a dropped schema: %v", err)
	}
	// A row whose schema is recorded under another name than its own.
	mustExec(t, store, "update millrace.tenants set schema_name = 'millrace_taken' where tenant = 'gone'")
	if err := store.CreateTenants(ctx, "taken"); err == nil || !strings.Contains(err.Error(), `tenant "taken"`) {
		t.Errorf("a schema that is recorded for another tenant: %v", err)
	}
}

// The server has room for the locks of several tenants, but not for those of one transaction of CreateTenants. A commit
// releases the migration lock before some other locks, so the locks of two tenants overlap for a moment.
func TestCreateTenantsFitsIntoASmallLockTable(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{InMemory: true, Settings: map[string]string{
		"max_locks_per_transaction": "20", "max_connections": "20", "max_prepared_transactions": "0"}})
	store := migrated(t, setUpStore(t, server.DSN("postgres"), TenantSQL(`do $$ begin
		for i in 1..20 loop execute format('create table t%s (id int primary key)', i); end loop; end $$`)))
	names := tenantNames(100)
	noError(t, store.CreateTenants(testContext(t), names...))
	mustBeComplete(t, store, names)
}

// BenchmarkCreateTenants measures the time for a tenant, on a server that flushes commits to the disk.
func BenchmarkCreateTenants(b *testing.B) {
	server := pgtest.Private(b, pgtest.Options{Settings: map[string]string{"fsync": "on"}})
	for name, create := range map[string]func(store *Store, names []string) error{
		"together": func(store *Store, names []string) error { return store.CreateTenants(b.Context(), names...) },
		"one by one": func(store *Store, names []string) (err error) {
			for _, name := range names {
				_, one := store.CreateTenant(b.Context(), name)
				err = errors.Join(err, one)
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			store := migrated(b, openStore(b, server.DSN("postgres"),
				Options{Schema: fmt.Sprint("bench", rand.Uint32())}))
			names := make([]string, b.N)
			for i := range names {
				names[i] = fmt.Sprint("t", i)
			}
			b.ResetTimer()
			noError(b, create(store, names))
			b.StopTimer()
		})
	}
}
