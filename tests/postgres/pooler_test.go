package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// setupBehind is setup through a pooler in transaction mode that has fewer sessions than the pool has connections.
func setupBehind(t *testing.T, server *pgtest.Server, opts pgstore.Options) (*bundle, *pgtest.PgBouncer) {
	t.Helper()
	pooler := pgtest.Pooler(t, server.DSN("postgres"), pgtest.PgBouncerOptions{PoolSize: 3})
	dsn, err := pgtest.WithSetting(pooler.DSN("postgres"), "pool_max_conns", "10")
	if err != nil {
		t.Fatal(err)
	}
	return setupAt(t, dsn, opts), pooler
}

func TestRestartsOfThePoolerAndOfTheServerBehindItLoseParkAndDoubleNothing(t *testing.T) {
	server := pgtest.Private(t, pgtest.Options{})
	b, pooler := setupBehind(t, server, pgstore.Options{})
	projections, names := sensitive()
	projections = append(projections, millrace.Projection{Name: "usual", MaxEvents: 10, Retry: soon(-1), Handler: pgstore.Each(recordOneByOne("usual"))})
	names = append(names, "usual")
	rt := b.runtime(millrace.Config{PollInterval: 500 * time.Millisecond}, projections...)
	b.start(rt)
	stop := b.appendThrough(3)
	// For a moment after a restart the pooler answers that the server cannot be reached.
	position := func() (at int64) {
		b.eventually("the status can be read", func() bool {
			status, err := rt.Status(b.ctx)
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
		b.eventually("events are applied", func() bool { return position() > before+50 })
	}
	progress()
	for what, restart := range map[string]func() error{
		"pooler":                    func() error { return pooler.Restart(b.ctx) },
		"server":                    func() error { return server.Restart(b.ctx, "fast") },
		"server that lost sessions": func() error { return server.Restart(b.ctx, "immediate") },
	} {
		if err := restart(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		progress()
	}
	t.Logf("%d events appended", stop())
	b.mustCatchUp(rt, names...)
}

// recordOneByOne records its events with a statement for each, of which pgx knows from the second on.
func recordOneByOne(name string) eventFunc {
	return func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		var n int
		if err := tx.QueryRow(ctx, "select count(*) from public.applied where projection = $1 and position = $2", name, e.Position).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("position %d was applied before", e.Position)
		}
		return recordIn(ctx, tx, name, []event.Envelope{e})
	}
}

func TestDeadLettersAreReplayedBehindAPooler(t *testing.T) {
	t.Parallel()
	b, _ := setupBehind(t, pgtest.Private(t, pgtest.Options{}), pgstore.Options{})
	s := parkingIn(b)
	bad := s.at["a"][2]
	s.poisonAt(bad)
	rt := b.runtime(millrace.Config{}, s.p)
	b.start(rt)
	s.waitFor(rt)
	s.mustHaveParked(s.at["a"][2:]...)
	s.mended.Store(true)
	s.replay(projection.DeadLetterFilter{All: true}, 100)
	s.mustHaveParked()
}

func TestStatusSaysWhatIsMissingBehindAPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	for name, opts := range map[string]pgstore.Options{"without a way around": {}, "with one": {SessionDSN: server.DSN("postgres")}} {
		t.Run(name, func(t *testing.T) {
			opts.Schema = strings.ReplaceAll(name, " ", "_")
			b, _ := setupBehind(t, server, opts)
			defer b.exec("drop table applied")
			rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
			defer b.start(rt)()
			pooled := opts.SessionDSN == ""
			b.eventually("the session connection stands", func() bool {
				status, err := rt.Status(b.ctx)
				if err != nil || !status.Session.Connected {
					return false
				}
				if !status.Pooled || status.Session.Pooled != pooled || strings.Contains(status.Session.Reason, "SessionDSN") != pooled {
					t.Errorf("pooled: %v, session: %+v", status.Pooled, status.Session)
				}
				return true
			})
			if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, b.append("s", 1).Positions[0]); err != nil {
				t.Error(err)
			}
		})
	}
}
