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
	node  int // which one; -1 where it strikes none
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

// schedule is what goes wrong when. It follows from its seed.
type schedule []step

func (s schedule) String() string {
	lines := make([]string, len(s))
	for i, one := range s {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// settling is how long after a fault its place is left alone, so that one that begins is not over before it could do
// anything.
const settling = 300 * time.Millisecond

// plan makes a schedule. One node is always left alone by the faults of single nodes; the server is struck by one fault at
// a time; a fault of the whole fleet stands alone among those of nodes.
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
		until := at + one.lasts + settling
		var idle []int
		for i, b := range busy {
			if b <= at {
				idle = append(idle, i)
			}
		}
		switch f.reach {
		case reachNode:
			if len(idle) < 2 {
				continue
			}
			one.node = idle[rnd.IntN(len(idle))]
			busy[one.node] = until
		case reachFleet:
			// It waits for all of them, and meanwhile nothing else begins with any.
			one.at = max(at, slices.Max(busy))
			if one.at >= length {
				continue
			}
			for i := range busy {
				busy[i] = one.at + one.lasts + settling + 2*time.Second
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

// place is what a fault has for itself while it lasts: the server, or what goes by its name.
func (f *fault) place() string {
	if f.reach == reachServer {
		return "server"
	}
	return f.name
}

// carryOut does what the schedule says.
func (c *cluster) carryOut(all schedule) error {
	start := time.Now()
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	exclusive := make(map[string]*sync.Mutex) // of faults that must not overlap each other, however long they take
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
			if one.fault.reach != reachNode {
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
