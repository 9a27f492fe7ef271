package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// All the time, batches of two tenants and messages of a third one wait for two connections. One of the two has the
// weight 3.
func TestMessagesTakeTheirShareOfTheConnections(t *testing.T) {
	const projections, counted = 4, 60
	b := setup(t, pgstore.Options{}, "pool_max_conns", "8")
	tenants := b.Tenants(3)
	light, heavy, queued := tenants[0].Name(), tenants[1].Name(), tenants[2].Name()
	var mu sync.Mutex
	begun, waits := make(map[millrace.ProjectionID]bool), make(map[string]int)
	begins := func(ctx context.Context) {
		mu.Lock()
		defer mu.Unlock()
		id, _ := millrace.ProjectionFrom(ctx)
		if !begun[id] {
			begun[id] = true
			clear(waits)
		}
	}
	var list []millrace.Projection
	for i := range projections {
		classic := b.Store.Batch(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
			begins(ctx)
			kit.Pass(ctx, 10*time.Millisecond)
			return nil
		})
		shared := b.Store.Queued(func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
			begins(ctx)
			q.Exec("select pg_sleep(0.01)")
			return nil
		})
		list = append(list, millrace.Projection{Name: fmt.Sprint("classic", i),
			MaxEvents: 1, Handler: classic, Tenants: []string{light, heavy}},
			millrace.Projection{
				Name: fmt.Sprint("queued", i), MaxEvents: 1, Handler: shared, Tenants: []string{queued},
			})
	}
	for _, tenant := range tenants {
		b.AppendTo(tenant, "a", 400)
	}
	weight := func(tenant string) int { return map[string]int{heavy: 3}[tenant] }
	b.Running(millrace.Config{MaxBatches: 2, MaxBatchesPerTenant: 2, TenantWeight: weight,
		Observer: observe.Observer{SlotWaited: func(w observe.Wait) {
			mu.Lock()
			defer mu.Unlock()
			if w.Slot == observe.SlotBatch && w.Tenant != queued {
				waits[w.Tenant]++
			}
		}}}, list...)
	b.Eventually("enough batches ended", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(begun) == 3*projections && waits[light] >= counted
	})
	mu.Lock()
	defer mu.Unlock()
	t.Logf("batches of the light tenant %d, of the heavy one %d, messages %d", waits[light], waits[heavy], waits[""])
	if n := waits[heavy]; n < 2*waits[light] || n > 4*waits[light] {
		t.Errorf("%d batches of the tenant of weight 3 began, and %d of that of weight 1", n, waits[light])
	}
	if n := waits[""]; 2*n < waits[light] || 2*n > 3*waits[light] {
		t.Errorf("%d messages were sent, and %d batches of a tenant of the same weight began", n, waits[light])
	}
}

// cutting is a connection that breaks within an answer that contains commits, after some of them.
type cutting struct {
	net.Conn
	cut func(commits int) (after int, cut bool)
	off bool
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.off {
		return 0, syscall.ECONNRESET
	}
	n, err := c.Conn.Read(p)
	committed := []byte("COMMIT\x00")
	commits := bytes.Count(p[:n], committed)
	if err != nil || commits == 0 {
		return n, err
	}
	after, cut := c.cut(commits)
	if !cut {
		return n, nil
	}
	c.off = true
	_ = c.Conn.Close()
	n = 0
	for range after {
		n += bytes.Index(p[n:], committed) + len(committed)
	}
	if n == 0 {
		return 0, syscall.ECONNRESET
	}
	return n, nil
}

// Meanwhile, columns of the read model get other types and get them back, and a tenant is dropped.
func TestMessagesWhoseAnswersEndInTheMiddleApplyEachEventOnce(t *testing.T) {
	t.Parallel()
	const projections, events = 3, 20
	b := setup(t, pgstore.Options{})
	tenants := b.Tenants(12)
	var answers, several, cuts atomic.Int64
	store := b.open(b.dsn, dialing(func(conn net.Conn) net.Conn {
		return &cutting{Conn: conn, cut: func(commits int) (after int, cut bool) {
			if commits > 1 && several.Add(1)%5 == 0 {
				cuts.Add(1)
				return 1 + rand.IntN(commits-1), true
			}
			return 0, answers.Add(1)%15 == 0
		}}
	}), pgstore.Options{SessionDSN: b.dsn})
	var list []millrace.Projection
	for i := range projections {
		list = append(list, millrace.Projection{Name: fmt.Sprint("p", i), MaxEvents: 2, Handler: b.Store.Queued(
			func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
				id, _ := millrace.ProjectionFrom(ctx)
				q.Record(id.Tenant+" "+id.Name, events...)
				return nil
			})})
	}
	for _, tenant := range tenants {
		b.AppendTo(tenant, "a", events)
	}
	rt := b.Running(millrace.Config{Store: store, MaxBatches: 1}, list...)
	dropped, tenants := tenants[len(tenants)-1], tenants[:len(tenants)-1]
	for i := range 6 {
		if i == 3 {
			b.Must(b.Store.DropTenant(b.Ctx, dropped.Name()))
		}
		b.exec("alter table public.applied alter column version type " + []string{"numeric", "bigint"}[i%2])
		kit.Pass(b.Ctx, 200*time.Millisecond)
	}
	for _, tenant := range tenants {
		last := b.AppendTo(tenant, "b", 1)
		for _, p := range list {
			b.ReachesOf(rt, tenant.Name(), p.Name, last)
			b.Must(b.CheckOf(tenant, tenant.Name()+" "+p.Name))
		}
	}
	t.Logf("%d of %d answers with several commits ended in the middle", cuts.Load(), several.Load())
	if cuts.Load() == 0 {
		t.Error("no answer ended between two commits: the test shows nothing")
	}
}

// recordsOf returns projections that queue what they apply. before is called first.
func (b *bundle) recordsOf(n int, before func(ctx context.Context)) (list []millrace.Projection) {
	for i := range n {
		name := fmt.Sprint("queued", i)
		list = append(list, millrace.Projection{Name: name, Handler: b.Store.Queued(
			func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
				before(ctx)
				return kit.RecordQueued(name)(ctx, q, events)
			})})
	}
	return list
}

// A handler has the only slot, so the batches of others wait for a message. They end with the node, and leave nothing
// behind.
func TestNodeStopsWhileBatchesWaitForTheirMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "4")
	other := b.Tenants(2)[1]
	entered := make(chan struct{}, 1)
	var waiting atomic.Int64
	queued := b.recordsOf(4, func(context.Context) { waiting.Add(1) })
	blocks := millrace.Projection{Name: "blocks", Tenants: []string{other.Name()}, Handler: b.Store.Batch(
		func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})}
	for i := range queued {
		queued[i].Tenants = []string{b.Store.Name()}
	}
	rt := b.Runtime(millrace.Config{MaxBatches: 1, GracePeriod: 200 * time.Millisecond}, append(queued, blocks)...)
	stop := b.Start(rt)
	b.AppendTo(other, "a", 1)
	b.InTime("a handler has the slot", func() { <-entered })
	b.Append("a", 3)
	b.Eventually("the others wait", func() bool { return waiting.Load() == int64(len(queued)) })
	b.InTime("the node stops", stop)
	for _, p := range queued {
		if n := len(b.Positions(p.Name)); n != 0 {
			t.Errorf("%s applied %d events", p.Name, n)
		}
	}
	rt = b.Running(millrace.Config{}, queued...)
	for _, p := range queued {
		b.Applied(rt, b.Head(), p.Name)
	}
}

// Live, queued handlers that do not return hold no connection, and leave slots to other tenants.
func TestQueuedHandlersThatBlockHoldNoConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "4")
	tenant := b.Tenants(2)[1]
	blocked := tenant.Name()
	release := make(chan struct{})
	var blocking atomic.Int64
	queued := b.recordsOf(6, func(ctx context.Context) {
		if id, _ := millrace.ProjectionFrom(ctx); id.Tenant == blocked {
			blocking.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
	})
	classic := millrace.Projection{Name: "classic", Handler: b.Store.Batch(kit.Nothing)}
	rt := b.Running(millrace.Config{MaxBatches: 2}, append(queued, classic)...)
	b.AllLive(rt, 2*len(queued)+2)
	last := b.AppendTo(tenant, "a", 1)
	b.Eventually("handlers block", func() bool { return blocking.Load() == 4 }) // four times MaxBatchesPerTenant
	b.ReachesOf(rt, blocked, "classic", last)
	b.Append("b", 2)
	for _, p := range append(queued, classic) {
		b.Reaches(rt, p.Name, b.Head())
	}
	close(release)
	for _, p := range queued {
		b.ReachesOf(rt, blocked, p.Name, last)
	}
}
