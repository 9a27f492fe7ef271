package storecopy

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/sqlitestore"
)

var (
	fillSeed    = flag.Uint64("fill-seed", 0, "seed of the random store in TestCopyHasEverything; 0 means new ones")
	benchEvents = flag.Int("bench-events", 200_000, "how many events BenchmarkRun copies")
)

// TestCopyHasEverything compares a copy of a random store with what statements of the test say that it must have.
func TestCopyHasEverything(t *testing.T) {
	t.Parallel()
	seeds := []uint64{uint64(time.Now().UnixNano()), uint64(time.Now().UnixNano()) + 1, 1}
	if *fillSeed != 0 {
		seeds = []uint64{*fillSeed}
	}
	for _, seed := range seeds {
		source, target := newSource(t), newTarget(t)
		fill(t, source, seed, 60)
		want := make(map[string]lines)
		for _, tenant := range tenants {
			want[tenant] = expected(t, source, tenant)
		}
		report := must(Run(testContext(t), source, target, keepAll()))(t)
		mustHave(t, target, want)
		for _, tenant := range report.Tenants {
			for _, table := range tenant.Tables {
				if n := len(want[tenant.Tenant][table.Table]); int(table.Rows) != n || n == 0 && tenant.Tenant != "empty" {
					t.Errorf("tenant %q: the report has %d %s, want %d", tenant.Tenant, table.Rows, table.Table, n)
				}
			}
		}
		if len(report.Tenants) != len(tenants) {
			t.Errorf("the report has %d tenants", len(report.Tenants))
		}
	}
}

// BenchmarkRun copies a store with events in streams of 10.
func BenchmarkRun(b *testing.B) {
	ctx := context.Background()
	for range b.N {
		b.StopTimer()
		source := must(sqlitestore.Open(ctx, filepath.Join(b.TempDir(), "store.db"), sqlitestore.Options{Synchronous: sqlitestore.SynchronousNormal}))(b)
		noError(b, source.Migrate(ctx))
		body := event.Event{Type: "OrderPlaced", Body: []byte(`{"order":"a-12345","customer":"c-678","cents":1999,"lines":[{"sku":"x","n":1},{"sku":"y","n":2}]}`)}
		for i := range *benchEvents / 10 {
			must(source.Append(ctx, fmt.Sprint("order-", i), event.NoStream, body, body, body, body, body, body, body, body, body, body))(b)
		}
		target := openTarget(b, pgtest.Database(b))
		noError(b, target.Migrate(ctx))
		took := make(map[Phase]time.Duration)
		last := time.Now()
		b.StartTimer()
		must(Run(ctx, source, target, Options{Progress: func(p Progress) {
			now := time.Now()
			took[p.Phase], last = took[p.Phase]+now.Sub(last), now
		}}))(b)
		for phase, took := range took {
			if phase != Opening {
				b.ReportMetric(float64(*benchEvents)/took.Seconds(), string(phase)+"-events/s")
			}
		}
		source.Close()
	}
}
