package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// fleet has many projections that do nothing: some of each of many tenants, each of which has one event.
type fleet struct {
	*env
	store       *pgstore.Store
	tenants     []*pgstore.Tenant
	perTenant   int
	statements  statementCount
	projections int
	observer    observe.Observer // of the next runtime
	watched     atomic.Int64     // applications of the events of the tenant that follows watches
}

func newFleet(ctx context.Context, e *env, projections, perTenant int) (*fleet, error) {
	f := &fleet{env: e, perTenant: perTenant, projections: projections}
	var err error
	f.store, err = e.store(ctx, 12, pgstore.Options{}, f.statements.of)
	if err != nil {
		return nil, err
	}
	// The default tenant exists already.
	f.tenants, err = e.tenants(ctx, f.store, projections/perTenant-1)
	if err != nil {
		return nil, err
	}
	first, err := f.store.ForTenant(projection.DefaultTenant)
	if err != nil {
		return nil, err
	}
	f.tenants = append(f.tenants, first)
	group, appending := errgroup.WithContext(ctx)
	group.SetLimit(8) // writers share the sync of the disk
	for _, tenant := range f.tenants {
		group.Go(func() error {
			_, err := tenant.Append(appending, "first", event.Any, probe)
			return err
		})
	}
	return f, group.Wait()
}

// runtime returns a runtime with all projections. Their handlers only count.
func (f *fleet) runtime() (*millrace.Runtime, error) {
	rt, err := millrace.New(millrace.Config{Store: f.store, Observer: f.observer})
	if err != nil {
		return nil, err
	}
	for i := range f.perTenant {
		err := rt.Register(millrace.Projection{Name: fmt.Sprint("p", i),
			Handler: pgstore.Batch(func(ctx context.Context, _ pgx.Tx, events []event.Envelope) error {
				if id, _ := millrace.ProjectionFrom(ctx); len(f.tenants) > 0 && id.Tenant == f.watchedTenant().Name() {
					f.watched.Add(int64(len(events)))
				}
				return nil
			})})
		if err != nil {
			return nil, err
		}
	}
	return rt, nil
}

const (
	// lookInterval is how often a condition is checked.
	lookInterval = 20 * time.Millisecond
	// lookShare limits what the checks take of one processor: 1 of this number. The figures of 100,000 projections take
	// some 50 ms.
	lookShare = 6
)

// until returns when a condition is true.
func until(ctx context.Context, what string, condition func() bool) error {
	for {
		began := time.Now()
		if condition() {
			return nil
		}
		if err := pause(ctx, max(lookInterval, (lookShare-1)*time.Since(began))); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// owned and live return how many projections a runtime owns, and how many of them are live.
func owned(rt *millrace.Runtime) (owned, live int) {
	for _, p := range rt.Stats().Projections {
		for state, n := range p.States {
			owned += n
			if state == admin.StateLive {
				live += n
			}
		}
	}
	return owned, live
}

// allLive waits until all projections are live.
func (f *fleet) allLive(ctx context.Context, rt *millrace.Runtime) error {
	return until(ctx, "all projections are live", func() bool { _, live := owned(rt); return live == f.projections })
}

// allAtEnd waits until all projections are live and have applied all events.
func (f *fleet) allAtEnd(ctx context.Context, rt *millrace.Runtime) error {
	return until(ctx, "all projections are at the end of the events", func() bool {
		live := 0
		for _, p := range rt.Stats().Projections {
			if p.Behind > 0 {
				return false
			}
			live += p.States[admin.StateLive]
		}
		return live == f.projections
	})
}

// follows returns a verification that the database has a lease for each projection, all of one owner, with its
// checkpoint at the end of the tenant's events, and that an event reaches all projections of its tenant. The runtime is
// still running then.
func (f *fleet) follows(ctx context.Context, rt *millrace.Runtime) error {
	if err := f.isCount(f.projections, "leases with an owner", "select count(*) from "+storeSchema+
		".leases where owner is not null")(ctx); err != nil {
		return err
	}
	if err := f.isCount(1, "owners", "select count(distinct owner) from "+storeSchema+".leases")(ctx); err != nil {
		return err
	}
	tenant := f.watchedTenant()
	var last int64
	if err := f.Pool.QueryRow(ctx, "select max(global_seq) from "+eventsOf(tenant)).Scan(&last); err != nil {
		return err
	}
	if err := f.waitForAll(ctx, rt, last); err != nil {
		return err
	}
	before := f.watched.Load()
	appended, err := tenant.Append(ctx, "last", event.Any, probe)
	if err != nil {
		return err
	}
	if err := f.waitForAll(ctx, rt, appended.Positions[0]); err != nil {
		return err
	}
	if n := f.watched.Load() - before; n != int64(f.perTenant) {
		return fmt.Errorf("an event was applied %d times, want %d", n, f.perTenant)
	}
	return nil
}

// watchedTenant is the tenant whose projections follows watches.
func (f *fleet) watchedTenant() *pgstore.Tenant { return f.tenants[len(f.tenants)/2] }

// waitForAll returns when all projections of the watched tenant have reached a position.
func (f *fleet) waitForAll(ctx context.Context, rt *millrace.Runtime, position int64) error {
	for i := range f.perTenant {
		id := millrace.ProjectionID{Tenant: f.watchedTenant().Name(), Name: fmt.Sprint("p", i)}
		if err := rt.WaitFor(ctx, id, position); err != nil {
			return err
		}
	}
	return nil
}

// alreadyVerified is the verification of a round that had to verify itself while its runtime was running.
func alreadyVerified(context.Context) error { return nil }

// run runs a runtime and calls fn when all its projections are at the end of the events.
func (f *fleet) run(ctx context.Context, fn func(ctx context.Context, rt *millrace.Runtime) error) (err error) {
	rt, err := f.runtime()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := running(context.WithoutCancel(ctx), func(ctx context.Context) error {
		err := rt.Run(ctx)
		cancel(err) // nothing waits for a runtime that has ended
		return err
	})
	defer func() { err = errors.Join(err, stop()) }()
	if err := f.allAtEnd(ctx, rt); err != nil {
		return err
	}
	return fn(ctx, rt)
}
