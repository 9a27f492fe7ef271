package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// TestEventThatCrashesTheServerIsParkedInTheEnd has a statement of a handler end its backend by a signal, as a fault in an
// extension or the out-of-memory killer does: PostgreSQL ends all other sessions and recovers.
func TestEventThatCrashesTheServerIsParkedInTheEnd(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	deadly := b.append("a", 30).Positions[12]
	last := b.append("b", 30).Positions[29]
	var crashes atomic.Int64
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", MaxEvents: 16, Retry: soon(1),
		Handler: pgstore.Batch(failsAt("p", only(deadly), func(ctx context.Context, tx pgx.Tx, _ int, _ int64) error {
			var pid int
			if err := tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			crashes.Add(1)
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, err := tx.Exec(ctx, "select pg_sleep(10)")
			return err
		}))}, millrace.Projection{Name: "other", Handler: pgstore.Batch(record("other"))})
	b.start(rt)
	for _, name := range []string{"p", "other"} {
		b.eventually(name+" has handled everything", func() bool {
			var checkpoint int64
			err := b.store.Pool().QueryRow(b.ctx, "select checkpoint from millrace.leases join millrace.projections using (id) where name = $1", name).Scan(&checkpoint)
			return err == nil && checkpoint >= last
		})
	}
	b.verify("p", deadly)
	b.verify("other")
	if letters := b.letters("p"); len(letters) != 1 || letters[0].Position != deadly || letters[0].Error != projection.ErrProcessDied.Error() {
		t.Errorf("%+v", letters)
	}
	// One with others, then four alone.
	if n := crashes.Load(); n > 8 {
		t.Errorf("the server crashed %d times", n)
	}
}

// TestRowsLostInAFailoverAreMadeAgain registers a projection just before a failover that loses its rows.
func TestRowsLostInAFailoverAreMadeAgain(t *testing.T) {
	t.Parallel()
	primary := pgtest.Private(t, pgtest.Options{})
	var to atomic.Pointer[pgtest.Server]
	to.Store(primary)
	config, err := pgxpool.ParseConfig(primary.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		now, err := pgx.ParseConfig(to.Load().DSN("postgres"))
		if err == nil {
			conn.Host, conn.Port, conn.Fallbacks = now.Host, now.Port, nil
		}
		return err
	}
	b := setupAt(t, primary.DSN("postgres"), pgstore.Options{})
	standby, err := primary.Standby(b.ctx, pgtest.StandbyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	if err := errors.Join(primary.CatchUp(b.ctx, standby), standby.Detach(b.ctx)); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if b.store, err = pgstore.OpenPool(b.ctx, pool, pgstore.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.store.Close)
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, b.append("a", 10).Positions[9]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(primary.Kill(), standby.Promote(b.ctx)); err != nil {
		t.Fatal(err)
	}
	to.Store(standby)
	b.eventually("events are appended", func() bool {
		_, err := b.store.Append(b.ctx, "new", event.Any, event.Event{Type: "counted"})
		return err == nil
	})
	b.append("new", 50)
	b.eventually("they are applied", func() bool { return b.survived("p", "counted") == nil })
}

// TestTenantThatIsMadeAnewAtOnceRuns removes a tenant and makes it anew before any node looks at the list of tenants.
func TestTenantThatIsMadeAnewAtOnceRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	acme, err := b.store.CreateTenant(b.ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	var applied atomic.Int64
	rt := b.runtime(millrace.Config{ReconcileInterval: time.Second}, millrace.Projection{Name: "p", Handler: pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
		if e.Stream == "new" {
			applied.Add(1)
		}
		return nil
	})})
	b.start(rt)
	appends := func(stream string) int64 {
		result, err := acme.Append(b.ctx, stream, event.Any, event.Event{Type: "counted"})
		if err != nil {
			t.Fatal(err)
		}
		return result.Positions[0]
	}
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Tenant: "acme", Name: "p"}, appends("old")); err != nil {
		t.Fatal(err)
	}
	b.exec("drop schema millrace_acme cascade;" + removeTenantSQL(t))
	if _, err := b.store.CreateTenant(b.ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	appends("new")
	b.eventually("its events are applied", func() bool { return applied.Load() == 1 })
}
