package postgres_test

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// heap returns the bytes of the live objects.
func heap() int64 {
	var stats runtime.MemStats
	for range 2 { // the second collection frees what finalizers held
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// patient gives the bundle more time, for tests with very many tenants.
func (b *bundle) patient() *bundle {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Minute)
	b.t.Cleanup(cancel)
	b.ctx = ctx
	return b
}

// TestTrickleToManyTenantsPinsLittleMemory appends small events one by one, so that each is a read of its own.
func TestTrickleToManyTenantsPinsLittleMemory(t *testing.T) {
	const (
		tenants, rounds, writers = 300, 3, 8
		// An event of 200 bytes is some 500 bytes in memory, and timers and buffers of the trickle are counted with it.
		most = 8 << 10
	)
	b := setup(t, pgstore.Options{}, "pool_max_conns", "8").patient()
	all := b.tenants(tenants)
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(func(context.Context, pgx.Tx, []event.Envelope) error { return nil })})
	b.start(rt)
	body := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 198)...), '"')
	round := func() {
		var group errgroup.Group
		group.SetLimit(writers)
		for _, tenant := range all {
			group.Go(func() error {
				result, err := tenant.Append(b.ctx, "a", event.Any, event.Event{Type: "counted", Body: body})
				if err != nil {
					return err
				}
				return rt.WaitFor(b.ctx, millrace.ProjectionID{Tenant: tenant.Name(), Name: "p"}, result.Positions[0])
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	round()
	before := heap()
	for range rounds {
		round()
	}
	each := (heap() - before) / tenants
	t.Logf("%d bytes more for each tenant after %d events", each, rounds)
	if each > most {
		t.Errorf("a trickle of %d events pins %d bytes for each tenant, at most %d are expected", rounds, each, most)
	}
}
