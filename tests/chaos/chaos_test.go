package chaos_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	// round is how long one random schedule is at the most: its database is new, so that a failure can be repeated.
	round = 2 * time.Minute
	// shortRound is one where nobody says how long.
	shortRound = 12 * time.Second
	fixedSeed  = 20240229
)

// Each fault alone, with what is expected of the library beside it.
func TestChaosFault(t *testing.T) {
	for _, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			if f.reach != reachServer || f.own {
				t.Parallel() // each on a database of its own
			}
			seed := rand.Uint64()
			c := setup(t, options{limit: 2 * time.Minute, seed: seed, times: times{Poll: f.poll}, own: f.own,
				repeat: fmt.Sprintf("go test -race ./tests/chaos -run '^%s$'", strings.ReplaceAll(t.Name(), "/", "$/^"))})
			c.must(c.progress())
			s := &strike{cluster: c, lasts: cmp.Or(f.alone, f.most), rnd: rand.New(rand.NewPCG(seed, 1)), alone: true}
			if f.reach == reachNode {
				s.node = c.busiest()
				if f.apart {
					s.node = c.nodes[apart]
				}
			}
			c.must(f.do(s))
			over := time.Now()
			if f.proves != nil {
				if err := f.proves(s); err != nil {
					t.Errorf("expected: %s: %v", f.expects, err)
				}
			}
			proved := time.Since(over)
			r, err := c.settle()
			c.must(err)
			c.verify(r)
			given, taken := r.ownership.some(true), r.ownership.some(false)
			t.Logf("proved %v after the fault was over; %d leases given back, at most %v without an owner; %d taken over, at most %v; %d events appended, %d lost, %d applied",
				proved.Round(time.Millisecond), len(given), longest(given).gap.Round(time.Millisecond),
				len(taken), longest(taken).gap.Round(time.Millisecond), r.appended, r.lost, r.applied)
		})
	}
}

// A random schedule of a seed that never changes.
func TestChaosFixedSchedule(t *testing.T) {
	if *chaosSeed != 0 || *chaosFor != 0 {
		t.Skip("another schedule is asked for")
	}
	r := runRound(t, fixedSeed, shortRound)
	if r.replayed == 0 || r.behind == 0 {
		t.Errorf("%d events were replayed, and %d parked behind others: nothing was shown of that", r.replayed, r.behind)
	}
	t.Logf("\n%s", r)
}

// Random schedules of fresh seeds, or of the given one.
func TestChaosSchedule(t *testing.T) {
	seed, left := *chaosSeed, *chaosFor
	if seed == 0 {
		seed = rand.Int64()
	}
	if left == 0 {
		left = shortRound
	}
	var all report
	for ; left > 0 && !t.Failed(); left, seed = left-round, seed+1 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { all.add(runRound(t, seed, min(left, round))) })
	}
	t.Logf("\n%s", all)
}

// runRound carries out one random schedule on a new cluster.
func runRound(t *testing.T, seed int64, length time.Duration) report {
	t.Logf("seed %d, for %v", seed, length)
	c := setup(t, options{limit: length + 4*time.Minute, seed: uint64(seed), own: true,
		repeat: fmt.Sprintf("go test -race -timeout 0 -v ./tests/chaos -run TestChaosSchedule -seed %d -chaos %v", seed, length)})
	all := plan(seed, length, fleet)
	c.schedule = all.String()
	if err := c.carryOut(all); err != nil {
		t.Error(err)
	}
	r, err := c.settle()
	c.must(err)
	c.verify(r)
	return r
}
