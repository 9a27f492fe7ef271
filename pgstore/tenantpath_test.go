package pgstore

import (
	"context"
	"strings"
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

// amount is an event that is worth as much.
func amount(n string) event.Event { return event.Event{Type: "ItemAdded", Body: []byte(n)} }

// tenantApplies makes a tenant with an order, and applies the handler to it.
func tenantApplies(t *testing.T, store *Store, name, worth string, h batchFunc) error {
	t.Helper()
	mustAppend(t, newTenant(t, store, name), "order-1", event.Any, amount(worth))
	return claimAs(t, store, name).apply(h, engine.ApplyOptions{})
}

func TestHandlerOfANamedTenantDoesNotFallThroughToPublic(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"by default": "", "with an empty path": " ", "with a path of the DSN": "app, public"} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, func(config *pgxpool.Config) {
				if path != "" {
					config.ConnConfig.RuntimeParams["search_path"] = strings.TrimSpace(path)
				}
			})
			mustExec(t, store, "create schema app; create table public.totals (stream text primary key, total numeric); create table app.totals (like public.totals including all)")
			for tenant, worth := range map[string]string{"acme": "30", "globex": "12"} {
				if err := tenantApplies(t, store, tenant, worth, sums); !pgerr.Is(err, "42P01") {
					t.Errorf("%s: error %v, want that there is no table totals", tenant, err)
				}
			}
			if n := one[int](t, store, "select (select count(*) from public.totals) + (select count(*) from app.totals)"); n != 0 {
				t.Errorf("%d rows of tenants stand in tables of the host", n)
			}
		})
	}
}

func TestPathOfANamedTenantIsItsSchemaWhatIsSharedAndTemporaryTables(t *testing.T) {
	t.Parallel()
	store := migrated(t, openStore(t, pgtest.Database(t), Options{SharedSchemas: []string{"public", `it's "shared"`}}, connections(2)))
	for _, name := range []string{"acme", `it's "a" \ tenant`} {
		tenant := newTenant(t, store, name)
		mustAppend(t, tenant, "s", event.Any, someEvents(1)...)
		want := one[string](t, store, "select quote_ident($1)", tenant.EventsSchema()) + `, public, "it's ""shared""", pg_temp`
		look := func(ctx context.Context, tx pgx.Tx) error {
			if got := show(ctx, tx, "search_path"); got != want {
				t.Errorf("%s: search_path is %s, want %s", name, got, want)
			}
			return nil
		}
		noError(t, tenant.InTx(testContext(t), look))
		err := claimAs(t, store, name).apply(func(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
			return look(ctx, tx)
		}, engine.ApplyOptions{})
		if err != nil {
			t.Fatal(err)
		}
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
		err := claimAs(t, store, projection.DefaultTenant).apply(func(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
			return look(ctx, tx)
		}, engine.ApplyOptions{})
		if err != nil {
			t.Error(err)
		}
	}
}

// A prepared statement that was planned for one tenant must find the tables of the next one.
func TestStatementsOfOneConnectionFindTheTablesOfEachTenant(t *testing.T) {
	t.Parallel()
	store := onePool(t)
	for _, name := range []string{"acme", "globex"} {
		mustExec(t, store, "create table "+sqltext.Name(newTenant(t, store, name).EventsSchema())+".totals (stream text primary key, total numeric)")
	}
	for range 3 {
		for tenant, worth := range map[string]string{"acme": "30", "globex": "12"} {
			noError(t, tenantApplies(t, store, tenant, worth, sums))
		}
	}
	for tenant, want := range map[string]int{"acme": 90, "globex": 36} {
		if total := one[int](t, store, "select total::int from millrace_"+tenant+".totals"); total != want {
			t.Errorf("%s has a total of %d, want %d", tenant, total, want)
		}
	}
}

func TestSharedSchemasThatMakeNoSenseAreRefusedByName(t *testing.T) {
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
		if err == nil || !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), "Options.SharedSchemas") {
			t.Errorf("%q: error %v, want %q", shared, err, reason)
		}
	}
}
