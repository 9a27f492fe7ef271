package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// sensitive are projections that park an event as soon as anything that happens to it is counted, with batches that need
// no narrowing for that and with such that do.
func sensitive(b *bundle) (projections []millrace.Projection, names []string) {
	for name, p := range map[string]millrace.Projection{
		"p": {MaxEvents: 1, Retry: kit.Soon(0)}, "q": {MaxEvents: 1, Retry: kit.Soon(1)}, "r": {MaxEvents: 10, Retry: kit.Soon(1)},
		"s": {MaxEvents: 10, Retry: kit.Soon(0), OnFailure: projection.ActionParkStream, Replay: projection.ReplayPolicy{Interval: 50 * time.Millisecond}},
	} {
		p.Name, p.Handler = name, b.Store.Batch(kit.Record(name))
		projections, names = append(projections, p), append(names, name)
	}
	return projections, names
}

func TestDatabaseRestartsUnderLoadLoseParkAndDoubleNothing(t *testing.T) {
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	projections, names := sensitive(b)
	// The control takes the first outage for its own failure.
	var away atomic.Bool
	projections = append(projections, millrace.Projection{Name: "control", MaxEvents: 10, Retry: kit.Soon(1), Handler: b.Store.Batch(kit.FailsAt("control",
		func(int64) bool { return away.Load() },
		func(context.Context, kit.Tx, int, int64) error { return errors.New("server is away") }))})
	rt := b.Running(millrace.Config{}, projections...)
	stop := b.AppendThrough(3)
	progress := func() {
		before := b.Status(rt, "p").Position
		b.Eventually("events are applied", func() bool { return b.Status(rt, "p").Position > before+50 })
	}
	progress()
	away.Store(true)
	for _, mode := range []string{"fast", "immediate", "fast"} {
		b.Must(server.Restart(b.Ctx, mode))
		progress()
		b.Eventually("what is counted is parked", func() bool { return b.Status(rt, "control").Parked > 0 })
		away.Store(false)
	}
	b.Must(server.Kill())
	b.Must(server.StartAgain(b.Ctx))
	progress()
	t.Logf("%d events appended", stop())
	b.MustCatchUp(rt, names...)
	last := b.Status(rt, "control").Head
	b.Reaches(rt, "control", last)
	var parked []int64
	for _, letter := range b.Letters("control") {
		parked = append(parked, letter.Position)
	}
	if b.Verify("control", parked...); b.Check("control") == nil {
		t.Errorf("%d events parked, and the check does not notice", len(parked))
	}
}

func TestTerminatedSessionsLoseParkAndDoubleNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	projections, names := sensitive(b)
	rt := b.Running(millrace.Config{}, projections...)
	if err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p"}, b.Append("a", 1).Positions[0]); err != nil {
		t.Fatal(err) // What happens before it runs is an error of Run's.
	}
	stop := b.AppendThrough(4)
	killer, err := pgx.Connect(b.Ctx, b.dsn)
	b.Must(err)
	defer func() { _ = killer.Close(context.WithoutCancel(b.Ctx)) }()
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		_, err := killer.Exec(b.Ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and random() < 0.4`)
		b.Must(err)
		<-tick.C
	}
	t.Logf("%d events appended", stop())
	b.MustCatchUp(rt, names...)
}
