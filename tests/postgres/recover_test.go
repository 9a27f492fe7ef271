package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// An append in progress in a restored tenant is not skipped, although projections have handled its position before.
// While it is open, no projection begins above it.
func TestRecoveryWaitsForAnOpenAppend(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 10)
	rt := b.Idle(b.Recorders("p")...)
	b.Must(rt.PauseTenant(b.Ctx, ""))
	b.Must(b.Store.Truncate(b.Ctx, 3))
	tx, err := b.store.Pool().Begin(b.Ctx)
	b.Must(err)
	defer func() { _ = tx.Rollback(b.Ctx) }()
	_, err = b.store.AppendTx(b.Ctx, tx, "open", event.Any, event.Event{Type: "counted"})
	b.Must(err)
	b.Append("b", 1) // 5

	opts := admin.RecoverOptions{Continue: []string{"p"}}
	if _, err := rt.RecoverTenant(b.Ctx, "", opts); !errors.Is(err, projection.ErrNotSettled) {
		t.Errorf("to the position of an event above an open append: %v", err)
	}
	b.Must(rt.Create(b.Ctx, millrace.ProjectionID{Name: "new"}, projection.Start{End: true}))
	if at := value[int](b,
		"select l.checkpoint from millrace.leases l join millrace.projections p using (id) where p.name = 'new'"); at != 3 {
		t.Errorf("a new projection begins after %d", at)
	}
	opts = admin.RecoverOptions{End: 3, Continue: []string{"p", "new"}}
	_, err = rt.RecoverTenant(b.Ctx, "", opts)
	b.Must(err)
	b.Must(tx.Commit(b.Ctx))
	b.store.Wake()
	b.Must(rt.ResumeTenant(b.Ctx, ""))
	b.RunUntilIdle(rt)
	if at := b.Positions("p")[10:]; !slices.Equal(at, []int64{4, 5}) {
		t.Errorf("applied %v", at)
	}
}

// As docs/restoring.md says of a backup from before a swap: readers see version 1 again, which was replaced.
func TestRestoredTenantFromBeforeASwap(t *testing.T) {
	onRoles(t, func(t *testing.T, owner *pgstore.Store, b *bundle) {
		exec := func(sql string) {
			t.Helper()
			_, err := owner.Pool().Exec(b.Ctx, sql, pgx.QueryExecModeSimpleProtocol)
			b.Must(err)
		}
		if owner != b.store {
			b.hooksAs(owner)
		}
		tenant, err := kit.PgStore{Store: owner}.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		exec(`create table millrace_acme.totals_1 as select 0 as n; create view millrace_acme.totals as select * from millrace_acme.totals_1;
			create table millrace_acme.totals_2 as select 0 as n`)
		last := b.AppendTo(tenant, "order-1", 5)
		version1 := millrace.Projection{Name: "totals", Tenants: []string{"acme"}, Handler: pgstore.Batch(writeTotals)}
		version2 := totals2()
		version2.Tenants = version1.Tenants
		rt := b.Runtime(kit.Quick, version1, version2)
		stop := b.Start(rt)
		b.ReachesOf(rt, "acme", "totals", last)
		b.Must(swapAll(b.Ctx, rt.Admin))
		b.Must(rt.PauseTenant(b.Ctx, "acme"))
		// The backup was made after three events, before the second version.
		exec(`delete from millrace_acme.events where global_seq > 3; update millrace_acme.streams set version = 3;
			create or replace view millrace_acme.totals as select * from millrace_acme.totals_1;
			update millrace_acme.totals_1 set n = 3; update millrace_acme.totals_2 set n = 0`)
		_, err = rt.RecoverTenant(b.Ctx, "acme", admin.RecoverOptions{End: 3, Reset: map[string]int64{"totals@2": 0}})
		b.Must(err)
		shown := func() int { return value[int](b, "select n from millrace_acme.totals") }
		if n := shown(); n != 3 {
			t.Errorf("readers see %d events before the hook's change is done again", n)
		}
		exec(sqlOf(t, "restoring.md", "## An older backup", 2)[1])
		b.Must(rt.ResumeTenant(b.Ctx, "acme"))
		b.ReachesOf(rt, "acme", "totals@2", b.AppendTo(tenant, "order-1", 1))
		if n := shown(); n != 8 {
			t.Errorf("readers see %d, want 4 events, each twice", n)
		}
		stop()
	})
}

// As docs/restoring.md says of a backup that lacks a step of Options.TenantSetup.
func TestRestoredTenantGetsTheStepsThatItLacks(t *testing.T) {
	r := release{"orders", "sums"}
	onRoles(t, func(t *testing.T, owner *pgstore.Store, b *bundle) {
		owner = b.open(owner.Pool().Config().ConnString(), nil, r.options())
		b.Must(owner.Migrate(b.Ctx))
		_, err := owner.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		exec := func(sql string) {
			_, err := owner.Pool().Exec(b.Ctx, sql)
			b.Must(err)
		}
		exec("drop table millrace_acme.sums") // the backup was made before the second step
		b.Must(owner.Migrate(b.Ctx))
		missing := func() bool {
			return value[bool](b, "select to_regclass('millrace_acme.sums') is null")
		}
		if !missing() {
			t.Fatal("the test shows nothing")
		}
		exec(sqlOf(t, "restoring.md", "## An older backup", 2)[0])
		b.Must(owner.Migrate(b.Ctx))
		if missing() {
			t.Errorf("the table %s is missing", pgx.Identifier{"millrace_acme", "sums"}.Sanitize())
		}
	})
}
