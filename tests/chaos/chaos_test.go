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
	// round is the longest random schedule. Each has a new database, so that a failure can be repeated.
	round = 2 * time.Minute
	// shortRound is the schedule of tests without the flag -chaos.
	shortRound = 12 * time.Second
	fixedSeed  = 20240229
)

// TestChaosFault runs each fault alone and checks what it expects of the library.
func TestChaosFault(t *testing.T) {
	for _, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			if f.reach != reachServer || f.own {
				t.Parallel() // each on a database of its own
			}
			seed := rand.Uint64()
			o := options{limit: 10 * time.Minute, seed: seed, times: times{Poll: f.poll}, own: f.own}
			if !f.busy {
				o.rest = restAlone
			}
			c := setup(t, o)
			c.must(c.progress())
			s := &strike{cluster: c, lasts: cmp.Or(f.alone, f.most), rnd: rand.New(rand.NewPCG(seed, 1)), alone: true}
			if f.ofNode() {
				s.node = c.busiest(f.owns)
			}
			c.must(f.do(s))
			over := time.Now()
			if f.check != nil {
				if err := f.check(s); err != nil {
					c.failed(fmt.Sprintf("expected: %s: %v", f.expects, err))
				}
			}
			if err := c.progress(); err != nil {
				c.failed(fmt.Sprintf("expected: %s: %v", f.expects, err))
			}
			checked := time.Since(over)
			r := c.finish()
			released, taken := r.ownership.some(true), r.ownership.some(false)
			t.Logf("checked %v after the fault; %d leases released, at most %v without an owner; %d taken over, at most %v; %d events appended, %d lost, %d applied",
				checked.Round(time.Millisecond), len(released), longest(released).gap.Round(time.Millisecond),
				len(taken), longest(taken).gap.Round(time.Millisecond), r.appended, r.lost, r.applied)
		})
	}
}

// TestChaosFixedSchedule runs a random schedule whose seed never changes.
func TestChaosFixedSchedule(t *testing.T) {
	if *chaosSeed != 0 || *chaosFor != 0 {
		t.Skip("another schedule was requested")
	}
	r := runRound(t, fixedSeed, shortRound)
	if r.replayed == 0 || r.blocked == 0 {
		t.Errorf("%d events were replayed, and %d were blocked by others: want some of both", r.replayed, r.blocked)
	}
	t.Logf("\n%s", r)
}

// TestChaosSchedule runs random schedules, from a new seed or from that of the flag -seed.
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

// runRound runs one random schedule on a new cluster.
func runRound(t *testing.T, seed int64, length time.Duration) report {
	t.Logf("seed %d, for %v", seed, length)
	c := setup(t, options{limit: length + 4*time.Minute, seed: uint64(seed), own: true,
		repeat: fmt.Sprintf("go test -race -timeout 0 -v ./tests/chaos -run TestChaosSchedule -seed %d -chaos %v", seed,
			length)})
	all := plan(seed, length, fleet)
	c.schedule = all.String()
	c.carryOut(all)
	return c.finish()
}
