package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
)

const (
	// classicInterval is how often the classic sequence looks for events of each projection.
	classicInterval = time.Second
	// classicWorkers is how many connections the classic sequence uses.
	classicWorkers = 8
)

var idleScenario = scenario{
	name: "idle",
	about: `Nothing is appended, and all projections are at the end of the events: 10 projections of each tenant. Measured are the
		statements per second, the processor time of the process and of the server, in percent of one processor, and the memory of
		the process for each projection. The classic sequence runs for each projection once a second, by 8 workers; if that is more
		than the machine can do, it does what it can. A message with several statements counts as one. The verification appends an event
		to one tenant, and waits until all projections of the tenant have applied it.`,
	cases: func(o sizeOptions) (cases []benchCase) {
		for _, n := range o.idleProjections {
			cases = append(cases, benchCase{
				name: thousands(int64(n)) + " projections, " + o.idleTime.String(),
				metrics: []metric{
					{"statements/s", "", lower, true}, {"own CPU", "%", lower, true}, {"server CPU", "%", lower, true},
					{"memory/projection", "KiB", lower, false},
				},
				goals: []goal{
					{contender: "millrace", metric: "statements/s", atMost: 8},
					{contender: "millrace", metric: "own CPU", atMost: 1},
					{contender: "millrace", metric: "server CPU", atMost: 5},
					{contender: "millrace", metric: "memory/projection", atMost: 4},
				},
				rounds:  min(o.rounds, 3),
				prepare: func(ctx context.Context, e *env) ([]contender, error) { return idleContenders(ctx, e, o, n) },
			})
		}
		return cases
	},
}

func idleContenders(ctx context.Context, e *env, o sizeOptions, projections int) ([]contender, error) {
	f, err := newFleet(ctx, e, projections, o.perTenant)
	if err != nil {
		return nil, err
	}
	c, err := newClassicFleet(ctx, f)
	if err != nil {
		return nil, err
	}
	return []contender{
		{
			"classic sequence", func(ctx context.Context,
				_ int) (figures, verify, error) {
				return c.idle(ctx, o.idleTime)
			},
		},
		{"millrace", func(ctx context.Context, _ int) (figures, verify, error) { return f.idle(ctx, o) }},
	}, nil
}

// idle measures while nothing happens.
func (f *fleet) idle(ctx context.Context, o sizeOptions) (measured figures, _ verify, err error) {
	before := heapInUse()
	err = f.run(ctx, func(ctx context.Context, rt *millrace.Runtime) error {
		if err := pause(ctx, o.idleSettle); err != nil {
			return err
		}
		statements, begin := f.statements.n.Load(), f.usageBefore()
		if err := pause(ctx, o.idleTime); err != nil {
			return err
		}
		end := f.usageAfter()
		own, server := end.since(begin)
		perSecond := float64(f.statements.n.Load()-statements) / end.at.Sub(begin.at).Seconds()
		measured = figures{perSecond, own, server, (heapInUse() - before) / 1024 / float64(f.projections)}
		return f.follows(ctx, rt)
	})
	return measured, alreadyVerified, err
}

// classicFleet runs the classic sequence for all projections of a fleet.
type classicFleet struct {
	*fleet
	sequences  []classic
	applied    atomic.Int64
	statements statementCount
	pool       *pgxpool.Pool
}

func newClassicFleet(ctx context.Context, f *fleet) (*classicFleet, error) {
	c := &classicFleet{fleet: f}
	var err error
	c.pool, err = f.pool(ctx, classicWorkers, c.statements.of)
	if err != nil {
		return nil, err
	}
	_, err = f.Pool.Exec(ctx,
		"insert into bench.marks select 'classic', t, p, 1 from generate_series(0, $1::int - 1) as t, generate_series(0, $2::int - 1) as p",
		len(f.tenants), f.perTenant)
	if err != nil {
		return nil, err
	}
	for t, tenant := range f.tenants {
		for p := range f.perTenant {
			c.sequences = append(c.sequences, classicMark("classic",
				t, p, eventsOf(tenant), func(context.Context, pgx.Tx, event.Envelope) error {
					c.applied.Add(1)
					return nil
				}))
		}
	}
	return c, nil
}

// run runs the sequence for each projection at its interval, until ctx ends. It is late if the machine cannot keep up.
func (c *classicFleet) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for w := range classicWorkers {
		group.Go(func() error {
			return c.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
				for {
					next := time.Now().Add(classicInterval)
					for i := w; i < len(c.sequences); i += classicWorkers {
						if _, err := c.sequences[i].tick(ctx, conn.Conn()); err != nil {
							return unlessDone(ctx, err)
						}
					}
					if pause(ctx, time.Until(next)) != nil {
						return nil
					}
				}
			})
		})
	}
	return group.Wait()
}

// unlessDone returns an error, or nil after ctx has ended.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *classicFleet) idle(ctx context.Context, d time.Duration) (figures, verify, error) {
	stop := running(ctx, c.run)
	defer func() { _ = stop() }()
	// Every session has seen each tenant once.
	if err := until(ctx, "each projection was read",
		func() bool { return c.statements.n.Load() >= int64(4*len(c.sequences)) }); err != nil {
		return nil, nil, err
	}
	statements, begin := c.statements.n.Load(), c.usageBefore()
	if err := pause(ctx, d); err != nil {
		return nil, nil, err
	}
	end := c.usageAfter()
	own, server := end.since(begin)
	rate := float64(c.statements.n.Load()-statements) / end.at.Sub(begin.at).Seconds()
	before := c.applied.Load()
	if _, err := c.tenants[0].Append(ctx, "last", event.Any, probe); err != nil {
		return nil, nil, err
	}
	err := until(ctx, "an event was applied", func() bool { return c.applied.Load() >= before+int64(c.perTenant) })
	check := func(context.Context) error {
		if n := c.applied.Load() - before; n != int64(c.perTenant) {
			return fmt.Errorf("an event was applied %d times, want %d", n, c.perTenant)
		}
		return nil
	}
	return figures{rate, own, server, math.NaN()}, check, errors.Join(err, stop())
}
