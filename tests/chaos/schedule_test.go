package chaos_test

import (
	"cmp"
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

// plan returns a random schedule. Faults of single nodes always leave one node alone. Faults of the server do not
// overlap, and a fault of the fleet overlaps with no fault of a node.
func plan(seed int64, length time.Duration, nodes int) schedule {
	rnd := rand.New(rand.NewPCG(uint64(seed), 0))
	var bag []*fault
	for i := range faults {
		for range faults[i].weight {
			bag = append(bag, &faults[i])
		}
	}
	busy := make([]time.Duration, nodes)    // until when each node is struck
	taken := make(map[string]time.Duration) // the same for other places
	var all schedule
	for at := 300 * time.Millisecond; at < length; at += time.Duration(100+rnd.IntN(700)) * time.Millisecond {
		f := bag[rnd.IntN(len(bag))]
		one := step{
			at: at, fault: f, node: -1, lasts: f.least + time.Duration(rnd.Int64N(int64(f.most-f.least)+1)),
			seed: rnd.Uint64(),
		}
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
		case reachServer, reachData:
			if taken[f.place()] > at {
				continue
			}
			taken[f.place()] = until
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
func (c *cluster) carryOut(all schedule) {
	start := time.Now()
	var group sync.WaitGroup
	defer group.Wait()
	places := make(map[string]*sync.Mutex) // held during faults that must not overlap, however long they take
	for _, one := range all {
		c.wait(time.Until(start.Add(one.at)))
		if c.ctx.Err() != nil {
			return
		}
		s := &strike{cluster: c, lasts: one.lasts, rnd: rand.New(rand.NewPCG(one.seed, 1))}
		place := new(sync.Mutex)
		if one.node >= 0 {
			s.node = c.nodes[one.node]
		} else if known := places[one.fault.place()]; known != nil {
			place = known
		} else {
			places[one.fault.place()] = place
		}
		group.Go(func() {
			place.Lock()
			defer place.Unlock()
			if err := one.fault.do(s); err != nil {
				c.t.Errorf("%v: %v", one, err)
			}
		})
	}
}
