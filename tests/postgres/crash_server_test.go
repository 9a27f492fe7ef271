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
	"github.com/millrace-go/millrace/tests/kit"
)

// TestEventThatCrashesTheServerIsParkedInTheEnd has a statement of a handler end its backend by a signal, as a fault in an
// extension or the out-of-memory killer does: PostgreSQL ends all other sessions and recovers.
func TestEventThatCrashesTheServerIsParkedInTheEnd(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	deadly := b.Append("a", 30).Positions[12]
	last := b.Append("b", 30).Positions[29]
	var crashes atomic.Int64
	rt := b.Running(millrace.Config{}, append(b.Recorders("other"), millrace.Projection{Name: "p", MaxEvents: 16, Retry: kit.Soon(1),
		Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(deadly), func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
			var pid int
			if err := pg(tx).QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			crashes.Add(1)
			_ = syscall.Kill(pid, syscall.SIGKILL)
			return tx.Exec(ctx, "select pg_sleep(10)")
		}))})...)
	for _, name := range []string{"p", "other"} {
		b.Eventually(name+" has handled everything", func() bool {
			status, err := rt.Status(b.Ctx) // the server is away at times
			return err == nil && status.Projection(millrace.ProjectionID{Name: name}).Checkpoint >= last
		})
	}
	b.Verify("p", deadly)
	b.Verify("other")
	if letters := b.Letters("p"); len(letters) != 1 || letters[0].Position != deadly || letters[0].Error != projection.ErrProcessDied.Error() {
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
	b := setupAt(t, primary.DSN("postgres"), pgstore.Options{})
	standby, err := primary.Standby(b.Ctx, pgtest.StandbyOptions{})
	b.Must(err)
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	b.Must(errors.Join(primary.CatchUp(b.Ctx, standby), standby.Detach(b.Ctx)))
	b.use(b.open(b.dsn, func(config *pgxpool.Config) {
		config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			now, err := pgx.ParseConfig(to.Load().DSN("postgres"))
			if err == nil {
				conn.Host, conn.Port, conn.Fallbacks = now.Host, now.Port, nil
			}
			return err
		}
	}, pgstore.Options{}))
	rt := b.Running(millrace.Config{}, b.Recorders("p")...)
	b.Reaches(rt, "p", b.Append("a", 10).Positions[9])
	b.Must(errors.Join(primary.Kill(), standby.Promote(b.Ctx)))
	to.Store(standby)
	b.Eventually("events are appended", func() bool {
		_, err := b.store.Append(b.Ctx, "new", event.Any, event.Event{Type: "counted"})
		return err == nil
	})
	b.Append("new", 50)
	b.Eventually("they are applied", func() bool { return b.Check("p") == nil })
}

// TestTenantThatIsMadeAnewAtOnceRuns removes a tenant and makes it anew before any node looks at the list of tenants.
func TestTenantThatIsMadeAnewAtOnceRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	acme, err := b.store.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	var applied atomic.Int64
	rt := b.Runtime(millrace.Config{ReconcileInterval: time.Second}, millrace.Projection{Name: "p", Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
		if e.Stream == "new" {
			applied.Add(1)
		}
		return nil
	})})
	b.Start(rt)
	appends := func(stream string) int64 {
		result, err := acme.Append(b.Ctx, stream, event.Any, event.Event{Type: "counted"})
		b.Must(err)
		return result.Positions[0]
	}
	b.ReachesOf(rt, "acme", "p", appends("old"))
	b.exec("drop schema millrace_acme cascade;" + removeTenantSQL(t))
	if _, err := b.store.CreateTenant(b.Ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	appends("new")
	b.Eventually("its events are applied", func() bool { return applied.Load() == 1 })
}
