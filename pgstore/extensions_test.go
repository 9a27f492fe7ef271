package pgstore

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
)

// withExtensions is a database with citext, which has types and operators, and pgcrypto, which has functions alone, or
// a skip.
func withExtensions(t *testing.T) (dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	host := openStore(t, dsn, Options{})
	if !one[bool](t, host, "select count(*) = 2 from pg_available_extensions where name in ('citext', 'pgcrypto')") {
		t.Skip("the server has no extensions citext and pgcrypto (postgresql-contrib)")
	}
	mustExec(t, host, "create extension citext schema public; create extension pgcrypto schema public")
	return dsn
}

// people is a table whose names are compared without regard to case.
const people = "create table people (name public.citext); insert into people values ('Ada')"

func countAda(t *testing.T, tenant *Tenant) (n int) {
	t.Helper()
	noError(t, tenant.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx,
			"select count(*) from people a, people b where a.name = lower(b.name::text)::public.citext").Scan(&n)
	}))
	return n
}

// warnings are the extensions that were warned of, and what to write, for each warning.
func warnings(logs *observer.ObservedLogs) (extensions [][]string, share []string) {
	for _, entry := range logs.FilterLevelExact(zapcore.WarnLevel).FilterFieldKey("extensions").All() {
		fields := entry.ContextMap()
		var names []string
		for _, name := range fields["extensions"].([]any) {
			names = append(names, name.(string))
		}
		extensions, share = append(extensions, names), append(share, fields["share"].(string))
	}
	return extensions, share
}

func TestExtensionsOutsideOfThePathAreWarnedOfByName(t *testing.T) {
	t.Parallel()
	dsn := withExtensions(t)
	for _, shared := range [][]string{nil, {"public"}} {
		core, logs := observer.New(zapcore.WarnLevel)
		opts := Options{
			SharedSchemas: shared, Logger: slog.New(zapslog.NewHandler(core)),
			TenantSetup: []TenantStep{TenantSQL(people)},
		}
		store := migrated(t, openStore(t, dsn, opts))
		found := 1
		if shared == nil {
			found = 0
			if extensions, _ := warnings(logs); len(extensions) != 0 {
				t.Errorf("without a named tenant it warns of %v", extensions)
			}
		}
		tenant := newTenant(t, store, "acme")
		newTenant(t, store, "globex"+strings.Join(shared, ""))
		migrated(t, store)
		migrated(t, openStore(t, dsn, opts)) // which finds named tenants
		extensions, share := warnings(logs)
		if shared != nil && len(extensions) != 0 {
			t.Errorf("with public shared it warns of %v", extensions)
		}
		if shared == nil && (len(extensions) != 2 || !slices.Equal(extensions[0], []string{"citext in public"}) ||
			share[1] != `Options.SharedSchemas: []string{"public"}`) {
			t.Errorf("it warns of %v, to be mended by %v", extensions, share)
		}
		// The warning is about this case: no error, but another result.
		if n := countAda(t, tenant); n != found {
			t.Errorf("shared %v: %d rows are found, want %d", shared, n, found)
		}
	}
}

func TestErrorsAboutMissingObjectsNameExtensionsOutsideOfThePath(t *testing.T) {
	t.Parallel()
	dsn := withExtensions(t)
	store := migrated(t, openStore(t, dsn, Options{}))
	const want = `outside of the search path of tenant "acme": citext in public, pgcrypto in public; to share them: Options.SharedSchemas: []string{"public"}`
	for sql, names := range map[string]bool{
		"select gen_salt('md5')": true, "create table t (name citext)": true,
		"select public.gen_salt('md5'::int)": false,
		"select * from nowhere":              false,
	} {
		for tenant, named := range map[*Tenant]bool{newTenant(t, store, "acme"): true, store.tenant: false} {
			mustAppend(t, tenant, "s", event.Any, someEvents(1)...)
			err := claimAs(t, store, tenant.Name()).apply(func(ctx context.Context,
				tx pgx.Tx, _ []event.Envelope) error {
				_, err := tx.Exec(ctx, sql)
				return err
			}, engine.ApplyOptions{})
			if err == nil {
				continue
			}
			// What is recorded is the fault.
			if got := strings.Contains(classify(err).Err.Error(), want); got != (names && named) ||
				!strings.Contains(err.Error(), "SQLSTATE") {
				t.Errorf("%s: %s: %v", tenant.Name(), sql, err)
			}
		}
	}
	broken := openStore(t, dsn, Options{TenantSetup: []TenantStep{TenantSQL("create table typed (name citext)")}})
	if err := broken.Migrate(testContext(t)); err == nil || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "step 1") {
		t.Errorf("a step fails with %v", err)
	}
	if _, err := broken.CreateTenant(testContext(t), "globex"); err == nil ||
		!strings.Contains(err.Error(), `tenant "globex": citext in public`) {
		t.Errorf("a step fails with %v", err)
	}
}
