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
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

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

func (r *rush) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
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

func TestRunUntilIdleAsksForManyProjectionsAtOnce(t *testing.T) {
	t.Parallel()
	const tenants, projections, connections = 200, 5, 8
	b := setup(t, pgstore.Options{}, "pool_max_conns", fmt.Sprint(connections))
	b.Patient()
	for _, tenant := range b.Tenants(tenants) {
		b.AppendTo(tenant, "a", 1)
	}
	r := &rush{text: "failing_position, p.attempts"}
	rt := b.Runtime(millrace.Config{Store: b.open(b.dsn, func(config *pgxpool.Config) { config.ConnConfig.Tracer = r }, pgstore.Options{})}, b.named(projections)...)
	began := time.Now()
	b.RunUntilIdle(rt)
	t.Logf("%d statements about rows in %v, %d at once; %d waited for connections at once", r.all, time.Since(began), r.most, r.acquirers)
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
func TestRowsOfProjectionsAreMadeThoughTheServerIsSlow(t *testing.T) {
	t.Parallel()
	const tenants, projections = 40, 20
	b := setup(t, pgstore.Options{}, "statement_timeout", "2000")
	b.Patient()
	b.Tenants(tenants)
	b.exec(`create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.005); return new; end $$`)
	b.exec(`create trigger slow before insert on millrace.projections for each row execute function public.slow()`)
	b.Start(b.Runtime(millrace.Config{ReconcileInterval: 50 * time.Millisecond}, b.named(projections)...))
	var before, commits int
	b.Eventually("all rows are made", func() bool {
		var rows int
		b.Must(b.store.Pool().QueryRow(b.Ctx, "select count(*) from millrace.leases where owner is not null").Scan(&rows))
		if rows > before {
			before = rows
			commits++
		}
		return rows == tenants*projections
	})
	t.Logf("%d leases in at least %d steps", before, commits)
}
