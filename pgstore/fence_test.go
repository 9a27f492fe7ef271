package pgstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// TestFenceIsChangedWithItsVersion holds the text of the functions by their version. Without a new version, a store
// that exists does not get a change.
func TestFenceIsChangedWithItsVersion(t *testing.T) {
	t.Parallel()
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(queries.Text("fence_functions"))))[:16]
	if released := map[string]string{"1": "77b8370343994b29"}; released[fenceVersion] != digest {
		t.Errorf("version %s has the digest %s, want %s: raise the version, and add it here", fenceVersion, digest,
			released[fenceVersion])
	}
}

// makeFenceOld gives a store the functions of the fence that the first migration makes.
func makeFenceOld(t *testing.T, store *Store) {
	t.Helper()
	functions := regexp.MustCompile(`(?s)create (function \{control\}\.(?:check_lease|advance)\(.*?\n\$\$;)`).
		FindAllStringSubmatch(ownMigrations.control[0].SQL, -1)
	if len(functions) != 2 {
		t.Fatalf("the first migration has %d functions of the fence", len(functions))
	}
	for _, f := range functions {
		mustExec(t, store, inSchemas("create or replace "+f[1], store.opts.Schema, ""))
	}
}

func TestMigrateRenewsTheFence(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dsn := pgtest.Database(t)
	store := migrated(t, openStore(t, dsn, Options{}))
	role, roleDSN := newRole(t, store, dsn)
	mustExec(t, store, "grant usage on schema millrace to "+role)
	mustExec(t, store, "grant select on millrace.schema_versions, millrace.tenants to "+role)
	isCurrent := func() bool {
		current, _, err := fenceIsCurrent(ctx, store.pool, store.opts.Schema)
		noError(t, err)
		return current
	}
	diagnosed := func() (list []string) {
		for _, f := range must(Diagnose(ctx, dsn, Options{}, DiagnoseOptions{}))(t) {
			if strings.Contains(f.Problem, "an older program") {
				list = append(list, f.Check)
			}
		}
		return list
	}
	if !isCurrent() || len(diagnosed()) > 0 {
		t.Fatalf("a new store: current %v, %v", isCurrent(), diagnosed())
	}
	makeFenceOld(t, store)
	if found := diagnosed(); isCurrent() || len(found) != 1 || found[0] != "schema" {
		t.Fatalf("the functions of an older program: current %v, diagnosed %v", isCurrent(), found)
	}
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	noError(t, store.migrator().locked(ctx, func(pgx.Tx) error {
		return openStore(t, roleDSN, Options{}).Migrate(limited)
	}))
	if isCurrent() {
		t.Error("a role that does not own the functions has replaced them")
	}
	var group errgroup.Group
	for range 4 {
		group.Go(func() error { return store.Migrate(ctx) })
	}
	noError(t, group.Wait())
	mustExec(t, store, "create function millrace.advance(text) returns void language sql as ''")
	body := one[string](t, store, "select pg_get_functiondef('millrace.check_lease'::regproc)")
	mustExec(t, store, strings.Replace(body, "Version of the fence: ", "Version of the fence: 9", 1))
	made := func() string {
		return one[string](t, store, "select string_agg(xmin::text, ' ') from pg_proc where pronamespace = 'millrace'::regnamespace")
	}
	before := made()
	noError(t, store.Migrate(ctx))
	if !isCurrent() || made() != before {
		t.Errorf("with a newer function: current %v, replaced %v", isCurrent(), made() != before)
	}
	noError(t, runScript(t, store, must(ControlMigrations("by_script", 0))(t)))
	if current, _, err := fenceIsCurrent(ctx, store.pool, "by_script"); err != nil || !current {
		t.Error("the migrations as SQL make the functions of an older program")
	}
}
