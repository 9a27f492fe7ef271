package pgstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

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
	if err := store.Migrate(testContext(t)); err != nil {
		t.Error(err)
	}
	if _, err := store.CreateTenant(testContext(t), "default"); err != nil {
		t.Errorf("a tenant that exists: %v", err)
	}
}

func TestMigrateNamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	owner := openStore(t, dsn, Options{})
	role, roleDSN := newRole(t, owner, dsn)
	store := openStore(t, roleDSN, Options{})
	database := one[string](t, owner, "select current_database()")
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
	}
	refused("no control schema", store.Migrate(ctx), fmt.Sprintf("may not create schemas in database %q", database),
		fmt.Sprintf(`grant create on database %q to %q`, database, role))
	mustExec(t, owner, "create schema millrace")
	refused("a control schema of another", store.Migrate(ctx), `may not use schema "millrace"`, fmt.Sprintf(`grant usage, create on schema "millrace" to %q`, role))
	mustExec(t, owner, "grant usage on schema millrace to "+role)
	refused("may only use it", store.Migrate(ctx), `may not create in schema "millrace"`, fmt.Sprintf(`grant create on schema "millrace" to %q`, role))

	noError(t, owner.Migrate(ctx))
	mustExec(t, owner, "grant all on schema millrace to "+role)
	mustExec(t, owner, "grant all on all tables in schema millrace to "+role)
	ownerRole := one[string](t, owner, "select current_user")
	refused("tables of another", store.migrate(ctx, withMore(1)), fmt.Sprintf("belongs to role %q", ownerRole), fmt.Sprintf("grant %q to %q", ownerRole, role))
	_, err := store.CreateTenant(ctx, "new")
	refused("a new tenant", err, fmt.Sprintf("may not create schemas in database %q", database))
	mustExec(t, owner, fmt.Sprintf("grant create on database %s to %s", sqltext.Name(database), role))
	if _, err := store.CreateTenant(ctx, "new"); err != nil {
		t.Errorf("with the right that the error asked for: %v", err)
	}
}
