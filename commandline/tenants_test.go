package commandline

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

func TestRecoverNeedsToKnowHowEachProjectionContinues(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.must(t, done, "tenants", "create", "acme")
		p.startNode(t)
		p.await(t, `acme/mails +1 +live\nacme/totals +1 +live`, "projections", "list", "--all-tenants")
		p.must(t, done, "events", "append", "order-1", "OrderPlaced", "--tenant", "acme")
		for _, name := range []string{"mails", "totals"} {
			p.await(t, `live +0 +0 +0 +\S+ +\S+ +\S+ +1 `, "projections", "status", name, "--tenant", "acme")
		}
		for _, refused := range []struct {
			status int
			says   string
			args   []string
		}{
			{
				misused, "say how these projections continue too, or use --others: mails",
				[]string{"acme", "--continue", "totals"},
			},
			{misused, `--others must be continue or rebuild: "skip"`, []string{"acme", "--others", "skip"}},
			{
				misused,
				"recover acme, whose restored events end at 1: mails is set from 1 to 0; totals is rebuilt: add --yes",
				[]string{"acme", "--reset", "mails=0", "--others", "rebuild"},
			},
			{
				misused, `unknown projection "sums"`,
				[]string{"acme", "--continue", "sums", "--others", "continue", "--yes"},
			},
			{misused, `unknown tenant`, []string{"globex"}},
			{misused, "", []string{"acme", "globex"}},
			{failed, "the end of the restored events, 2, is above the last event, 1", []string{"acme", "--end", "2"}},
			{
				failed, `"mails": the projection runs: pause the tenant first`,
				[]string{"acme", "--reset", "mails=0", "--others", "continue", "--yes"},
			},
		} {
			_, errs, status := p.run(t, append([]string{"tenants", "recover"}, refused.args...)...)
			if status != refused.status || !strings.Contains(errs, refused.says) {
				t.Errorf("%q: status %d: %s", refused.args, status, errs)
			}
		}
		for _, unchanged := range []string{"acme/mails runs, and was left as it is",
			"acme/totals runs, and was left as it is"} {
			if out := p.must(t, done, "tenants", "recover", "acme", "--others", "continue",
				"--yes"); !strings.Contains(out, unchanged) {
				t.Error(out)
			}
		}
	})
}

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
		p := place{name: "postgres", at: dsn, flags: []string{"--database-url", dsn}}
		store, err := pgstore.Open(t.Context(), dsn,
			pgstore.Options{TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL("create table totals (n bigint)")}})
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
		if _, err := store.Pool().Exec(t.Context(), "insert into "+acme.EventsSchema()+
			".totals values (1)"); err != nil {
			t.Errorf("after the program has completed the tenant: %v", err)
		}
	})
}

// A tenant that has moved is unarchived only by the name of the store to which it moved, which the error shows.
func TestUnarchiveOfATenantThatHasMoved(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.must(t, done, "tenants", "create", "acme")
		to := filepath.Join(t.TempDir(), "to.db")
		other := place{name: "sqlite", at: to, flags: []string{"--file", to}}
		other.must(t, done, "migrate", "up")
		p.must(t, done, "tenants", "move", "acme", "--to", to, "--yes")
		refused := p.must(t, failed, "tenants", "unarchive", "acme")
		_, target, found := strings.Cut(strings.TrimSpace(refused), "Z to ")
		if !found || !strings.HasPrefix(target, `file "`+to+`", id `) {
			t.Fatalf("printed %q", refused)
		}
		if out := p.must(t, failed, "tenants", "unarchive", "acme", "--not-moved-to", "another"); !strings.Contains(out,
			`and not to "another"`) {
			t.Errorf("printed %q", out)
		}
		other.must(t, done, "tenants", "drop", "acme", "--yes")
		p.must(t, done, "tenants", "unarchive", "acme", "--not-moved-to", target)
		p.must(t, done, "events", "append", "s", "T", "--tenant", "acme")
	})
}
