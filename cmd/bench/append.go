package main

import (
	"context"
	"fmt"

	"github.com/millrace-go/millrace/pgstore"
)

var appendScenario = scenario{
	name: "append",
	about: `Writers append one event at a time, each to 100 streams of its own. No projection runs. All contenders write the same tables
		in one round trip: the version of the stream, and the event. They append for a while before they are measured, so that all
		connections are open and have their statement. "bare insert" does nothing else. "millrace" notifies after the
		commits, for some tenth of the time. The others are the usual ways to let readers follow: a NOTIFY in the transaction (PostgreSQL
		commits notifying transactions one at a time), and an exclusive advisory lock until the commit, so that positions become
		visible in order.`,
	cases: func(o sizeOptions) (cases []benchCase) {
		for _, n := range o.writers {
			c := benchCase{
				name:    writersText(n),
				metrics: []metric{{"appends/s", "", higher, true}},
				goals:   []goal{{contender: "millrace", metric: "appends/s", to: "bare insert", atLeast: 0.9}},
				prepare: func(ctx context.Context, e *env) ([]contender, error) {
					return appendContenders(ctx, e, o, n)
				},
			}
			if n == o.most() && n > 1 {
				c.goals = append(c.goals, goal{contender: "millrace",
					metric: "appends/s", to: "NOTIFY in the transaction", atLeast: 4})
			}
			cases = append(cases, c)
		}
		return cases
	},
}

func appendContenders(ctx context.Context, e *env, o sizeOptions, writers int) ([]contender, error) {
	store, err := e.store(ctx, writers+2, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, 1)
	if err != nil {
		return nil, err
	}
	total := 0
	measure := func(name string, round int, list []appendFunc) func(ctx context.Context) (figures, verify, error) {
		return func(ctx context.Context) (figures, verify, error) {
			prefix := fmt.Sprint(name, round)
			// The pool connects, and prepares the statement in each connection, when it is first used.
			warm, _, err := write(ctx, o.appendTime/5, prefix, list)
			if err != nil {
				return nil, nil, err
			}
			n, rate, err := write(ctx, o.appendTime, prefix, list)
			total += warm + n
			return figures{rate}, e.streamsAreWhole(tenants[0], total), err
		}
	}
	byHand := func(name string, before, after []string) contender {
		return contender{name, func(ctx context.Context, round int) (figures, verify, error) {
			list, closeAll, err := e.handWriters(ctx, writers, tenants[0], before, after)
			if err != nil {
				return nil, nil, err
			}
			defer closeAll()
			return measure(name, round, list)(ctx)
		}}
	}
	return []contender{
		byHand("bare insert", nil, nil),
		{"millrace", func(ctx context.Context, round int) (figures, verify, error) {
			return measure("millrace", round, repeat(writers, appendTo(tenants[0])))(ctx)
		}},
		byHand("NOTIFY in the transaction", nil, []string{notifyByHand}),
		byHand("exclusive advisory lock", []string{"select pg_advisory_xact_lock(4711)"}, nil),
	}, nil
}
