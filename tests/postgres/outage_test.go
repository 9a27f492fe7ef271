package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// impatient gives up on an event after one retry: were an outage counted, events would be parked at once.
var impatient = projection.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond}

// sensitive are projections that park an event as soon as anything that happens to it is counted, with batches that need
// no narrowing for that and with such that do.
func sensitive() (projections []millrace.Projection, names []string) {
	for name, p := range map[string]millrace.Projection{
		"p": {MaxEvents: 1, Retry: soon(-1)}, "q": {MaxEvents: 1, Retry: impatient}, "r": {MaxEvents: 10, Retry: impatient},
		"s": {MaxEvents: 10, Retry: soon(-1), OnFailure: projection.ActionParkStream, Replay: projection.ReplayPolicy{Interval: 50 * time.Millisecond}},
	} {
		p.Name, p.Handler = name, pgstore.Batch(record(name))
		projections, names = append(projections, p), append(names, name)
	}
	return projections, names
}

// pass lets a while go by, or ctx end.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// appendThrough appends until stop is called, over and over again where an append fails, as a server would. Every
// append has a key, so that one whose answer was lost is not appended twice.
func (b *bundle) appendThrough(writers int) (stop func() (appended int)) {
	ctx, cancel := context.WithCancel(b.ctx)
	var group sync.WaitGroup
	var appended atomic.Int64
	for w := range writers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("%d-%d", w, i)
				for {
					_, err := b.store.Append(b.ctx, fmt.Sprint("stream", w), event.Any.WithKey(key), event.Event{Type: "counted"})
					if err == nil {
						appended.Add(1)
						break
					}
					if pass(b.ctx, 20*time.Millisecond); b.ctx.Err() != nil {
						return
					}
				}
				pass(ctx, time.Millisecond)
			}
		})
	}
	return func() int {
		cancel()
		group.Wait()
		return int(appended.Load())
	}
}

// mustCatchUp waits until the projections have handled everything and checks what they did.
func (b *bundle) mustCatchUp(rt *millrace.Runtime, names ...string) {
	b.t.Helper()
	heads, err := b.store.Engine().Heads(b.ctx, []string{projection.DefaultTenant})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range names {
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, heads.Positions[projection.DefaultTenant]); err != nil {
			b.t.Fatal(err)
		}
		b.verify(name)
		if p := b.status(rt, name); p.Parked != 0 {
			b.t.Errorf("%s: %d events were parked", name, p.Parked)
		}
		// Nor were there any that have been replayed by now.
		if n, err := b.store.DeadLetters(projection.ID{Name: name}).Count(b.ctx, projection.DeadLetterFilter{All: true}, projection.DeadLetterResolved); n != 0 || err != nil {
			b.t.Errorf("%s: %d events had been parked: %v", name, n, err)
		}
	}
}

func TestDatabaseRestartsUnderLoadLoseParkAndDoubleNothing(t *testing.T) {
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	projections, names := sensitive()
	// The control takes the first outage for its own failure.
	var away atomic.Bool
	projections = append(projections, millrace.Projection{Name: "control", MaxEvents: 10, Retry: impatient, Handler: pgstore.Batch(failsAt("control",
		func(int64) bool { return away.Load() },
		func(context.Context, pgx.Tx, int, int64) error { return errors.New("server is away") }))})
	rt := b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	stop := b.appendThrough(3)
	progress := func() {
		before := b.status(rt, "p").Position
		b.eventually("events are applied", func() bool { return b.status(rt, "p").Position > before+50 })
	}
	progress()
	away.Store(true)
	for _, mode := range []string{"fast", "immediate", "fast"} {
		if err := server.Restart(b.ctx, mode); err != nil {
			t.Fatal(err)
		}
		progress()
		b.eventually("what is counted is parked", func() bool { return b.status(rt, "control").Parked > 0 })
		away.Store(false)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.StartAgain(b.ctx); err != nil {
		t.Fatal(err)
	}
	progress()
	t.Logf("%d events appended", stop())
	b.mustCatchUp(rt, names...)
	last := b.status(rt, "control").Head
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "control"}, last); err != nil {
		t.Fatal(err)
	}
	var parked []int64
	for _, letter := range b.letters("control") {
		parked = append(parked, letter.Position)
	}
	if b.verify("control", parked...); b.check("control") == nil {
		t.Errorf("%d events parked, and the check does not notice", len(parked))
	}
}

func TestTerminatedSessionsLoseParkAndDoubleNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	projections, names := sensitive()
	rt := b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, b.append("a", 1).Positions[0]); err != nil {
		t.Fatal(err) // What happens before it runs is an error of Run's.
	}
	stop := b.appendThrough(4)
	killer, err := pgx.Connect(b.ctx, b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = killer.Close(context.WithoutCancel(b.ctx)) }()
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		_, err := killer.Exec(b.ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and random() < 0.4`)
		if err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	t.Logf("%d events appended", stop())
	b.mustCatchUp(rt, names...)
}
