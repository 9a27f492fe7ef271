package tests_test

import (
	"bytes"
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
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

// TestTrickleToManyTenantsPinsLittleMemory appends small events one by one, so that each is a read of its own.
func TestTrickleToManyTenantsPinsLittleMemory(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		const (
			tenants, rounds, writers = 300, 3, 8
			// An event of 200 bytes is some 500 bytes in memory, and timers and buffers of the trickle are counted with it.
			most = 8 << 10
		)
		b := kind.With(t, 8).Patient()
		all := b.Tenants(tenants)
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
		body := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 198)...), '"')
		round := func() {
			var group errgroup.Group
			group.SetLimit(writers)
			for _, tenant := range all {
				group.Go(func() error {
					result, err := tenant.Append(b.Ctx, "a", event.Any, event.Event{Type: "counted", Body: body})
					if err != nil {
						return err
					}
					return rt.WaitFor(b.Ctx, millrace.ProjectionID{Tenant: tenant.Name(), Name: "p"}, result.Positions[0])
				})
			}
			b.Must(group.Wait())
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
	}, kit.Alone)
}
