package pages_test

import (
	"testing"

	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// onPostgres runs a test of a page with a store of one role, and with that of the role that runs of docs/roles.sql. The
// other role has made the tables of the steps, and the tenant acme.
func onPostgres(t *testing.T, test func(t *testing.T, store *pgstore.Store), steps ...pgstore.TenantStep) {
	open := func(t *testing.T, dsn string) *pgstore.Store {
		store, err := pgstore.Open(t.Context(), dsn, pgstore.Options{TenantSetup: steps})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		return store
	}
	t.Run("pgstore", func(t *testing.T) { test(t, open(t, millracetest.Database(t, ""))) })
	t.Run("pgstore under two roles", func(t *testing.T) {
		owner, app := kit.RolesOf(t, millracetest.Database(t, ""))
		migrates := open(t, owner)
		err := migrates.Migrate(t.Context())
		if err == nil {
			_, err = migrates.CreateTenant(t.Context(), "acme")
		}
		if err != nil {
			t.Fatal(err)
		}
		test(t, open(t, app))
	})
}
