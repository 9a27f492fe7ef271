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

// All the time, batches of two tenants and messages of a third one wait for two connections. One of the two has the weight 3.
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
		list = append(list, millrace.Projection{Name: fmt.Sprint("classic", i), MaxEvents: 1, Handler: classic, Tenants: []string{light, heavy}},
			millrace.Projection{Name: fmt.Sprint("queued", i), MaxEvents: 1, Handler: shared, Tenants: []string{queued}})
	}
	for _, tenant := range tenants {
		b.AppendTo(tenant, "a", 400)
	}
	weight := func(tenant string) int { return map[string]int{heavy: 3}[tenant] }
	b.Running(millrace.Config{MaxBatches: 2, MaxBatchesPerTenant: 2, TenantWeight: weight, Observer: observe.Observer{SlotWaited: func(w observe.Wait) {
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

// cutting is a connection that breaks within an answer that contains commits, after a random one of them.
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

// The nodes have fewer connections than messages, sessions lose their prepared statements, a tenant is dropped, and answers end in the middle.
func TestMessagesWhoseAnswersEndInTheMiddleApplyEachEventOnce(t *testing.T) {
	t.Parallel()
	const projections, events = 3, 20
	b := setup(t, pgstore.Options{})
	tenants := b.Tenants(12)
	var answers, inMiddle atomic.Int64
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	store := b.open(b.dsn, dialing(func(conn net.Conn) net.Conn {
		return &cutting{Conn: conn, cut: func(commits int) (after int, cut bool) {
			if answers.Add(1)%7 != 0 {
				return 0, false
			}
			mu.Lock()
			defer mu.Unlock()
			if after = random.IntN(commits + 1); after > 0 && after < commits {
				inMiddle.Add(1)
			}
			return after, true
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
	for _, tenant := range tenants {
		last := b.AppendTo(tenant, "b", 1)
		for _, p := range list {
			b.ReachesOf(rt, tenant.Name(), p.Name, last)
			b.Must(b.CheckOf(tenant, tenant.Name()+" "+p.Name))
		}
	}
	t.Logf("of %d answers, %d ended in the middle", answers.Load(), inMiddle.Load())
	if inMiddle.Load() == 0 {
		t.Error("no answer ended between two commits: the test shows nothing")
	}
}
