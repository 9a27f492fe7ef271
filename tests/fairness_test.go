package tests_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

const (
	// floodSlots is how many batches or deliveries run at once, and floodBatch how long each takes, unless it is a slow
	// one of a flood. The handlers wait, so that slots are scarce and processors are not.
	floodSlots = 6
	floodBatch = 50 * time.Millisecond
	// floodEvents is how many events the batches of a flood have.
	floodEvents = 25
)

// floodCase is how tenants flood.
type floodCase struct {
	tenants, projections int // that flood; the projections of each tenant
	slots                int // that the flood takes
	batch                time.Duration
	deliver              bool
	config               millrace.Config
}

// flood are projections that have a large backlog for some tenants, and one projection whose latency is measured for
// the others.
type flood struct {
	floodCase
	b       *kit.Bundle
	rt      *millrace.Runtime
	floods  []kit.Tenant
	quiet   []kit.Tenant
	on      atomic.Bool // the handlers of the flood take their time
	running atomic.Int64
	ended   atomic.Int64 // batches that took their time
}

// handle is a handler of the flood.
func (f *flood) handle(ctx context.Context) {
	if f.on.Load() {
		f.running.Add(1)
		kit.Pass(ctx, f.batch)
		f.running.Add(-1)
		f.ended.Add(1)
	}
}

func newFlood(b *kit.Bundle, c floodCase) *flood {
	const quiet = 4
	all := b.Tenants(c.tenants + quiet)
	f := &flood{floodCase: c, b: b, floods: all[:c.tenants], quiet: all[c.tenants:]}
	handler := func(handle func(ctx context.Context)) millrace.Handler {
		if c.deliver {
			return millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
				handle(ctx)
				events := d.Events()
				return d.Ack(ctx, events[len(events)-1].Position)
			})
		}
		return b.Store.Batch(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
			handle(ctx)
			return nil
		})
	}
	projections := []millrace.Projection{{Name: "measured", Types: []string{"measured"},
		Handler: handler(func(ctx context.Context) { kit.Pass(ctx, floodBatch) })}}
	for i := range f.projections {
		projections = append(projections, millrace.Projection{Name: fmt.Sprint("p", i),
			Types: []string{"flooding"}, MaxEvents: floodEvents, Handler: handler(f.handle)})
	}
	f.rt = b.Running(c.config, projections...)
	b.AllLive(f.rt, len(all)*len(projections))
	return f
}

// append appends n events of a type to a tenant, and returns the last position.
func (f *flood) append(tenant kit.Tenant, kind string, n int) int64 {
	f.b.T.Helper()
	result, err := tenant.Append(f.b.Ctx, "a", event.Any, slices.Repeat([]event.Event{{Type: kind}}, n)...)
	f.b.Must(err)
	return result.Positions[n-1]
}

// during runs fn while the flood takes its slots, and then lets the flood end.
func (f *flood) during(fn func()) {
	f.b.T.Helper()
	const events = 300
	f.ended.Store(0)
	f.on.Store(true)
	last := make(map[kit.Tenant]int64)
	for _, tenant := range f.floods {
		last[tenant] = f.append(tenant, "flooding", events)
	}
	f.b.Eventually("the flood takes its slots", func() bool { return f.running.Load() == int64(f.slots) })
	fn()
	if f.ended.Load() >= int64(f.tenants*f.projections*events/floodEvents) {
		f.b.T.Error("the flood ended before the measurement")
	}
	f.on.Store(false)
	for tenant, position := range last {
		for i := range f.projections {
			f.b.ReachesOf(f.rt, tenant.Name(), fmt.Sprint("p", i), position)
		}
	}
}

// p99 appends single events to the quiet tenants now and then, and returns the 99th percentile of the times until they
// are applied.
func (f *flood) p99() time.Duration {
	f.b.T.Helper()
	const probes = 6
	var mu sync.Mutex
	var all []time.Duration
	var group sync.WaitGroup
	for i, tenant := range f.quiet {
		group.Go(func() {
			for probe := range probes {
				// The pause keeps the tenants below their share of the slots: a flood of all tenants takes less for one
				// batch of each.
				kit.Pass(f.b.Ctx, 3*floodBatch+time.Duration(7*i+5*probe)*time.Millisecond)
				result, err := tenant.Append(f.b.Ctx, "a", event.Any, event.Event{Type: "measured"})
				began := time.Now()
				if err == nil {
					err = f.rt.WaitFor(f.b.Ctx, millrace.ProjectionID{Tenant: tenant.Name(), Name: "measured"},
						result.Positions[0])
				}
				if err != nil {
					f.b.T.Error(err)
					return
				}
				mu.Lock()
				all = append(all, time.Since(began))
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(all)
	if len(all) == 0 {
		f.b.T.FailNow()
	}
	return all[(len(all)*99-1)/100]
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// The quiet tenants wait at most for the end of a batch of the flood, and not for all projections that wait.
func TestTenantsThatFloodDelayQuietOnesLittle(t *testing.T) {
	const (
		most = 3
		// One round is enough if the ratio is clear. A machine under load adds noise: more rounds tell it from a delay.
		clear, rounds, moreRounds = 2, 3, 7
	)
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for name, c := range map[string]floodCase{
			"batches of one tenant, which may have all slots": {tenants: 1, projections: 60, slots: floodSlots,
				batch:  floodBatch,
				config: millrace.Config{MaxBatches: floodSlots, MaxBatchesPerTenant: floodSlots}},
			"slow batches of one tenant": {tenants: 1, projections: 60, slots: floodSlots / 2, batch: 8 * floodBatch,
				config: millrace.Config{MaxBatches: floodSlots}},
			"batches of many tenants": {tenants: 10, projections: 8, slots: floodSlots, batch: floodBatch,
				config: millrace.Config{MaxBatches: floodSlots}},
			"deliveries of many tenants": {tenants: 10, projections: 8, slots: floodSlots, batch: floodBatch,
				deliver: true,
				config:  millrace.Config{MaxDeliveries: floodSlots}},
		} {
			t.Run(name, func(t *testing.T) {
				if !c.deliver {
					kind.MustMeet(t, kit.ConcurrentWrites)
				}
				b := kind.With(t, 8).Patient()
				f := newFlood(b, c)
				var without, with []time.Duration
				ratio := 0.0
				for round := 1; round == 1 || ratio > clear && round <= rounds ||
					ratio > most && ratio < 2*most && round <= moreRounds; round++ {
					without = append(without, f.p99())
					f.during(func() { with = append(with, f.p99()) })
					ratio = float64(median(with)) / float64(median(without))
				}
				t.Logf("p99 without a flood %v, with one %v; of the medians the ratio is %.1f", without, with, ratio)
				if ratio > most {
					t.Errorf("with a flood the p99 is %.1f times that without, at most %d is promised", ratio, most)
				}
			})
		}
	}, kit.Alone)
}

// Forty projections of two tenants always wait for six slots. One tenant has the weight 3, and so has every other
// projection.
func TestWeightsShareTheSlots(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 8)
		const projections, counted = 20, 400
		tenants := b.Tenants(2)
		heavy := tenants[1].Name()
		for _, tenant := range tenants {
			b.AppendTo(tenant, "a", 200)
		}
		var mu sync.Mutex
		calls, counts := 0, make(map[millrace.ProjectionID]int)
		started := make(map[millrace.ProjectionID]bool)
		count := func(id millrace.ProjectionID) (over bool) {
			mu.Lock()
			defer mu.Unlock()
			started[id] = true
			switch {
			case len(started) < 2*projections: // the others do not wait yet
			case calls < counted:
				calls++
				counts[id]++
			default:
				over = true
			}
			return over
		}
		var list []millrace.Projection
		for i := range projections {
			list = append(list, millrace.Projection{Name: fmt.Sprint("p", i), Weight: 1 + 2*(i%2), MaxEvents: 1,
				Handler: b.Store.Batch(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
					if id, _ := millrace.ProjectionFrom(ctx); !count(id) {
						kit.Pass(ctx, 10*time.Millisecond)
					}
					return nil
				})})
		}
		b.Running(millrace.Config{MaxBatches: floodSlots, MaxBatchesPerTenant: floodSlots,
			TenantWeight: func(tenant string) int {
				if tenant == heavy {
					return 3
				}
				return 1
			}}, list...)
		b.Eventually("enough batches ended", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return calls == counted
		})
		mu.Lock()
		defer mu.Unlock()
		ofTenants, ofProjections := make(map[int]int), make(map[int]int)
		for id, n := range counts {
			weight, projection := 1, 0
			if id.Tenant == heavy {
				weight = 3
			}
			if _, err := fmt.Sscanf(id.Name, "p%d", &projection); err != nil {
				t.Fatal(err)
			}
			ofTenants[weight] += n
			ofProjections[1+2*(projection%2)] += n
		}
		for what, n := range map[string]map[int]int{"tenants": ofTenants, "projections": ofProjections} {
			ratio := float64(n[3]) / float64(n[1])
			t.Logf("of the batches, %v are of %s with these weights", n, what)
			if ratio < 2 || ratio > 4.5 {
				t.Errorf("%s of weight 3 get %.1f times the slots of those of weight 1", what, ratio)
			}
		}
	})
}
