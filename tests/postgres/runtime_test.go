package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// bundle is a store in a database of its own, with a table in which handlers record what they applied. The table has no
// unique index: what is applied twice shows.
type bundle struct {
	t     *testing.T
	ctx   context.Context
	dsn   string
	store *pgstore.Store
}

func setup(t *testing.T, opts pgstore.Options, settings ...string) *bundle {
	t.Helper()
	dsn := pgtest.Database(t)
	for i := 0; i+1 < len(settings); i += 2 {
		var err error
		if dsn, err = pgtest.WithSetting(dsn, settings[i], settings[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return setupAt(t, dsn, opts)
}

func setupAt(t *testing.T, dsn string, opts pgstore.Options) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	store, err := pgstore.Open(ctx, dsn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	b := &bundle{t: t, ctx: ctx, dsn: dsn, store: store}
	b.exec(`create table applied (projection text, position bigint, stream text, version bigint, at bigint generated always as identity)`)
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.store.Pool().Exec(b.ctx, sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) append(stream string, n int) event.Appended {
	b.t.Helper()
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{Type: "counted", Body: []byte(fmt.Sprintf(`{"i": %d}`, i))}
	}
	result, err := b.store.Append(b.ctx, stream, event.Any, events...)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// record is a handler that records what it applies.
func record(name string) batchFunc {
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		return recordIn(ctx, tx, name, events)
	}
}

func recordIn(ctx context.Context, tx pgx.Tx, name string, events []event.Envelope) error {
	positions, versions, streams := make([]int64, len(events)), make([]int64, len(events)), make([]string, len(events))
	for i, e := range events {
		positions[i], versions[i], streams[i] = e.Position, e.Version, e.Stream
	}
	_, err := tx.Exec(ctx, `insert into public.applied (projection, position, stream, version)
		select $1, p, s, v from unnest($2::bigint[], $3::text[], $4::bigint[]) with ordinality as u(p, s, v, o) order by o`,
		name, positions, streams, versions)
	return err
}

// verify tells what is wrong with what a projection applied: every event but the parked ones once and in order.
func (b *bundle) verify(name string, parked ...int64) {
	b.t.Helper()
	if err := b.check(name, parked...); err != nil {
		b.t.Error(err)
	}
}

func (b *bundle) check(name string, parked ...int64) error {
	var missing, doubled, foreign, disordered int
	err := b.store.Pool().QueryRow(b.ctx, `
		with a as (select position, at from public.applied where projection = $1),
		     e as (select global_seq from millrace_default.events where global_seq <> all($2::bigint[]))
		select (select count(*) from e where not exists (select from a where a.position = e.global_seq)),
		       (select count(*) - count(distinct position) from a),
		       (select count(*) from a where not exists (select from e where a.position = e.global_seq)),
		       (select count(*) from (select position < lag(position) over (order by at) as back from a) o where back)`,
		name, append([]int64{}, parked...)).Scan(&missing, &doubled, &foreign, &disordered)
	if err != nil {
		return err
	}
	if missing+doubled+foreign+disordered > 0 {
		return fmt.Errorf("projection %s: %d events missing, %d doubled, %d not to be there, %d out of order", name, missing, doubled, foreign, disordered)
	}
	return nil
}

func (b *bundle) runtime(config millrace.Config, projections ...millrace.Projection) *millrace.Runtime {
	b.t.Helper()
	if config.Store == nil {
		config.Store = b.store
	}
	rt, err := millrace.New(config)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range projections {
		if err := rt.Register(p); err != nil {
			b.t.Fatal(err)
		}
	}
	return rt
}

// start runs a runtime until the test ends or stop is called, and fails the test where Run returns an error.
func (b *bundle) start(rt *millrace.Runtime) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if !stopped {
			stopped = true
			if err := <-done; err != nil {
				b.t.Errorf("Run: %v", err)
			}
		}
	}
	b.t.Cleanup(stop)
	return stop
}

// eventually waits until cond holds.
func (b *bundle) eventually(what string, cond func() bool) {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			b.t.Fatalf("never: %s", what)
		}
	}
}

func (b *bundle) status(rt *millrace.Runtime, name string) millrace.ProjectionStatus {
	b.t.Helper()
	status, err := rt.Status(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range status.Projections {
		if p.ID.Name == name {
			return p
		}
	}
	return millrace.ProjectionStatus{}
}

func TestEveryEventIsAppliedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.append("a", 700)
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))}, millrace.Projection{
		Name: "q", Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			return recordIn(ctx, tx, "q", []event.Envelope{e})
		}),
	})
	b.start(rt)
	var last int64
	for i := range 50 {
		last = b.append(fmt.Sprint("s", i%7), 1+i%3).Positions[0]
	}
	for _, name := range []string{"p", "q"} {
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
	}
	b.verify("p")
	b.verify("q")
}

func TestRunUntilIdleEndsWhenEverythingIsHandled(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	for range 3 {
		b.append("a", 100)
		if _, err := rt.RunUntilIdle(b.ctx); err != nil {
			t.Fatal(err)
		}
		b.verify("p")
	}
	if err := b.check("nobody"); err == nil {
		t.Error("the check does not notice missing events")
	}
}

func TestTwoRuntimesInOneProcessDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.append("a", 300)
	first := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	second := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))}, millrace.Projection{Name: "q", Handler: pgstore.Batch(record("q"))})
	stopFirst := b.start(first)
	b.start(second)
	for range 20 {
		b.append("b", 5)
	}
	stopFirst()
	last := b.append("a", 5).Positions[4]
	for _, name := range []string{"p", "q"} {
		if err := second.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
		b.verify(name)
	}
}

func TestTypesSelectEventsAndTheCheckpointFollows(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{AdvanceInterval: 50 * time.Millisecond}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p")), Types: []string{"wanted"}})
	b.start(rt)
	wanted, err := b.store.Append(b.ctx, "w", event.Any, event.Event{Type: "wanted"})
	if err != nil {
		t.Fatal(err)
	}
	last := b.append("a", 300).Positions[299]
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, last); err != nil {
		t.Fatal(err)
	}
	b.eventually("the checkpoint follows over what does not concern the projection", func() bool {
		return b.status(rt, "p").Checkpoint == last
	})
	var applied []int64
	if err := b.store.Pool().QueryRow(b.ctx, "select array_agg(position) from applied").Scan(&applied); err != nil {
		t.Fatal(err)
	}
	if len(applied) != 1 || applied[0] != wanted.Positions[0] {
		t.Errorf("applied %v, not %v", applied, wanted.Positions)
	}
}

func TestPausedProjectionWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	id := millrace.ProjectionID{Name: "p"}
	b.start(rt)
	if err := rt.WaitFor(b.ctx, id, b.append("a", 3).Positions[2]); err != nil {
		t.Fatal(err)
	}
	if err := rt.Pause(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is paused", func() bool { return b.status(rt, "p").State == millrace.StatePaused })
	last := b.append("a", 3).Positions[2]
	if err := rt.WaitFor(b.ctx, id, last); !errors.Is(err, projection.ErrPaused) {
		t.Errorf("waiting for a paused projection: %v", err)
	}
	if p := b.status(rt, "p"); p.Behind != 3 {
		t.Errorf("behind by %d", p.Behind)
	}
	if err := rt.Resume(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	b.eventually("it goes on", func() bool { return b.status(rt, "p").Checkpoint == last })
	b.verify("p")
	if err := rt.Pause(b.ctx, millrace.ProjectionID{Name: "nobody"}); !errors.Is(err, projection.ErrUnknownProjection) {
		t.Errorf("pausing what is not there: %v", err)
	}
	for _, id := range []millrace.ProjectionID{{Name: "nobody"}, {Name: "p", Partition: 7}} {
		if err := rt.WaitFor(b.ctx, id, 1); !errors.Is(err, projection.ErrUnknownProjection) {
			t.Errorf("waiting for %s, which is not there: %v", id, err)
		}
	}
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Tenant: "typo", Name: "p"}, 1); !errors.Is(err, projection.ErrUnknownTenant) {
		t.Errorf("waiting for a tenant that is not there: %v", err)
	}
}

func TestRunUntilIdleReportsAPausedProjection(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	if err := rt.Pause(b.ctx, millrace.ProjectionID{Name: "p"}); err != nil {
		t.Fatal(err)
	}
	for _, events := range []int{0, 1} {
		if events > 0 {
			b.append("a", events)
		}
		if _, err := rt.RunUntilIdle(b.ctx); !errors.Is(err, projection.ErrPaused) {
			t.Errorf("RunUntilIdle with %d new events: %v", events, err)
		}
	}
}

func TestTenantsStayApartAndNewOnesAreFound(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{ReconcileInterval: 50 * time.Millisecond}, millrace.Projection{Name: "p",
		Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			id, _ := millrace.ProjectionFrom(ctx)
			return recordIn(ctx, tx, id.Tenant, events)
		})})
	b.start(rt)
	b.append("a", 2)
	for _, name := range []string{"acme", `o'hara "; drop schema public`} {
		tenant, err := b.store.CreateTenant(b.ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		result, err := tenant.Append(b.ctx, "a", event.NoStream, event.Event{Type: "x"}, event.Event{Type: "y"})
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Tenant: name, Name: "p"}, result.Positions[1]); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := b.store.Pool().QueryRow(b.ctx, "select count(*) from applied where projection = $1", name).Scan(&n); err != nil || n != 2 {
			t.Errorf("%s: %d events applied, %v", name, n, err)
		}
	}
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, 2); err != nil {
		t.Fatal(err)
	}
	b.verify("default")
}

func TestStopLetsABatchFinishAndGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	entered, leave := make(chan struct{}), make(chan struct{})
	handler := func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		close(entered)
		<-leave
		return recordIn(ctx, tx, "p", events)
	}
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(handler)})
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	b.append("a", 5)
	<-entered
	cancel()
	select {
	case err := <-done:
		t.Fatalf("Run ended with a batch under way: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(leave)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.verify("p")
	if p := b.status(rt, "p"); p.Owner != "" || p.State != millrace.StateNotOwned {
		t.Errorf("after the end it is %s, owned by %q", p.State, p.Owner)
	}
}

func TestStopCancelsABatchPastTheGracePeriod(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	entered := make(chan struct{}, 1)
	rt := b.runtime(millrace.Config{GracePeriod: 50 * time.Millisecond}, millrace.Projection{Name: "p",
		Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			if err := recordIn(ctx, tx, "p", events); err != nil {
				return err
			}
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})})
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	b.append("a", 5)
	<-entered
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var n int
	if err := b.store.Pool().QueryRow(b.ctx, "select count(*) from applied").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows of the cancelled batch stayed: %v", n, err)
	}
	if p := b.status(rt, "p"); p.Attempts != 0 || p.Parked != 0 {
		t.Errorf("the cancelled batch was counted: %+v", p)
	}
}

// Somebody appends and another runtime applies all the while: the checkpoint may well be beyond what was visible.
func TestRunUntilIdleEndsBesideALiveRuntime(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	p := millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))}
	live := b.runtime(millrace.Config{}, p)
	b.start(live)
	stop := b.appendThrough(4)
	defer stop()
	if err := live.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, 10); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := b.runtime(millrace.Config{}, p).RunUntilIdle(b.ctx); err != nil {
			t.Error(err)
		}
	}
}

type (
	batchFunc     = func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error
	eventFunc     = func(ctx context.Context, tx pgx.Tx, e event.Envelope) error
	deliveredFunc = func(ctx context.Context, e millrace.Delivered) error
)
