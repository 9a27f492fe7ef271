package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// TestEventThatCrashesTheServerIsParkedInTheEnd has a statement of a handler end its backend by a signal, as a fault in
// an extension or the out-of-memory killer does: PostgreSQL ends all other sessions and recovers.
func TestEventThatCrashesTheServerIsParkedInTheEnd(t *testing.T) {
	t.Parallel()
	b, _ := private(t, pgtest.Options{})
	deadly := b.Append("a", 30).Positions[12]
	last := b.Append("b", 30).Positions[29]
	var crashes atomic.Int64
	rt := b.Running(millrace.Config{}, append(b.Recorders("other"),
		millrace.Projection{Name: "p", OnFailure: projection.ActionPark, MaxEvents: 16, Retry: kit.Soon(1),
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(deadly),
				func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
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
			status, err := rt.Status(b.Ctx, admin.StatusFilter{}) // the server is away at times
			return err == nil && status.Projection(millrace.ProjectionID{Name: name}).Checkpoint >= last
		})
	}
	b.Verify("p", deadly)
	b.Verify("other")
	if letters := b.DeadLettersOf("p"); len(letters) != 1 || letters[0].Position != deadly ||
		letters[0].Error != projection.ErrProcessDied.Error() {
		t.Errorf("%+v", letters)
	}
	// One crash in a batch with others, then four alone.
	if n := crashes.Load(); n > 8 {
		t.Errorf("the server crashed %d times", n)
	}
}

// removeTenant removes the tenant acme by hand, so that no node is notified.
const removeTenant = `drop schema millrace_acme cascade;
	delete from millrace.projections where tenant = 'acme';
	delete from millrace.tenants where tenant = 'acme'`

// TestTenantThatIsCreatedAgainAtOnceRuns removes a tenant and creates it again before any node reads the list of
// tenants.
func TestTenantThatIsCreatedAgainAtOnceRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	acme, err := b.Store.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	var applied atomic.Int64
	rt := b.Running(millrace.Config{Store: tuning.Settings{Reconcile: time.Second}},
		millrace.Projection{Name: "p", Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
			if e.Stream == "new" {
				applied.Add(1)
			}
			return nil
		})})
	b.ReachesOf(rt, "acme", "p", b.AppendTo(acme, "old", 1))
	b.exec(removeTenant)
	_, err = b.store.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	b.AppendTo(acme, "new", 1)
	b.Eventually("its events are applied", func() bool { return applied.Load() == 1 })
}

// TestQueuedWorkDoesNotOutliveTheServerThatItWasReadFrom crashes a server that loses asynchronous commits, while the
// events of one projection wait for a slot. Then the positions are handed out again.
func TestQueuedWorkDoesNotOutliveTheServerThatItWasReadFrom(t *testing.T) {
	t.Parallel()
	b, server := private(t, pgtest.Options{Settings: pgtest.AsyncCommits(map[string]string{"full_page_writes": "off"})})
	// A call holds the slot until the channel that it takes is closed. A call after the crash takes none.
	hold, entered := make(chan chan struct{}, 1), make(chan struct{})
	holds := func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
		select {
		case until := <-hold:
			entered <- struct{}{}
			select {
			case <-until:
			case <-ctx.Done():
			}
		default:
		}
		return ctx.Err()
	}
	rt := b.Running(millrace.Config{MaxBatches: 1},
		millrace.Projection{Name: "holds", Handler: b.Store.Batch(holds), Types: []string{"hold"}},
		millrace.Projection{Name: "queued", Handler: b.Store.Batch(kit.Record("queued")), Types: []string{"counted"}})
	const rounds = 6
	for round := range rounds {
		kept := b.Append("kept", 10).Positions[9]
		b.Reaches(rt, "queued", kept)
		until := make(chan struct{})
		release := sync.OnceFunc(func() { close(until) })
		t.Cleanup(release)
		hold <- until
		_, err := b.store.Append(b.Ctx, "hold", event.Any, event.Event{Type: "hold"})
		b.Must(err)
		<-entered // it holds the only slot
		b.exec("checkpoint")
		b.Must(server.HoldWAL(b.Ctx))
		last := b.Append("lost", 5).Positions[4]
		b.Eventually("the events are settled and wait for the slot", func() bool {
			status, err := rt.Status(b.Ctx, admin.StatusFilter{})
			return err == nil && status.Tenants[0].Mark == last
		})
		b.Must(server.CrashBackend(b.Ctx))
		b.store.Pool().Reset()
		again := b.Append("new", 20).Positions
		release()
		b.Reaches(rt, "queued", again[19])
		if err := b.survived("queued", "counted"); err != nil {
			t.Errorf("%v (positions from %d on after %d)", err, again[0], last)
		}
		if p := b.Status(rt, "queued"); p.Parked != 0 || p.State != admin.StateLive {
			t.Errorf("%+v", p)
		}
		if again[0] <= last {
			t.Logf("round %d: events up to %d were lost, and positions handed out again from %d on", round+1, last,
				again[0])
			return
		}
	}
	t.Fatalf("no position was handed out again in %d crashes: the test shows nothing", rounds)
}

// TestFailoverWithLossStopsNothing kills a primary and promotes a standby that did not receive the last commits. The
// store knows both servers by one DSN. The rows of one projection are lost, too.
func TestFailoverWithLossStopsNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	standby, err := server.Standby(t.Context(), pgtest.StandbyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	b := setupAt(t, pgtest.HostsDSN("postgres", "", server.Address(), standby.Address()), pgstore.Options{})
	names := []string{"p", "q", "r", "s"}
	rt := b.Running(millrace.Config{}, b.Recorders(names...)...)
	b.Applied(rt, b.Append("kept", 50).Positions[49], names...)
	b.Must(errors.Join(server.CatchUp(b.Ctx, standby), standby.Detach(b.Ctx)))
	late := b.Running(millrace.Config{}, b.Recorders("late")...)
	last := b.Append("lost", 200).Positions[199]
	b.Applied(rt, last, names...)
	b.Applied(late, last, "late")
	b.Must(errors.Join(server.Kill(), standby.Promote(b.Ctx)))
	began := time.Now()
	b.Eventually("events are appended", func() bool {
		_, err := b.store.Append(b.Ctx, "new", event.Any, event.Event{Type: "counted"})
		return err == nil
	})
	again := b.Append("new", 200).Positions
	b.Applied(rt, again[199], names...)
	t.Logf("%v after the promotion all is applied; positions from %d on", time.Since(began), again[0])
	b.Eventually("the rows of the late projection are made again", func() bool { return b.Check("late") == nil })
}

// survived returns what is wrong with what a projection of one event type applied, compared with the events that the
// server has now.
func (b *bundle) survived(name, eventType string) error {
	var others []int64
	events, err := kit.AllEvents(b.Ctx, b.Store)
	for _, e := range events {
		if e.Type != eventType {
			others = append(others, e.Position)
		}
	}
	return errors.Join(err, b.Check(name, others...))
}

func TestCallerWaitsForItsReplayThroughAnOutage(t *testing.T) {
	t.Parallel()
	b, server := private(t, pgtest.Options{})
	mended := make(chan struct{})
	handle := func(context.Context, kit.Tx, event.Envelope) error {
		select {
		case <-mended:
			return nil
		default:
			return projection.Park(errors.New("no"))
		}
	}
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Each(handle)})
	stop := b.Start(rt)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	stop()
	close(mended)
	replayed := b.Replaying("p")
	b.Eventually("the command is given", func() bool {
		all, _, err := b.Store.Commands(b.Ctx)
		return err == nil && all == 1
	})
	b.Must(server.Kill())
	kit.Pass(b.Ctx, 500*time.Millisecond) // for the caller to meet the outage
	b.Must(server.StartAgain(b.Ctx))
	b.Start(rt)
	if r := <-replayed; r.Done != 1 {
		t.Errorf("replayed %+v", r)
	}
}
