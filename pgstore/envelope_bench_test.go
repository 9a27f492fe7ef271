package pgstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// BenchmarkReadEnvelopes reads pages as a projection does that catches up, and single events as a feed does.
func BenchmarkReadEnvelopes(b *testing.B) {
	store := newStore(b)
	const most = 2000
	body := []byte(`"` + strings.Repeat("x", 198) + `"`)
	events := make([]event.Event, most)
	for i := range events {
		events[i] = event.Event{Type: "Counted", Body: body, CorrelationID: fmt.Sprintf("correlation-%d", i)}
	}
	mustAppend(b, store.tenant, "stream", event.Any, events...)
	conn, err := store.pool.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	for _, n := range []int{1, 100, most} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			args := [][]byte{wire.Int(0), wire.Int(maxPosition), wire.Int(int64(n))}
			for b.Loop() {
				got, err := wire.ReadEvents(conn.Conn().PgConn().ExecParams(b.Context(), store.tenant.sql("read_tail"), args, nil, nil, wire.Binary), 0)
				if err != nil || len(got.List) != n {
					b.Fatalf("%d events, %v", len(got.List), err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
