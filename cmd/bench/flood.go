package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// floodConnections is the pool of the runtime, floodBatches its Config.MaxBatches.
	floodConnections, floodBatches = 12, 8
	// floodSleep is what the handler of the flood does with each event. It takes time and no processor.
	floodSleep = "select pg_sleep(0.01)"
)

var floodScenario = scenario{
	name: "flood",
	about: `One tenant has a backlog with many projections, whose batches of one event sleep for 10 ms, so that slots are scarce and
		processors are not. Single events go to the other, quiet tenants in turn. Measured is the time from the return of the append
		until the event is applied. Without limits (Config.MaxBatchesPerTenant is as high as MaxBatches) the noisy tenant may have all slots;
		by default it may have half of them.`,
	cases: func(o sizeOptions) []benchCase {
		return []benchCase{{
			name:    fmt.Sprintf("1 noisy tenant, %d quiet tenants", o.floodTenants),
			metrics: latencyMetrics,
			goals:   []goal{{contender: "flood, millrace", metric: "p99", to: "no flood", atMost: 3}},
			prepare: func(ctx context.Context, e *env) ([]contender, error) { return floodContenders(ctx, e, o) },
		}}
	},
}

// flooder runs the contenders of flood. The last tenant is the noisy one.
type flooder struct {
	*env
	store    *pgstore.Store
	tenants  []*pgstore.Tenant
	o        sizeOptions
	appended int          // to quiet tenants, in all rounds
	batches  atomic.Int64 // of the flood
	backlog  int64        // events of the noisy tenant
}

func floodContenders(ctx context.Context, e *env, o sizeOptions) ([]contender, error) {
	store, err := e.store(ctx, floodConnections, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, o.floodTenants+1)
	if err != nil {
		return nil, err
	}
	f := &flooder{env: e, store: store, tenants: tenants, o: o}
	during := func(flood bool, perTenant int) func(ctx context.Context, _ int) (figures, verify, error) {
		return func(ctx context.Context, _ int) (figures, verify, error) { return f.during(ctx, flood, perTenant) }
	}
	return []contender{
		{"no flood", during(false, 0)}, {"flood, no limits", during(true, floodBatches)},
		{"flood, millrace", during(true, 0)},
	}, nil
}

// during measures the quiet tenants.
func (f *flooder) during(ctx context.Context, flood bool, perTenant int) (figures, verify, error) {
	rt, err := millrace.New(millrace.Config{Store: f.store, MaxBatches: floodBatches, MaxBatchesPerTenant: perTenant})
	if err != nil {
		return nil, nil, err
	}
	seen := make([]tally, len(f.tenants))
	projections := []millrace.Projection{
		{Name: "quiet", Types: []string{probe.Type}, Handler: pgstore.Batch(f.count(seen))},
	}
	if flood {
		projections = append(projections, f.noisy()...)
		if err := f.addBacklog(ctx); err != nil {
			return nil, nil, err
		}
	}
	if err := rt.Register(projections...); err != nil {
		return nil, nil, err
	}
	stop := running(ctx, rt.Run)
	n := f.appended
	took, err := f.probe(ctx, rt)
	flooding := f.batches.Load() < f.backlog*int64(f.o.floodProjections)
	err = errors.Join(err, stop())
	if err != nil {
		return nil, nil, err
	}
	if flood && !flooding {
		return nil, nil, errors.New("the flood ended before the measurement")
	}
	return figures{percentile(took, 0.5), percentile(took, 0.99)},
		all(f.counted("quiet", f.appended), sumInOrder(seen, f.appended-n)), nil
}

// sumInOrder returns a verification that the tallies saw this number of events together, each in order.
func sumInOrder(seen []tally, events int) verify {
	return func(context.Context) error {
		total, faults := int64(0), int64(0)
		for i := range seen {
			total += seen[i].count.Load()
			faults += seen[i].faults.Load()
		}
		if faults > 0 || total != int64(events) {
			return fmt.Errorf("the handlers saw %d events, %d of them out of order, want %d in order", total, faults,
				events)
		}
		return nil
	}
}

// count is the handler of the quiet tenants.
func (f *flooder) count(seen []tally) batchFunc {
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		tenant, err := tenantNumber(ctx)
		if err != nil {
			return err
		}
		return setBased("quiet", &seen[tenant])(ctx, tx, events)
	}
}

// tenantNumber returns the number of the tenant of a handler.
func tenantNumber(ctx context.Context) (n int, err error) {
	id, _ := millrace.ProjectionFrom(ctx)
	_, err = fmt.Sscanf(id.Tenant, "t%d", &n)
	return n, err
}

// noisy returns the projections of the noisy tenant.
func (f *flooder) noisy() (list []millrace.Projection) {
	for i := range f.o.floodProjections {
		list = append(list, millrace.Projection{
			Name: fmt.Sprint("noisy", i), Tenants: []string{fmt.Sprint("t", f.o.floodTenants)},
			Types: []string{"flooded"}, MaxEvents: 1,
			Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
				f.batches.Add(1)
				_, err := tx.Exec(ctx, floodSleep)
				return err
			}),
		})
	}
	return list
}

// addBacklog appends enough events that the flood outlasts the probes: a probe takes less time than ten batches of each
// projection.
func (f *flooder) addBacklog(ctx context.Context) error {
	events := 10 * (f.o.floodProbes + 10)
	f.backlog += int64(events)
	for page := range slices.Chunk(slices.Repeat([]event.Event{{Type: "flooded"}}, events), 1000) {
		if _, err := f.tenants[f.o.floodTenants].Append(ctx, "flood", event.Any, page...); err != nil {
			return err
		}
	}
	return nil
}

// probe appends single events to the quiet tenants, and returns how long each took. The first one of each tenant is not
// measured.
func (f *flooder) probe(ctx context.Context, rt *millrace.Runtime) (took []time.Duration, err error) {
	for i := range f.o.floodTenants + f.o.floodProbes {
		if err := pause(ctx, probePause); err != nil {
			return nil, err
		}
		tenant := f.tenants[i%f.o.floodTenants]
		position, err := appendTo(tenant)(ctx, "probe")
		if err != nil {
			return nil, err
		}
		f.appended++
		begin := time.Now()
		if err := rt.WaitFor(ctx, millrace.ProjectionID{Tenant: tenant.Name(), Name: "quiet"}, position); err != nil {
			return nil, err
		}
		if i >= f.o.floodTenants {
			took = append(took, time.Since(begin))
		}
	}
	return took, nil
}
