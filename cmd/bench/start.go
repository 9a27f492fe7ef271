package main

import (
	"context"
	"errors"
	"time"

	"github.com/millrace-go/millrace"
)

var startScenario = scenario{
	name: "start",
	about: `A process starts alone: the time from Run until it owns the leases of all projections, and until all of them are live. 10
		projections of each tenant. In a first start no projection exists in the database; in a restart the leases were released by
		the previous run. The verification reads the leases, appends an event to one tenant, and waits until all projections of the
		tenant have applied it.`,
	cases: func(o sizeOptions) (cases []benchCase) {
		for _, n := range o.startProjections {
			cases = append(cases, benchCase{
				name: thousands(int64(n)) + " projections",
				metrics: []metric{
					{"owned", "s", lower, false}, {"live", "s", lower, true}, {"own CPU", "s", lower, false},
					{"server CPU", "s", lower, false},
				},
				goals: []goal{
					{contender: "first start", metric: "live", atMost: 10},
					{contender: "restart", metric: "live", atMost: 10},
				},
				rounds: min(o.rounds, 3),
				prepare: func(ctx context.Context, e *env) ([]contender, error) {
					f, err := newFleet(ctx, e, n, o.perTenant)
					if err != nil {
						return nil, err
					}
					return []contender{
						{"first start", func(ctx context.Context, _ int) (figures, verify, error) {
							if err := f.forget(ctx); err != nil {
								return nil, nil, err
							}
							return f.start(ctx)
						}},
						{"restart", func(ctx context.Context, _ int) (figures, verify, error) {
							if err := f.prepareRestart(ctx); err != nil {
								return nil, nil, err
							}
							return f.start(ctx)
						}},
					}, nil
				},
			})
		}
		return cases
	},
}

// forget removes all projections from the database.
func (f *fleet) forget(ctx context.Context) error {
	if _, err := f.Pool.Exec(ctx, "truncate "+storeSchema+".projections cascade"); err != nil {
		return err
	}
	_, err := f.Pool.Exec(ctx, "analyze "+storeSchema+".projections, "+storeSchema+".leases")
	return err
}

// prepareRestart runs all projections once, if they do not exist.
func (f *fleet) prepareRestart(ctx context.Context) error {
	var n int
	if err := f.Pool.QueryRow(ctx, "select count(*) from "+storeSchema+".projections").Scan(&n); err != nil {
		return err
	}
	if n != f.projections {
		if err := f.run(ctx, func(context.Context, *millrace.Runtime) error { return nil }); err != nil {
			return err
		}
	}
	_, err := f.Pool.Exec(ctx, "vacuum analyze "+storeSchema+".projections, "+storeSchema+".leases")
	return err
}

// start measures from Run on.
func (f *fleet) start(ctx context.Context) (measured figures, _ verify, err error) {
	rt, err := f.runtime()
	if err != nil {
		return nil, nil, err
	}
	before := f.usageBefore()
	stop := running(ctx, rt.Run)
	defer func() { err = errors.Join(err, stop()) }()
	err = until(ctx, "all leases are owned", func() bool { all, _ := owned(rt); return all == f.projections })
	if err != nil {
		return nil, nil, err
	}
	ownedAt := time.Now()
	if err := f.allLive(ctx, rt); err != nil {
		return nil, nil, err
	}
	after := f.usageAfter()
	took := after.at.Sub(before.at).Seconds()
	own, server := after.since(before)
	measured = figures{ownedAt.Sub(before.at).Seconds(), took, own * took / 100, server * took / 100}
	if err := f.follows(ctx, rt); err != nil {
		return nil, nil, err
	}
	return measured, alreadyVerified, f.allAtEnd(ctx, rt) // the next round begins there
}
