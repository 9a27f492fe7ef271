package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// lockEvents locks the events of tenants as ALTER TABLE does, in one transaction of a session of its own, until release
// is called with the statements that end it.
func (b *bundle) lockEvents(tenants ...kit.Tenant) (backend string, release func(sql string)) {
	b.T.Helper()
	conn, _ := b.session("begin")
	exec := func(sql string) {
		b.T.Helper()
		_, err := conn.Exec(b.Ctx, sql)
		b.Must(err)
	}
	for _, tenant := range tenants {
		exec("lock table " + eventsOf(tenant) + " in access exclusive mode")
	}
	return fmt.Sprintf("backend %d", conn.PgConn().PID()), exec
}

// slowest returns the longest time from an append to its projection. between is called before each append.
func (b *bundle) slowest(rt *millrace.Runtime, rounds int, between func()) (most time.Duration) {
	b.T.Helper()
	for range rounds {
		between()
		began := time.Now()
		b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
		most = max(most, time.Since(began))
	}
	return most
}

func TestLockedTenantDelaysNoOther(t *testing.T) {
	b := setup(t, pgstore.Options{}, "pool_max_conns", "4")
	locked := b.Tenants(3)[1]
	rt := b.Running(millrace.Config{PollInterval: 50 * time.Millisecond},
		millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	b.ReachesOf(rt, locked.Name(), "p", b.AppendTo(locked, "a", 1))
	without := b.slowest(rt, 30, func() {})

	backend, release := b.lockEvents(locked)
	status := func() (admin.ProjectionStatus, admin.TenantStatus) { return b.stateOf(rt, locked.Name()) }
	with := b.slowest(rt, 30, func() {
		// The feed of the locked tenant tries to read.
		b.exec("select pg_notify('millrace_wake', $1)", locked.Name())
	})
	t.Logf("%v at most without a locked tenant, %v with one", without, with)
	if with > 10*without+2*time.Second {
		t.Errorf("the latency grew from %v to %v", without, with)
	}
	// An event without a notification is found by polling, though a tenant of the slice is locked.
	b.exec(`insert into millrace_default.streams values ('foreign', 1)`)
	b.exec(`insert into millrace_default.events (stream_id, stream_version, type, body) values ('foreign', 1, 'counted', '1')`)
	b.Reaches(rt, "p", b.Head())
	p, tenant := status()
	if !strings.Contains(tenant.Reason, backend) || !strings.Contains(p.Reason, backend) ||
		p.State != admin.StateWaiting {
		t.Errorf("%s is not named: %q, and %s because of %q", backend, tenant.Reason, p.State, p.Reason)
	}
	// An append waits for the lock, and succeeds after it.
	appended := make(chan int64)
	go func() { appended <- b.AppendTo(locked, "a", 1) }()
	release("commit")
	b.ReachesOf(rt, locked.Name(), "p", <-appended)
	b.Eventually("no reason is left", func() bool {
		p, tenant := status()
		return tenant.Reason == "" && p.Reason == "" && p.State == admin.StateLive
	})
}

func TestRunUntilIdleWaitsForALockedTenant(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	locked := b.Tenants(2)[1]
	b.AppendTo(locked, "a", 1)
	_, release := b.lockEvents(locked)
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	ended := make(chan error, 1)
	go func() {
		_, err := rt.RunUntilIdle(b.Ctx)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(2 * time.Second): // it has read the heads several times
	}
	release("commit")
	b.Must(<-ended)
}

// A migration locks the events of nearly all tenants, many more than the pool has connections, in one transaction.
func TestManyLockedTenantsDelayNoOther(t *testing.T) {
	const tenants = 250
	b := setup(t, pgstore.Options{}, "pool_max_conns", "4")
	locked := b.Tenants(tenants)[1:]
	names, inserts := make([]string, len(locked)), ""
	for i, tenant := range locked {
		names[i] = tenant.Name()
		inserts += fmt.Sprintf("insert into %s (stream_id, stream_version, type, body) values ('locked', 1, 'counted', '1');",
			eventsOf(tenant))
	}
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)}
	first := b.Runtime(millrace.Config{PollInterval: 50 * time.Millisecond}, p)
	stop := b.Start(first)
	b.AllLive(first, tenants)
	// The feeds of the locked tenants try to read.
	wake := func() { b.exec("select pg_notify('millrace_wake', tenant) from unnest($1::text[]) tenant", names) }
	without := b.slowest(first, 8, wake)
	_, release := b.lockEvents(locked...)
	with := b.slowest(first, 8, wake)
	stop()
	second := b.Running(millrace.Config{PollInterval: 50 * time.Millisecond}, p)
	started := b.slowest(second, 8, wake)
	t.Logf("%v at most without locked tenants, %v with %d of them, %v in a runtime that starts meanwhile", without,
		with, len(locked), started)
	if most := 10*without + 2*time.Second; with > most || started > most {
		t.Errorf("the latency grew from %v to %v, and to %v in a runtime that starts meanwhile", without, with, started)
	}

	release(inserts + "commit")
	for _, name := range names {
		b.ReachesOf(second, name, "p", 1)
	}
}

// eventsOf is the table of a tenant's events.
func eventsOf(tenant kit.Tenant) string {
	return pgx.Identifier{tenant.(interface{ EventsSchema() string }).EventsSchema(), "events"}.Sanitize()
}

// rush counts the batches of statements that contain a text, and how many of them run or wait for a connection at once.
type rush struct {
	text string

	mu                   sync.Mutex
	all, now, most       int
	acquiring, acquirers int
}

func (r *rush) count(n *int, most *int, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n += by
	*most = max(*most, *n)
}

type rushKey struct{}

func (r *rush) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, r.text) {
			r.count(&r.now, &r.most, 1)
			r.count(&r.all, new(int), 1)
			return context.WithValue(ctx, rushKey{}, true)
		}
	}
	return ctx
}

func (*rush) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (r *rush) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if ctx.Value(rushKey{}) != nil {
		r.count(&r.now, &r.most, -1)
	}
}

func (*rush) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*rush) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *rush) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool,
	_ pgxpool.TraceAcquireStartData) context.Context {
	r.count(&r.acquiring, &r.acquirers, 1)
	return ctx
}

func (r *rush) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {
	r.count(&r.acquiring, &r.acquirers, -1)
}

// named are n projections that do nothing.
func (b *bundle) named(n int) (list []millrace.Projection) {
	for i := range n {
		list = append(list, millrace.Projection{Name: fmt.Sprint("p", i), Handler: b.Store.Batch(kit.Nothing)})
	}
	return list
}

func TestRunUntilIdleReadsManyProjectionsAtOnce(t *testing.T) {
	t.Parallel()
	const tenants, projections, connections = 200, 5, 8
	b := setup(t, pgstore.Options{}, "pool_max_conns", fmt.Sprint(connections))
	b.Patient()
	for _, tenant := range b.Tenants(tenants) {
		b.AppendTo(tenant, "a", 1)
	}
	r := &rush{text: "failing_position, p.attempts"}
	rt := b.Runtime(millrace.Config{Store: b.open(b.dsn, func(config *pgxpool.Config) { config.ConnConfig.Tracer = r },
		pgstore.Options{})}, b.named(projections)...)
	began := time.Now()
	b.RunUntilIdle(rt)
	t.Logf("%d statements about rows in %v, %d at once; %d waited for connections at once", r.all, time.Since(began),
		r.most, r.acquirers)
	if r.all == 0 || r.most > 1 {
		t.Errorf("%d statements about rows, %d at once", r.all, r.most)
	}
	if r.all > tenants {
		t.Errorf("%d statements about the rows of %d tenants", r.all, tenants)
	}
	if r.acquirers > 2*connections {
		t.Errorf("%d waited for one of %d connections at once", r.acquirers, connections)
	}
}

// The server makes 200 rows a second, and ends statements after 2 s.
func TestRowsOfProjectionsAreCreatedOnASlowServer(t *testing.T) {
	t.Parallel()
	const tenants, projections = 40, 20
	b := setup(t, pgstore.Options{}, "statement_timeout", "2000")
	b.Patient()
	b.Tenants(tenants)
	b.exec(`create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.005); return new; end $$;
		create trigger slow before insert on millrace.projections for each row execute function public.slow()`)
	b.Running(millrace.Config{Store: tuning.Settings{Reconcile: 50 * time.Millisecond}}, b.named(projections)...)
	b.Eventually("all rows are made", func() bool {
		return value[int](b, "select count(*) from millrace.leases where owner is not null") == tenants*projections
	})
}
