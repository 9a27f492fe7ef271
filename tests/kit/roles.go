package kit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// RolesOf runs docs/roles.sql in a database, and returns DSNs of the role that migrates and of the role that runs. Both
// roles have names of their own, since roles are the server's, which tests share.
func RolesOf(t *testing.T, dsn string) (owner, app string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var script []byte
	var err error
	for _, root := range []string{"..", "../.."} { // of the packages of tests
		script, err = os.ReadFile(root + "/docs/roles.sql")
		if err == nil {
			break
		}
	}
	must(err)
	exec := func(sql string) {
		t.Helper()
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, dsn)
		must(err)
		_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		must(err)
		must(conn.Close(ctx))
	}
	suffix := fmt.Sprintf("_%x", rand.Uint64())
	ownerRole, appRole := "millrace_owner"+suffix, "millrace_app"+suffix
	exec(strings.NewReplacer("millrace_owner", ownerRole, "millrace_app", appRole).Replace(string(script)))
	t.Cleanup(func() {
		for _, role := range []string{appRole, ownerRole} {
			exec("drop owned by " + role + " cascade; drop role " + role)
		}
	})
	as := func(role string) string {
		exec("alter role " + role + " password 'secret'")
		u, err := url.Parse(dsn)
		must(err)
		u.User = url.UserPassword(role, "secret")
		return u.String()
	}
	return as(ownerRole), as(appRole)
}

// underTwoRoles is Postgres whose tests run as the role that runs. The role that migrates owns these tables.
func underTwoRoles(tables []string) *Kind {
	k := *Postgres
	k.Name = "pgstore under two roles"
	k.Ready = func(t *testing.T, connections int) string {
		owner, app := RolesOf(t, pgtest.Database(t))
		ctx := t.Context()
		store, err := Postgres.Open(ctx, owner, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if err := store.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		if err := store.Prepare(ctx); err != nil {
			t.Fatal(err)
		}
		if err := create(ctx, store, tables); err != nil {
			t.Fatal(err)
		}
		return withConnections(t, app, connections)
	}
	return &k
}

func create(ctx context.Context, store Store, tables []string) error {
	return store.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		for _, sql := range tables {
			err = errors.Join(err, tx.Exec(ctx, sql))
		}
		return err
	})
}

// RunPage is Run for a test of a page of docs: such a page also holds for nodes whose role owns nothing. Tables are
// statements that create what the test needs.
func RunPage(t *testing.T, test func(t *testing.T, b *Bundle), tables ...string) {
	t.Helper()
	Run(t, func(t *testing.T, b *Bundle) {
		b.Must(create(b.Ctx, b.Store, tables))
		test(t, b)
	})
	roles := underTwoRoles(tables)
	t.Run(roles.Name, func(t *testing.T) {
		t.Parallel()
		test(t, roles.New(t))
	})
}
