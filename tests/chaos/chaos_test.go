package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	fleet = 3 // nodes of a cluster
	// round is how long one random schedule is at the most: its database is new, so that a failure can be repeated.
	round = 2 * time.Minute
	// shortRound is one where nobody says how long.
	shortRound = 15 * time.Second
	fixedSeed  = 20240229
)

// Each fault alone, with what is expected of the library beside it.
func TestChaosFault(t *testing.T) {
	for _, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			if f.reach == reachFleet && f.weight == 0 {
				t.Skip("is still to come")
			}
			seed := rand.Uint64()
			c := setup(t, fleet, 2*time.Minute, seed)
			c.repeat = fmt.Sprintf("go test -race ./tests/chaos -run '%s'", t.Name())
			c.must(c.progress())
			s := &strike{cluster: c, lasts: f.most, rnd: rand.New(rand.NewPCG(seed, 1)), alone: true}
			if f.reach == reachNode {
				s.node = c.busiest()
			}
			c.must(f.do(s))
			if f.proves != nil {
				if err := f.proves(s); err != nil {
					t.Errorf("expected: %s: %v", f.expects, err)
				}
			}
			r, err := c.settle()
			c.must(err)
			c.verify(r)
			longest := r.ownership.longest()
			t.Logf("%d takeovers, %v without an owner; %d events appended, %d applied", len(r.ownership.takeovers),
				longest.gap.Round(time.Millisecond), r.appended, r.applied)
		})
	}
}

// A random schedule of a seed that never changes.
func TestChaosFixedSchedule(t *testing.T) {
	if *chaosSeed != 0 || *chaosFor != 0 {
		t.Skip("another schedule is asked for")
	}
	t.Logf("\n%s", runRound(t, fixedSeed, shortRound))
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
	c := setup(t, fleet, length+4*time.Minute, uint64(seed))
	c.repeat = fmt.Sprintf("go test -race -timeout 0 -v ./tests/chaos -run TestChaosSchedule -seed %d -chaos %v", seed, length)
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
