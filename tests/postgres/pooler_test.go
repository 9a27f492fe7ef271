package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// setupBehind is setup through a pooler in transaction mode that has fewer sessions than the pool has connections.
func setupBehind(t *testing.T, server *pgtest.Server, opts pgstore.Options) (*bundle, *pgtest.PgBouncer) {
	t.Helper()
	pooler := pgtest.Pooler(t, server.DSN("postgres"), pgtest.PgBouncerOptions{PoolSize: 3})
	return setupAt(t, kit.WithSetting(t, pooler.DSN("postgres"), "pool_max_conns", "10"), opts), pooler
}

func TestRestartsOfThePoolerAndOfTheServerBehindItLoseParkAndDoubleNothing(t *testing.T) {
	server := pgtest.Private(t, pgtest.Options{})
	b, pooler := setupBehind(t, server, pgstore.Options{})
	projections, names := sensitive(b)
	projections = append(projections, millrace.Projection{Name: "usual",
		MaxEvents: 10, Retry: kit.Soon(0), Handler: b.Store.Each(recordOneByOne("usual"))})
	names = append(names, "usual")
	rt := b.Running(millrace.Config{PollInterval: 500 * time.Millisecond}, projections...)
	stop := b.AppendThrough(3)
	// For a moment after a restart the pooler answers that the server cannot be reached.
	position := func() (at int64) {
		b.Eventually("the status can be read", func() bool {
			status, err := rt.Status(b.Ctx, admin.StatusFilter{})
			for _, p := range status.Projections {
				if p.ID.Name == "p" {
					at = p.Position
				}
			}
			return err == nil
		})
		return at
	}
	progress := func() {
		t.Helper()
		before := position()
		b.Eventually("events are applied", func() bool { return position() > before+50 })
	}
	progress()
	for what, restart := range map[string]func() error{
		"pooler":                    func() error { return pooler.Restart(b.Ctx) },
		"server":                    func() error { return server.Restart(b.Ctx, "fast") },
		"server that lost sessions": func() error { return server.Restart(b.Ctx, "immediate") },
	} {
		if err := restart(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		progress()
	}
	t.Logf("%d events appended", stop())
	b.MustCatchUp(rt, names...)
}

// recordOneByOne records its events with a statement for each, of which pgx knows from the second on.
func recordOneByOne(name string) kit.EventFunc {
	return func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
		var n int
		if err := pg(tx).QueryRow(ctx, "select count(*) from public.applied where projection = $1 and position = $2",
			name, e.Position).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("position %d was applied before", e.Position)
		}
		return tx.Record(ctx, name, e)
	}
}

func TestDeadLettersAreReplayedBehindAPooler(t *testing.T) {
	t.Parallel()
	b, _ := setupBehind(t, pgtest.Private(t, pgtest.Options{}), pgstore.Options{})
	s := kit.NewParking(b.Bundle)
	bad := s.At["a"][2]
	s.PoisonAt(bad)
	rt := b.Running(millrace.Config{}, s.P)
	s.CatchUp(rt)
	s.MustHaveParked(s.At["a"][2:]...)
	s.Mended.Store(true)
	<-s.Replaying("p")
	s.MustHaveParked()
}

func TestStatusSaysWhatIsMissingBehindAPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	for name, opts := range map[string]pgstore.Options{"without a way around": {},
		"with one": {SessionDSN: server.DSN("postgres")}} {
		t.Run(name, func(t *testing.T) {
			opts.Schema = strings.ReplaceAll(name, " ", "_")
			b, _ := setupBehind(t, server, opts)
			rt := b.Runtime(millrace.Config{}, b.Recorders("p")...)
			defer b.Start(rt)()
			pooled := opts.SessionDSN == ""
			b.Eventually("the session connection stands", func() bool {
				status, err := rt.Summary(b.Ctx)
				if err != nil || !status.Session.Connected {
					return false
				}
				if !status.Session.StorePooled || status.Session.Pooled != pooled ||
					strings.Contains(status.Session.Reason, "SessionDSN") != pooled {
					t.Errorf("session: %+v", status.Session)
				}
				return true
			})
			if err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p"}, b.Append("s", 1).Positions[0]); err != nil {
				t.Error(err)
			}
		})
	}
}
