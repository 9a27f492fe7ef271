package pgstore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/tenancy"
)

// preparedTails returns how many statements on the tails of tenants the only session of a store has prepared.
func preparedTails(t *testing.T, store *Store) int {
	t.Helper()
	return one[int](t, store, "select count(*) from pg_prepared_statements where name like 'millrace_read_%'")
}

// readTail reads the events of a tenant after a position, and returns their positions.
func readTail(t *testing.T, store *Store, tenant string, after int64) (positions []int64) {
	t.Helper()
	page := must(store.port().Read(testContext(t), tenant,
		engine.ReadRange{After: after, UpTo: maxPosition, Limit: 10, MaxBytes: 1 << 20}))(t)
	for _, e := range page.Events {
		positions = append(positions, e.Position)
	}
	return positions
}

// The server takes longer to plan the read of a tail than to execute it. Each session keeps the plans of few tenants.
func TestTailsOfTheFirstTenantsArePrepared(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	for i := range 2 * preparedTenants {
		name := fmt.Sprint("t", i)
		mustAppend(t, newTenant(t, store, name), "s", event.Any, someEvents(3)...)
		for range 7 { // the server chooses a generic plan after five
			if got := readTail(t, store, name, 1); !slices.Equal(got, []int64{2, 3}) {
				t.Fatalf("%s: %v", name, got)
			}
		}
	}
	if n := preparedTails(t, store); n != preparedTenants {
		t.Errorf("%d tails are prepared, want %d", n, preparedTenants)
	}
	noError(t, store.DropTenant(testContext(t), "t0", tenancy.DropOptions{Confirm: "t0"}))
	mustAppend(t, newTenant(t, store, "t0"), "s", event.Any, someEvents(1)...)
	if got := readTail(t, store, "t0", 0); !slices.Equal(got, []int64{1}) {
		t.Errorf("after the tenant was created again: %v", got)
	}
}

// A session that lived while many tenants were created and dropped kept the plans of all.
func TestDroppedTenantsLeaveFewPreparedStatements(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	store := openStore(t, dsn, Options{}, connections(1))
	migrated(t, store)
	other := openStore(t, dsn, Options{})
	use := func(name string) {
		mustAppend(t, newTenant(t, store, name), "s", event.Any, someEvents(2)...)
		for range 2 {
			mustAppend(t, must(store.ForTenant(name))(t), "s", event.Any, someEvents(1)...)
			readTail(t, store, name, 1)
		}
	}
	for i := range 40 {
		name, dropper := fmt.Sprint("t", i), store
		if i%2 == 1 {
			dropper = other
		}
		use(name)
		noError(t, dropper.DropTenant(testContext(t), name, tenancy.DropOptions{Confirm: name}))
	}
	// Two statements for the appends of each tenant, one for its reads.
	if n := one[int](t, store,
		"select count(*) from pg_prepared_statements where statement like '%millrace_t%'"); n > 3*preparedTenants {
		t.Errorf("%d statements of dropped tenants are prepared", n)
	}
}

// Another process may drop the tenants that were the first, or their projections move to other nodes.
func TestPlaceOfATenantThatIsNotUsedIsGivenToAnother(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	for i := range preparedTenants {
		mustAppend(t, newTenant(t, store, fmt.Sprint("first", i)), "s", event.Any, someEvents(1)...)
		readTail(t, store, fmt.Sprint("first", i), 0)
	}
	mustAppend(t, newTenant(t, store, "late"), "s", event.Any, someEvents(1)...)
	prepared := func(kind string) int {
		return one[int](t, store,
			"select count(*) from pg_prepared_statements where name like 'millrace_'||$1||'_%' and statement like '%millrace_late%'", kind)
	}
	for kind, use := range map[string]func(){
		"append": func() { mustAppend(t, must(store.ForTenant("late"))(t), "s", event.Any, someEvents(1)...) },
		"read":   func() { readTail(t, store, "late", 0) },
	} {
		use()
		if prepared(kind) != 0 {
			t.Errorf("%s: a tenant that is used loses its place", kind)
		}
		for range preparedIdle + 1 {
			use()
		}
		if prepared(kind) != 1 {
			t.Errorf("%s: the tenants that are not used keep their places", kind)
		}
	}
}

func TestTailIsReadThoughItsPreparedStatementIsLostOrOutOfDate(t *testing.T) {
	t.Parallel()
	store := newStore(t, connections(1))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
	for _, change := range []string{"", "deallocate all",
		"alter table millrace_default.events alter column correlation_id type varchar(400) collate \"C\"",
		"discard all"} {
		for range 3 {
			if got := readTail(t, store, "default", 1); !slices.Equal(got, []int64{2, 3}) {
				t.Errorf("after %q: %v", change, got)
			}
		}
		if change != "" {
			mustExec(t, store, change)
		}
		if got := readTail(t, store, "default", 1); !slices.Equal(got, []int64{2, 3}) {
			t.Errorf("at once after %q: %v", change, got)
		}
	}
}

func TestTailIsNotPreparedWhereThePoolForbidsIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	migrated(t, openStore(t, dsn, Options{}))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		store := openStore(t, dsn, Options{}, connections(1),
			func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
		for range 3 {
			readTail(t, store, "default", 0)
		}
		if n := preparedTails(t, store); n != 0 {
			t.Errorf("%v: %d prepared statements", mode, n)
		}
	}
	store := openStore(t, dsn, Options{}, connections(1))
	store.server.pooling.Lends = true
	for range 3 {
		readTail(t, store, "default", 0)
	}
	if n := preparedTails(t, store); n != 0 {
		t.Errorf("behind a pooler: %d prepared statements", n)
	}
}
