package actors

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

func tenantNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("tenant", i)
	}
	return names
}

func BenchmarkBatchSlotWithoutWaiters(b *testing.B) {
	for _, tenants := range []int{1, 100} {
		b.Run(fmt.Sprint(tenants, " tenants"), func(b *testing.B) {
			names := tenantNames(tenants)
			l := serving(Limits{Connections: 16}, names...)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				release, err := l.batch(b.Context(), l.flow(names[i%tenants], "p", 1))
				if err != nil {
					b.Fatal(err)
				}
				release()
				i++
			}
		})
	}
}

// 10,000 projections of 100 tenants wait for 8 slots.
func BenchmarkBatchSlotWithManyWaiters(b *testing.B) {
	const projections, tenants = 10_000, 100
	names := tenantNames(tenants)
	l := serving(Limits{Connections: 16, Batches: 8, BatchesPerTenant: 4}, names...)
	ctx, cancel := context.WithCancel(b.Context())
	turns := make(chan struct{})
	var group sync.WaitGroup
	for i := range projections {
		name := fmt.Sprint("projection", i)
		group.Go(func() {
			for {
				release, err := l.batch(ctx, l.flow(names[i%tenants], name, 1))
				if err != nil {
					return
				}
				select {
				case <-turns:
				case <-ctx.Done():
				}
				release()
			}
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		turns <- struct{}{}
	}
	cancel()
	group.Wait()
}
