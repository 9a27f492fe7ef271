package main

import (
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

// The command has no steps of Options.TenantSetup, which only a program has.
func TestTenantsCreateSaysThatItKnowsNoSteps(t *testing.T) {
	t.Parallel()
	const says = "this command cannot know the set-up steps of your program"
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		out, errs, status := p.run(t, "tenants", "create", "acme", "--json")
		if status != done || !strings.HasPrefix(errs, says) || strings.Contains(out, says) {
			t.Errorf("status %d: %s%s", status, out, errs)
		}
	})
	t.Run("after steps", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.Database(t)
		p := place{"postgres", dsn, []string{"--database-url", dsn}}
		store, err := pgstore.Open(t.Context(), dsn, pgstore.Options{TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL("create table totals (n bigint)")}})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, errs, status := p.run(t, "tenants", "create", "acme"); status != done || !strings.HasPrefix(errs, says) {
			t.Errorf("status %d: %s", status, errs)
		}
		acme, err := store.CreateTenant(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Pool().Exec(t.Context(), "insert into "+acme.EventsSchema()+".totals values (1)"); err != nil {
			t.Errorf("after the program has completed the tenant: %v", err)
		}
	})
}
