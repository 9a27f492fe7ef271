package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// seen is a read model whose handler records each position in the tenant's own table, and parks poison events.
var seen = millrace.Projection{Name: "seen", AnyOrder: true,
	Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		if e.Type == "poison" {
			return projection.Park(errors.New("poison"))
		}
		_, err := tx.Exec(ctx, "insert into seen values ($1)", e.Position)
		return err
	})}

// TestTenantsOfAnyName runs tenants with long and hostile names through everything that a tenant does. The poll
// interval is so long that only notifications wake projections.
func TestTenantsOfAnyName(t *testing.T) {
	t.Parallel()
	b := setup(t,
		pgstore.Options{TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL("create table seen (position bigint)")}})
	b.Patient()
	cyrillic := strings.Repeat("я", 100)
	long, err := b.store.ForTenant(cyrillic)
	b.Must(err)
	hashed := strings.TrimPrefix(long.EventsSchema(), "millrace_")
	names := []string{"3f2b8c1e-9d4a-4f6b-8e2a-5c7d9e1f0a3b", cyrillic, hashed, long.EventsSchema(), "millrace_default",
		strings.Repeat("я", 99), strings.Repeat(`"`, 200), `it's "quoted"; drop schema millrace cascade; --`,
		"  spaces  ", strings.Repeat("🙂/#", 33)}
	rt := b.Running(millrace.Config{Store: tuning.Settings{Reconcile: 100 * time.Millisecond}, PollInterval: time.Hour},
		seen)
	elsewhere := b.elsewhere(pgstore.Options{})
	for _, name := range names {
		_, err := b.store.CreateTenant(b.Ctx, name)
		b.Must(err)
	}
	for i, name := range names {
		tenant, err := elsewhere.ForTenant(name)
		b.Must(err)
		b.passesThroughEverything(rt, tenant, i)
	}
	status := b.StatusOf(rt)
	tenants, err := b.store.Tenants(b.Ctx)
	b.Must(err)
	for i, name := range names {
		p := status.Projection(millrace.ProjectionID{Tenant: name, Name: "seen"})
		if p.State != admin.StateLive || p.Parked != 1 || !slices.Contains(tenants, name) {
			t.Errorf("%q: %s, %d parked, %q", name, p.State, p.Parked, tenants)
		}
		tenant, err := b.store.ForTenant(name)
		b.Must(err)
		schema := value[string](b, "select schema_name from millrace.tenants where tenant = $1", name)
		n := value[int](b, "select count(*) from "+pgx.Identifier{schema, "seen"}.Sanitize())
		if schema != tenant.EventsSchema() || n != i+3 {
			t.Errorf("%q: schema %q, recorded as %q, with %d rows, want %d", name, tenant.EventsSchema(), schema, n,
				i+3)
		}
	}
}

// passesThroughEverything appends n events and three others to a tenant of another process's store, one of them poison.
func (b *bundle) passesThroughEverything(rt *millrace.Runtime, tenant *pgstore.Tenant, n int) {
	b.T.Helper()
	id := millrace.ProjectionID{Tenant: tenant.Name(), Name: "seen"}
	add := func(kind string, n int) int64 {
		b.T.Helper()
		r, err := tenant.Append(b.Ctx, "s", event.Any, slices.Repeat([]event.Event{{Type: kind}}, n)...)
		b.Must(err)
		return r.Positions[n-1]
	}
	b.Eventually("the projection is live",
		func() bool { return b.StatusOf(rt).Projection(id).State == admin.StateLive })
	add("poison", 1)
	b.ReachesOf(rt, tenant.Name(), "seen", add("counted", n+1))

	// A replay fails: the dead letter stays.
	result, err := b.store.DeadLetters(id).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 1)
	b.Must(err)
	if result.Failed != 1 {
		b.T.Errorf("%q: the replay's result is %+v", tenant.Name(), result)
	}

	b.Must(rt.Pause(b.Ctx, id))
	last := add("counted", 1)
	if p := b.StatusOf(rt).Projection(id); p.State != admin.StatePaused || p.Checkpoint >= last {
		b.T.Errorf("%q: %s at %d, after a pause", tenant.Name(), p.State, p.Checkpoint)
	}
	b.Must(rt.Resume(b.Ctx, id))
	b.ReachesOf(rt, tenant.Name(), "seen", last)

	// An append that stays open holds the mark back, and the status names its backend.
	events := pgx.Identifier{tenant.EventsSchema(), "events"}.Sanitize()
	conn, end := b.session("begin; insert into " + events +
		" (stream_id, stream_version, type, body) values ('open', 1, 'counted', '1')")
	last = add("counted", 1)
	b.Eventually("the open append is named", func() bool {
		at := slices.IndexFunc(b.StatusOf(rt).Tenants,
			func(t admin.TenantStatus) bool { return t.Tenant == tenant.Name() })
		return at >= 0 && b.StatusOf(rt).Tenants[at].Held != nil
	})
	_, err = conn.Exec(b.Ctx, "rollback")
	b.Must(err)
	end()
	b.ReachesOf(rt, tenant.Name(), "seen", last)
}

func TestTenantOfALongNameIsCreatedBySQL(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	name := strings.Repeat("'я\"", 50)
	sql, err := pgstore.TenantMigrations("", name, 0)
	b.Must(err)
	_, err = b.store.Pool().Exec(b.Ctx, sql, pgx.QueryExecModeSimpleProtocol)
	b.Must(err)
	tenant, err := b.store.CreateTenant(b.Ctx, name)
	b.Must(err)
	_, err = tenant.Append(b.Ctx, "s", event.NoStream, event.Event{Type: "counted"})
	b.Must(err)
}
