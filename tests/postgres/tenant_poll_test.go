package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// slow is a configuration of a node that notices nothing by polling while a test runs.
var slow = millrace.Config{Store: tuning.Settings{Reconcile: 10 * time.Minute}, PollInterval: 10 * time.Minute}

// TestNodeWithoutNotificationsFollowsTenants runs a node behind a pooler alone, which learns of each change by polling.
func TestNodeWithoutNotificationsFollowsTenants(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	pooler := pgtest.Pooler(t, b.dsn, pgtest.PgBouncerOptions{PoolSize: 5})
	store := b.open(kit.WithSetting(t, pooler.DSN(value[string](b, "select current_database()")), "pool_max_conns",
		"10"), nil, pgstore.Options{})
	config := millrace.Config{
		Store: tuning.Settings{Store: store, Reconcile: 50 * time.Millisecond}, PollInterval: 50 * time.Millisecond,
	}
	rt := b.Running(config, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	control := b.Another(slow, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	id := millrace.ProjectionID{Tenant: "acme", Name: "p"}
	for range 3 {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		reach := func() { b.T.Helper(); b.ReachesOf(rt, "acme", "p", b.AppendTo(acme, "s", 1)) }
		reach()
		b.Must(control.PauseTenant(b.Ctx, "acme"))
		if err := rt.WaitFor(b.Ctx, id, b.AppendTo(acme, "s", 1)); !errors.Is(err, projection.ErrPaused) {
			t.Errorf("WaitFor: %v", err)
		}
		b.Must(control.ResumeTenant(b.Ctx, "acme"))
		reach()
		b.Must(b.store.ArchiveTenant(b.Ctx, "acme"))
		b.Must(b.store.UnarchiveTenant(b.Ctx, "acme"))
		reach()
		b.Must(b.store.DropTenant(b.Ctx, "acme", tenancy.DropOptions{Confirm: "acme"}))
	}
	if session := b.Summary(rt).Session; !session.Pooled {
		t.Errorf("session %+v gets notifications", session)
	}
}

// TestDropTakesTheLeasesOfADeadNode has a node whose heartbeats ended while it held the tenant's leases.
func TestDropTakesTheLeasesOfADeadNode(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	_, err := b.Store.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)}
	b.RunUntilIdle(b.Runtime(slow, p))
	b.exec("update millrace.leases set owner = gen_random_uuid()")
	b.InTime("the drop ends",
		func() { b.Must(b.store.DropTenant(b.Ctx, "acme", tenancy.DropOptions{Confirm: "acme"})) })
}

// A node that was frozen or away while a tenant was dropped polls the events that are gone. No person is needed.
func TestFeedOfADroppedTenantLogsNoError(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	tenant := b.Tenants(2)[1]
	config := slow
	logger, logs := kit.Logs()
	config.Logger = logger
	rt := b.Running(config, b.Recorders("p")...)
	b.AllLive(rt, 2)
	// The drop does not notify the node. An event does, which was appended before.
	b.exec(fmt.Sprintf(`do $$ begin
		drop schema %[1]s cascade;
		delete from millrace.projections where tenant = '%[2]s';
		delete from millrace.tenants where tenant = '%[2]s';
		perform pg_notify('millrace_wake', '%[2]s');
	end $$`, pgx.Identifier{tenant.(interface{ EventsSchema() string }).EventsSchema()}.Sanitize(), tenant.Name()))
	b.Eventually("the feed meets the drop", func() bool { return logs.FilterMessageSnippet("feed stopped").Len() > 0 })
	if errs := logs.FilterLevelExact(zap.ErrorLevel).All(); len(errs) > 0 {
		t.Errorf("logged %+v", errs)
	}
}
