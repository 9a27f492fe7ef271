package chaos_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// step is one fault of a schedule.
type step struct {
	at    time.Duration
	fault *fault
	node  int // the index of the node; -1: none
	lasts time.Duration
	seed  uint64
}

func (s step) String() string {
	whom := ""
	if s.node >= 0 {
		whom = fmt.Sprintf(" (n%d)", s.node+1)
	}
	return fmt.Sprintf("%8.3fs  %s%s for %v", s.at.Seconds(), s.fault.name, whom, s.lasts.Round(time.Millisecond))
}

// schedule is a sequence of faults. Its seed determines it.
type schedule []step

func (s schedule) String() string {
	lines := make([]string, len(s))
	for i, one := range s {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// pauseAfter delays the next fault of the same place, so that it meets a recovered fleet.
const pauseAfter = 300 * time.Millisecond

// plan returns a random schedule. Faults of single nodes always leave one node alone. Faults of the server do not overlap, and
// a fault of the fleet overlaps with no fault of a node.
func plan(seed int64, length time.Duration, nodes int) schedule {
	rnd := rand.New(rand.NewPCG(uint64(seed), 0))
	var bag []*fault
	for i := range faults {
		for range faults[i].weight {
			bag = append(bag, &faults[i])
		}
	}
	busy := make([]time.Duration, nodes) // until when each node is struck
	var server time.Duration
	data := make(map[string]time.Duration)
	var all schedule
	for at := 300 * time.Millisecond; at < length; at += time.Duration(100+rnd.IntN(700)) * time.Millisecond {
		f := bag[rnd.IntN(len(bag))]
		one := step{at: at, fault: f, node: -1, lasts: f.least + time.Duration(rnd.Int64N(int64(f.most-f.least)+1)), seed: rnd.Uint64()}
		until := at + one.lasts + pauseAfter
		var idle []int
		for i, b := range busy {
			if b <= at {
				idle = append(idle, i)
			}
		}
		switch f.reach {
		case reachProcess, reachNetwork:
			if len(idle) < 2 {
				continue
			}
			one.node = idle[rnd.IntN(len(idle))]
			busy[one.node] = until
		case reachFleet:
			// It begins after the faults of all nodes, and meanwhile none of them is struck again.
			one.at = max(at, slices.Max(busy))
			if one.at >= length {
				continue
			}
			for i := range busy {
				busy[i] = one.at + one.lasts + pauseAfter + 2*time.Second
			}
		case reachServer:
			if server > at {
				continue
			}
			server = until
		case reachData:
			if data[f.name] > at {
				continue
			}
			data[f.name] = until
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return all
}

// place names what only one fault at a time may break: the server, or whatever the fault breaks.
func (f *fault) place() string {
	if f.reach == reachServer {
		return "server"
	}
	return f.name
}

// carryOut strikes with every fault of the schedule at its time.
func (c *cluster) carryOut(all schedule) error {
	start := time.Now()
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	exclusive := make(map[string]*sync.Mutex) // held during faults that must not overlap, however long they take
	for _, one := range all {
		if exclusive[one.fault.place()] == nil {
			exclusive[one.fault.place()] = new(sync.Mutex)
		}
	}
	for _, one := range all {
		if c.wait(time.Until(start.Add(one.at))); c.ctx.Err() != nil {
			break
		}
		s := &strike{cluster: c, lasts: one.lasts, rnd: rand.New(rand.NewPCG(one.seed, 1))}
		if one.node >= 0 {
			s.node = c.nodes[one.node]
		}
		group.Go(func() {
			if !one.fault.ofNode() {
				exclusive[one.fault.place()].Lock()
				defer exclusive[one.fault.place()].Unlock()
			}
			if err := one.fault.do(s); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%v: %w", one, err))
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
