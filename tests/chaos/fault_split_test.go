package chaos_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/projection"
)

// mostPartitions is how many partitions a projection has at most.
const mostPartitions = 5

var splitFaults = []fault{
	{
		name: "projections are split anew, again and again",
		expects: "each event is applied once, and each stream in order; dead letters, replays and discards continue in the partitions " +
			"of their streams",
		reach: reachData, weight: 4, least: time.Second, most: 4 * time.Second, alone: 3 * time.Second, busy: true,
		strike: (*strike).splitAgain,
		check:  (*strike).someSplit,
	},
}

// splitAgain splits random projections into random numbers of partitions. Where it is the only fault, half of its time
// the dependency of poison events is not available, events are parked before the first split, and at last no projection
// has a single partition.
func (s *strike) splitAgain() error {
	rt, err := millrace.New(millrace.Config{Store: s.store})
	if err != nil {
		return err
	}
	if s.alone {
		over := s.withhold()
		if err := until(s.ctx, time.Minute, "every tenant has a parked event", s.allParked); err != nil {
			over()
			return err
		}
		timer := time.AfterFunc(s.lasts/2, over)
		defer func() {
			if timer.Stop() {
				over()
			}
		}()
	}
	err = s.repeat(10, 100, func() error {
		return s.splitInto(rt, s.anyProjection(), 1+s.rnd.IntN(mostPartitions))
	})
	for _, id := range allProjections() {
		if err == nil && s.alone {
			err = s.splitInto(rt, id, 2+s.rnd.IntN(mostPartitions-1))
		}
	}
	return err
}

// splitInto splits a projection, and repeats that during an outage.
func (s *strike) splitInto(rt *millrace.Runtime, id projection.ID, n int) error {
	s.split.Store(id, nil)
	return s.retried(func(ctx context.Context) error { return rt.Repartition(ctx, id, n) })
}

// allProjections returns the projections of the standing tenants, in order.
func allProjections() (all []projection.ID) {
	for _, tenant := range tenants {
		for name := range projectionTypes {
			all = append(all, projection.ID{Tenant: tenant, Name: name})
		}
	}
	slices.SortFunc(all, func(a, b projection.ID) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (s *strike) anyProjection() projection.ID {
	all := allProjections()
	return all[s.rnd.IntN(len(all))]
}

// someSplit verifies that projections have partitions, and that dead letters and parked streams were in them.
func (s *strike) someSplit() error {
	type counts struct{ Partitions, Parked int64 }
	found, err := rows(s.cluster, pgx.RowToStructByPos[counts],
		`select (select count(*) from millrace.projections where partition > 0),
		(select count(*) from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id where p.partition > 0)`)
	if err == nil && (found[0].Partitions < 2 || found[0].Parked == 0) {
		err = fmt.Errorf("there are %+v", found[0])
	}
	return err
}

// splitUneven splits all projections while a partition of one of them is behind the others, because its handler does
// not return.
func (s *strike) splitUneven() error {
	rt, err := millrace.New(millrace.Config{Store: s.store})
	if err != nil {
		return err
	}
	into := func(n int) (err error) {
		for _, id := range allProjections() {
			err = errors.Join(err, s.splitInto(rt, id, n))
		}
		return err
	}
	if err := errors.Join(into(3), s.live()); err != nil {
		return err
	}
	before := s.victim.reported("stalled")
	err = errors.Join(s.victim.order(orderStall), s.victim.awaitReport(s.ctx, 20*time.Second, "stalled", before))
	s.wait(700 * time.Millisecond) // the other partitions continue
	return errors.Join(err, into(2), s.victim.order(orderRelease))
}
