package storecopy

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// TestProjectionContinuesAfterDeletedEvents copies a store whose last events were deleted after they were handled. In
// PostgreSQL, a checkpoint above the last event would stop the projection.
func TestProjectionContinuesAfterDeletedEvents(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	var positions []int64
	run := func(store millrace.Store, handler millrace.Handler) {
		t.Helper()
		rt := must(millrace.New(millrace.Config{Store: store}))(t)
		noError(t, rt.Register(millrace.Projection{Name: "plain", Handler: handler}))
		must(rt.RunUntilIdle(ctx))(t)
	}
	must(source.Append(ctx, "s", event.NoStream, happened, happened, happened))(t)
	run(source, sqlitestore.Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
		positions = append(positions, e.Position)
		return nil
	}))
	sqlite(t, source, `delete from millrace_events where version > 1`)
	must(Run(ctx, source, target, keepAll()))(t)
	handler := pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
		positions = append(positions, e.Position)
		return nil
	})
	run(target, handler) // there is no new event yet
	must(target.Append(ctx, "s", event.Exact(3), happened))(t)
	run(target, handler)
	if want := []int64{1, 2, 3, 4}; !slices.Equal(positions, want) {
		t.Errorf("handled %v, want %v", positions, want)
	}
}

// TestCrashOfTheLastOwnerIsCounted copies a store whose owner died in a batch. The next claim counts no second crash.
func TestCrashOfTheLastOwnerIsCounted(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	must(source.Append(ctx, "s", event.NoStream, happened))(t)
	sqlite(t, source, `insert into millrace_projections (tenant, name, token) select id, 'plain', '6f1d2c3b-0000-4000-8000-000000000001' from millrace_tenants`)
	sqlite(t, source, `insert into millrace_leases (id, owner, epoch, crash_count) values (1, '6f1d2c3b-0000-4000-8000-000000000002', 7, 2)`)
	must(Run(ctx, source, target, keepAll()))(t)
	got := collectPG(t, target, `select epoch || ' ' || crash_count || ' ' || (owner is null) from millrace.leases`)
	if want := []string{"8 3 true"}; !slices.Equal(got, want) {
		t.Errorf("the lease is %q, want %q", got, want)
	}
}
