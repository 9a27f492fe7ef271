package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// floodTenants is how many tenants flood at most, and floodProjections how many projections each of them has.
	floodTenants, floodProjections = 10, 8
	// floodSleep is what the handler of a flood does with each event.
	floodSleep = "select pg_sleep(0.01)"
)

// flooder measures the latency of the default tenant while other tenants flood.
type flooder struct {
	*prober
	tenants []*pgstore.Tenant
	batches atomic.Int64 // of the flood
}

// fairness measures how much tenants with a backlog delay a tenant with few events.
func fairness(ctx context.Context, e *env, o options, out io.Writer) (err error) {
	f := &flooder{prober: &prober{env: e, probes: o.probes}}
	names, schemas := make([]string, floodTenants), make([]string, floodTenants)
	for i := range names {
		names[i] = fmt.Sprint("flood", i)
		tenant, err := e.Store.ForTenant(names[i])
		if err != nil {
			return err
		}
		f.tenants = append(f.tenants, tenant)
	}
	if err := e.Store.CreateTenants(ctx, names...); err != nil {
		return err
	}
	for i, tenant := range f.tenants {
		schemas[i] = tenant.EventsSchema()
	}
	defer func() {
		err = errors.Join(err, program.Cleanup(ctx, func(ctx context.Context) error { return program.Remove(ctx, e.Pool, schemas) }))
	}()
	contenders := []contender[[]time.Duration]{
		{"fairness, no flood", func(ctx context.Context, _ int) ([]time.Duration, error) { return f.during(ctx, 0) }},
		{"fairness, one tenant floods", func(ctx context.Context, _ int) ([]time.Duration, error) { return f.during(ctx, 1) }},
		{fmt.Sprintf("fairness, %d tenants flood", floodTenants), func(ctx context.Context, _ int) ([]time.Duration, error) { return f.during(ctx, floodTenants) }},
	}
	results, err := runRounds(ctx, o.rounds, contenders)
	if err != nil {
		return err
	}
	return showLatencies(out, 0.99, contenders, results)
}

// during measures while that many tenants flood.
func (f *flooder) during(ctx context.Context, tenants int) ([]time.Duration, error) {
	id := millrace.ProjectionID{Name: "fairness"}
	projections := []millrace.Projection{{Name: id.Name, Types: []string{probe.Type}, Handler: pgstore.Batch(countAs(id.Name))}}
	want := int64(0)
	if tenants > 0 {
		for i := range floodProjections {
			projections = append(projections, millrace.Projection{Name: fmt.Sprint("flood", i), Types: []string{"flooded"}, MaxEvents: 1,
				Handler: pgstore.Batch(f.handle)})
		}
		// A probe takes less time than ten batches of each projection.
		events := 10 * (f.probes + 10)
		want = f.batches.Load() + int64(tenants*floodProjections*events)
		for _, tenant := range f.tenants[:tenants] {
			for page := range slices.Chunk(slices.Repeat([]event.Event{{Type: "flooded"}}, events), 1000) {
				if _, err := tenant.Append(ctx, "flood", event.Any, page...); err != nil {
					return nil, err
				}
			}
		}
	}
	rt, err := millrace.New(millrace.Config{Store: f.Store})
	if err != nil {
		return nil, err
	}
	if err := rt.Register(projections...); err != nil {
		return nil, err
	}
	took, err := f.take(ctx, rt.Run, func(ctx context.Context, stream string) (int64, error) {
		result, err := f.Store.Append(ctx, stream, event.Any, probe)
		if err != nil {
			return 0, err
		}
		return result.Positions[0], nil
	}, func(ctx context.Context, position int64) error { return rt.WaitFor(ctx, id, position) })
	if err != nil {
		return nil, err
	}
	if tenants > 0 && f.batches.Load() >= want {
		return nil, errors.New("the flood ended before the measurement")
	}
	return took, f.mustHaveCounted(ctx, id.Name, f.appended)
}

// handle is the handler of the flood. It takes its time and no processor.
func (f *flooder) handle(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
	f.batches.Add(1)
	_, err := tx.Exec(ctx, floodSleep)
	return err
}
