package pgstore

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// countedConn counts the bytes that the server sends.
type countedConn struct {
	net.Conn
	received *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// BenchmarkCatchUpOfPartitions reads all events, once for each of n partitions: what each reads beyond its own events
// is what partitions cost. The metrics are those of the whole projection, divided by the number of events.
func BenchmarkCatchUpOfPartitions(b *testing.B) {
	const events, streams = 100_000, 1000
	var received atomic.Int64
	store := newStore(b, func(config *pgxpool.Config) {
		config.MaxConns = 1 // so that its statistics are those of one session
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return countedConn{conn, &received}, err
		}
	})
	mustExec(b, store, `insert into millrace_default.events (stream_id, stream_version, type, body)
		select 'order-' || n % $1::int, n / $1::int + 1, 'T' || n % 10, to_jsonb($2::text) from generate_series(0, $3 - 1) n`, streams, strings.Repeat("x", 300), events)
	mustExec(b, store, "vacuum analyze millrace_default.events")
	statistics := func() (active float64, pages int64) {
		mustExec(b, store, "select pg_stat_force_next_flush()")
		mustExec(b, store, "select pg_stat_clear_snapshot()")
		if err := store.pool.QueryRow(b.Context(),
			"select active_time, blks_hit + blks_read from pg_stat_database where datname = current_database()").Scan(&active, &pages); err != nil {
			b.Fatal(err)
		}
		return active, pages
	}
	for _, n := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			active, pages := statistics()
			bytes := received.Load()
			for b.Loop() {
				found := 0
				for _, number := range partition.Numbers(n) {
					found += readShare(b, store, partition.Share{Range: partition.RangeOf(number, n)}, events)
				}
				if found != events {
					b.Fatalf("%d of %d events", found, events)
				}
			}
			activeAfter, pagesAfter := statistics()
			each := float64(b.N * events)
			b.ReportMetric((activeAfter-active)*1e6/each, "server-ns/event")
			b.ReportMetric(float64(received.Load()-bytes)/each, "bytes/event")
			b.ReportMetric(float64(pagesAfter-pages)/each, "pages/event")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/each, "ns/event")
		})
	}
}

// readShare reads as a partition does that catches up, and returns the number of events.
func readShare(b *testing.B, store *Store, share partition.Share, head int64) (found int) {
	for r := (engine.ReadRange{Share: share, Limit: 2000, MaxBytes: 4 << 20}); r.After < head; {
		r.UpTo = head
		if !share.Whole() {
			r.UpTo = min(head, r.After+100_000)
		}
		page, err := store.port().Read(b.Context(), projection.DefaultTenant, r)
		if err != nil {
			b.Fatal(err)
		}
		found += len(page.Events)
		r.After = page.To
	}
	return found
}
