package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// partitionCounts are the numbers of partitions that are compared.
var partitionCounts = []int{1, 2, 4}

var partitionsScenario = scenario{
	name: "partitions",
	about: `One projection catches up. Its handler waits 1 ms for each event, as for an answer of another service, and writes its read
		model with one statement per batch. With n partitions, n handlers work at once, each for its share of the streams. The streams are
		divided by a hash, so the shares are not quite equal.`,
	cases: func(o sizeOptions) []benchCase {
		return []benchCase{{
			name:    thousands(int64(o.partitionEvents)) + " events, handler of 1 ms",
			metrics: []metric{{"events/s", "", higher, true}},
			goals: []goal{
				{contender: "2 partitions", metric: "events/s", to: "1 partition", atLeast: 1.7},
				{contender: "4 partitions", metric: "events/s", to: "1 partition", atLeast: 3},
			},
			prepare: func(ctx context.Context, e *env) ([]contender, error) { return partitionContenders(ctx, e, o) },
		}}
	},
}

func partitionContenders(ctx context.Context, e *env, o sizeOptions) ([]contender, error) {
	store, err := e.store(ctx, 12, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, 1)
	if err != nil {
		return nil, err
	}
	// The shares are more equal with more streams.
	for i := range o.partitionEvents {
		if _, err := tenants[0].Append(ctx, fmt.Sprint("stream ", i/2), event.Any, probe); err != nil {
			return nil, err
		}
	}
	var list []contender
	for _, n := range partitionCounts {
		name := fmt.Sprintf("%d partitions", n)
		if n == 1 {
			name = "1 partition"
		}
		list = append(list, contender{name, func(ctx context.Context, round int) (figures, verify, error) {
			return catchUpPartitions(ctx, e, store, n, round, o.partitionEvents)
		}})
	}
	return list, nil
}

// catchUpPartitions measures from Run to the last commit.
func catchUpPartitions(ctx context.Context, e *env, store *pgstore.Store, n, round,
	events int) (figures, verify, error) {
	name := fmt.Sprintf("%d partitions %d", n, round)
	seen := make([]tally, n+1)
	rt, err := millrace.New(millrace.Config{Store: store, Tenants: []string{"t0"}})
	if err != nil {
		return nil, nil, err
	}
	err = rt.Register(millrace.Projection{Name: name, Partitions: n,
		Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			id, _ := millrace.ProjectionFrom(ctx)
			seen[id.Partition].see(events)
			for range events {
				if err := pause(ctx, time.Millisecond); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, addTotalSQL, name, 0, id.Partition, len(events))
			return err
		})})
	if err != nil {
		return nil, nil, err
	}
	begin := time.Now()
	_, err = rt.RunUntilIdle(ctx)
	return figures{perSecond(events, begin)}, all(
		e.isCount(events, name+" applied", "select coalesce(sum(n), 0) from bench.totals where contender = $1", name),
		sumInOrder(seen, events)), err
}
