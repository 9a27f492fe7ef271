package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// TestQueuedWorkDoesNotOutliveTheServerThatItWasReadFrom crashes a server that loses asynchronous commits, while the events
// of one projection wait for a slot. Then the positions are handed out again.
func TestQueuedWorkDoesNotOutliveTheServerThatItWasReadFrom(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{Settings: pgtest.AsyncCommits(map[string]string{"full_page_writes": "off"})})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
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
	rt := b.Runtime(millrace.Config{MaxBatches: 1}, millrace.Projection{Name: "holds", Handler: b.Store.Batch(holds), Types: []string{"hold"}},
		millrace.Projection{Name: "queued", Handler: b.Store.Batch(kit.Record("queued")), Types: []string{"counted"}})
	b.Start(rt)
	queued := millrace.ProjectionID{Name: "queued"}
	const rounds = 6
	for round := range rounds {
		kept := b.Append("kept", 10).Positions[9]
		b.Must(rt.WaitFor(b.Ctx, queued, kept))
		until := make(chan struct{})
		release := sync.OnceFunc(func() { close(until) })
		t.Cleanup(release)
		hold <- until
		if _, err := b.store.Append(b.Ctx, "hold", event.Any, event.Event{Type: "hold"}); err != nil {
			t.Fatal(err)
		}
		<-entered // it holds the only slot
		b.exec("checkpoint")
		last := b.Append("lost", 5).Positions[4]
		b.Eventually("the events are settled and wait for the slot", func() bool {
			status, err := rt.Status(b.Ctx)
			return err == nil && status.Tenants[0].Mark == last
		})
		b.Must(server.CrashBackend(b.Ctx))
		b.store.Pool().Reset()
		again := b.Append("new", 20).Positions
		release()
		b.Must(rt.WaitFor(b.Ctx, queued, again[19]))
		if err := b.survived("queued", "counted"); err != nil {
			t.Errorf("%v (positions from %d on after %d)", err, again[0], last)
		}
		if p := b.Status(rt, "queued"); p.Parked != 0 || p.State != millrace.StateLive {
			t.Errorf("%+v", p)
		}
		if again[0] <= last {
			t.Logf("round %d: events up to %d were lost, and positions handed out again from %d on", round+1, last, again[0])
			return
		}
	}
	t.Fatalf("no position was handed out again in %d crashes: the test shows nothing", rounds)
}

// TestFailoverWithLossStopsNothing kills a primary and promotes a standby that did not receive the last commits. The store
// knows both servers by one DSN.
func TestFailoverWithLossStopsNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	standby, err := server.Standby(t.Context(), pgtest.StandbyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	b := setupAt(t, pgtest.HostsDSN("postgres", "", server.Address(), standby.Address()), pgstore.Options{})
	var list []millrace.Projection
	for i := range 4 {
		name := fmt.Sprint("p", i)
		list = append(list, millrace.Projection{Name: name, Handler: b.Store.Batch(kit.Record(name))})
	}
	rt := b.Running(millrace.Config{}, list...)
	waitFor := func(position int64) {
		t.Helper()
		for _, p := range list {
			b.Reaches(rt, p.Name, position)
		}
	}
	waitFor(b.Append("kept", 50).Positions[49])
	b.Must(server.CatchUp(b.Ctx, standby))
	b.Must(standby.Detach(b.Ctx))
	waitFor(b.Append("lost", 200).Positions[199])
	b.Must(server.Kill())
	b.Must(standby.Promote(b.Ctx))
	began := time.Now()
	var again []int64
	b.Eventually("events are appended", func() bool {
		result, err := b.store.Append(b.Ctx, "new", event.Any, make200()...)
		again = result.Positions
		return err == nil
	})
	waitFor(again[len(again)-1])
	t.Logf("%v after the promotion all is applied; positions from %d on", time.Since(began), again[0])
	for _, p := range list {
		if err := b.survived(p.Name, "counted"); err != nil {
			t.Error(err)
		}
	}
}

func make200() (events []event.Event) {
	for range 200 {
		events = append(events, event.Event{Type: "counted"})
	}
	return events
}

// survived returns what is wrong with what a projection of one event type applied, compared with the events that the server has now.
func (b *bundle) survived(name, eventType string) error {
	var others []int64
	events, err := b.Store.Events(b.Ctx)
	for _, e := range events {
		if e.Type != eventType {
			others = append(others, e.Position)
		}
	}
	return errors.Join(err, b.Check(name, others...))
}

func TestCallerWaitsForItsReplayThroughAnOutage(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	bad := b.Append("a", 1).Positions[0]
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
	b.Reaches(rt, "p", bad)
	stop()
	close(mended)
	type answer struct {
		outcome projection.CommandResult
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		o, err := b.Store.DeadLetters(projection.ID{Name: "p"}).Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 1)
		done <- answer{o, err}
	}()
	b.Eventually("the command is given", func() bool {
		var commands int
		err := b.store.Pool().QueryRow(b.Ctx, "select count(*) from millrace.commands").Scan(&commands)
		return err == nil && commands == 1
	})
	b.Must(server.Kill())
	kit.Pass(b.Ctx, 500*time.Millisecond) // for the caller to meet the outage
	b.Must(server.StartAgain(b.Ctx))
	b.Start(rt)
	if a := <-done; a.err != nil || a.outcome.Done != 1 {
		t.Errorf("%+v, %v", a.outcome, a.err)
	}
}
