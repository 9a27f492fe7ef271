package postgres_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// traffic counts what a process sends to the server: statements by a tracer, and every message, since not all
// statements are traced, by the connections themselves.
type traffic struct {
	messages atomic.Int64

	mu         sync.Mutex
	statements map[string]int
}

func (tr *traffic) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.statements[data.SQL]++
	return ctx
}

func (*traffic) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// countedConn counts what is sent over it.
type countedConn struct {
	net.Conn
	traffic *traffic
}

func (c countedConn) Write(p []byte) (int, error) {
	c.traffic.messages.Add(1)
	return c.Conn.Write(p)
}

// sent is the traffic of a period.
type sent struct {
	statements, messages int
	often                []string
}

func (s sent) String() string {
	return fmt.Sprintf("%d statements, %d messages", s.statements, s.messages)
}

// grown returns how many times as much traffic s has as from, by the larger of both counts.
func (s sent) grown(from sent) float64 {
	return max(float64(s.statements)/float64(from.statements), float64(s.messages)/float64(from.messages))
}

// during counts for a while.
func (tr *traffic) during(ctx context.Context, d time.Duration) sent {
	tr.mu.Lock()
	tr.statements = make(map[string]int)
	tr.mu.Unlock()
	before := tr.messages.Load()
	kit.Pass(ctx, d)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	s := sent{messages: int(tr.messages.Load() - before)}
	for _, sql := range slices.SortedFunc(maps.Keys(tr.statements), func(a, b string) int {
		return cmp.Compare(tr.statements[b], tr.statements[a])
	}) {
		s.statements += tr.statements[sql]
		s.often = append(s.often, fmt.Sprintf("%d × %.60s", tr.statements[sql], strings.Join(strings.Fields(sql), " ")))
	}
	return s
}

// watched is a second store over the same database whose traffic is counted, that of session connections included.
func (b *bundle) watched() (*pgstore.Store, *traffic) {
	b.T.Helper()
	tr := &traffic{statements: make(map[string]int)}
	return b.open(b.dsn, func(config *pgxpool.Config) {
		config.ConnConfig.Tracer = tr
		dialing(func(conn net.Conn) net.Conn { return countedConn{conn, tr} })(config)
	}, pgstore.Options{}), tr
}

// often is the interval of all periodic work of idleTraffic.
const often = 100 * time.Millisecond

// idleTraffic runs that many projections of that many tenants. It counts for a time while all of them are at the end of
// the events and nothing is appended, then while the session connection is lost and made again, and then while one
// event is appended. Half of the projections are not concerned by any event.
func idleTraffic(t *testing.T, watch time.Duration, tenants, projections int) (idle, lost, busy sent) {
	t.Helper()
	const events = 5
	b := setup(t, pgstore.Options{}, "pool_max_conns", "8")
	all := b.Tenants(tenants)
	appendToAll := func(n int) {
		for _, tenant := range all {
			b.AppendTo(tenant, "a", n)
		}
	}
	appendToAll(events - 1)
	var list []millrace.Projection
	for i := range projections {
		p := millrace.Projection{Name: fmt.Sprint("p", i), Handler: b.Store.Batch(kit.Nothing)}
		if i%2 == 1 {
			p.Types = []string{"never"}
		}
		list = append(list, p)
	}
	store, tr := b.watched()
	b.Start(b.Runtime(millrace.Config{Store: tuning.Settings{Store: store, Heartbeat: often, Reconcile: often,
		Advance: often}, PollInterval: often}, list...))
	appendToAll(1)
	b.Eventually("all checkpoints are at the end", func() bool {
		var there int
		err := b.store.Pool().QueryRow(b.Ctx,
			"select count(*) from millrace.leases where owner is not null and checkpoint = $1", events).Scan(&there)
		return err == nil && there == tenants*projections
	})
	tr.during(b.Ctx, watch/2) // what is left of the work before
	versions := func() (all string) {
		b.Must(b.store.Pool().QueryRow(b.Ctx,
			"select string_agg(xmin::text, ' ' order by id) from millrace.leases").Scan(&all))
		return all
	}
	before := versions()
	idle = tr.during(b.Ctx, watch)
	if versions() != before {
		t.Error("leases were written while all projections were idle")
	}
	b.terminateSessions()
	lost = tr.during(b.Ctx, watch)
	appendToAll(1)
	busy = tr.during(b.Ctx, watch/2)
	t.Logf("%d tenants, %d projections of each: idle %v; with its session lost %v; then, in half the time, with an event %v", tenants, projections, idle, lost, busy)
	return idle, lost, busy
}

func TestIdleProjectionsCostNothing(t *testing.T) {
	// The counts are those of some time, and a busy machine does less in it. So what is wrong is counted again, for
	// longer.
	var wrong []string
	for i := range 3 {
		wrong = idleCosts(t, 20*often<<i)
		if len(wrong) == 0 {
			return
		}
		t.Log(strings.Join(wrong, "\n"))
	}
	t.Error(strings.Join(wrong, "\n"))
}

// idleCosts compares the traffic of few and many projections, and returns what is wrong with it.
func idleCosts(t *testing.T, watch time.Duration) (wrong []string) {
	const bound = 1.5
	var few, fewLost, fewBusy, many, manyLost, manyBusy, spread, spreadLost sent
	t.Run("beside each other", func(t *testing.T) {
		t.Run("few", func(t *testing.T) {
			t.Parallel()
			few, fewLost, fewBusy = idleTraffic(t, watch, 1, 10)
		})
		t.Run("many", func(t *testing.T) {
			t.Parallel()
			many, manyLost, manyBusy = idleTraffic(t, watch, 1, 300)
		})
		t.Run("spread", func(t *testing.T) {
			t.Parallel()
			spread, spreadLost, _ = idleTraffic(t, watch, 20, 10)
		})
	})
	if few.statements < 10 || few.messages < few.statements {
		t.Fatalf("not everything is counted: %v", few)
	}
	for what, sends := range map[string]struct{ now, few sent }{
		"30 times as many projections, while idle,":          {many, few},
		"20 times as many tenants, while idle,":              {spread, few},
		"30 times as many projections, with a lost session,": {manyLost, fewLost},
		"20 times as many tenants, with a lost session,":     {spreadLost, fewLost},
	} {
		if grown := sends.now.grown(sends.few); grown > bound {
			wrong = append(wrong, fmt.Sprintf("%s send %.2f times as much:\n%s",
				what, grown, strings.Join(sends.now.often, "\n")))
		}
	}
	// The control: an event for every projection makes the counts differ.
	if grown := manyBusy.grown(fewBusy); grown <= bound {
		wrong = append(wrong,
			fmt.Sprintf("an event for 30 times as many projections costs %.2f times as much: the counts do not tell",
				grown))
	}
	return wrong
}
