package chaos_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// scenario violates a promise if a protection is broken, and none otherwise.
type scenario struct {
	fleet  bool   // break the protection on every node, not only on the victim
	finds  string // the kind of finding that must result
	times  times
	own    bool // needs servers of its own
	strike func(s *strike) error
}

// noticeLimit is how long a scenario with a broken protection is repeated until the finding results.
const noticeLimit = 40 * time.Second

// TestChaosNoticesWhatIsBroken proves that the suite can fail. A scenario runs first without and then with a broken
// protection, on the same nodes. Only then there must be findings.
func TestChaosNoticesWhatIsBroken(t *testing.T) {
	for broken, one := range scenarios {
		t.Run(string(broken), func(t *testing.T) {
			if broken != seenLock { // which restarts the shared server
				t.Parallel() // each on a database of its own
			}
			c := setup(t, options{limit: 2 * time.Minute,
				seed: rand.Uint64(), times: one.times, nodes: 2, own: one.own})
			began := time.Now()
			c.must(one.strike(c.chooseVictim()))
			c.must(c.live())
			c.verify(c.inspect(30 * time.Second))
			if t.Failed() {
				t.FailNow()
			}
			broke := time.Now()
			tries, found := c.findBroken(one, broken)
			t.Logf("nothing found in %v; broken, found in %v and %d tries: %s",
				broke.Sub(began).Round(time.Millisecond), time.Since(broke).Round(time.Millisecond), tries,
				countByKind(found))
		})
	}
}

// findBroken breaks the protection and repeats the scenario until the finding results.
func (c *cluster) findBroken(one scenario, broken protection) (tries int, found []finding) {
	c.t.Helper()
	for limit := time.Now().Add(noticeLimit); time.Now().Before(limit); {
		tries++
		s := c.chooseVictim()
		if sql := breaks[broken]; sql != "" {
			c.must(c.exec(sql))
		}
		for _, n := range c.nodes {
			if breaks[broken] == "" && (one.fleet && n != c.spare || n == s.node) {
				c.must(c.breakOn(n, broken))
			}
		}
		if err := one.strike(s); err != nil {
			c.t.Logf("broken: %v", err) // a broken library need not recover
		}
		found = c.inspect(5 * time.Second).findings
		if slices.ContainsFunc(found, func(f finding) bool {
			// Events after the checkpoint of a lagging projection are not lost.
			lagging := func(b finding) bool {
				return f.kind == kindLost && b.kind == kindLagging && b.of == f.of && f.at > b.at
			}
			return f.kind == one.finds && !slices.ContainsFunc(found, lagging)
		}) {
			return tries, found
		}
	}
	c.t.Fatalf("%s was broken, and %d tries did not find %q, but: %s", broken, tries, one.finds, countByKind(found))
	return tries, nil
}

// chooseVictim chooses a node that owns a ledger, because its handlers can be stalled.
func (c *cluster) chooseVictim() *strike {
	c.t.Helper()
	s := &strike{cluster: c, rnd: rand.New(rand.NewPCG(rand.Uint64(), 1)), alone: true}
	c.must(until(c.ctx, 20*time.Second, "a node owns a ledger", func() bool {
		all, err := c.leases()
		return err == nil && slices.ContainsFunc(c.nodes, func(n *node) bool {
			p := n.current()
			s.node, s.victim = n, p
			return p != nil && slices.ContainsFunc(all,
				func(l lease) bool { return l.Name == "ledger" && l.Alive && l.Owner == p.identity() })
		})
	}))
	return s
}

// breakOn breaks a protection on the connections of a node's process, for the rest of its life.
func (c *cluster) breakOn(n *node, broken protection) error {
	p := n.current()
	if p == nil {
		return fmt.Errorf("node %s has no process in which to break %s", n.name, broken)
	}
	if err := p.order(orderBreak + " " + string(broken)); err != nil {
		return err
	}
	return p.awaitReport(c.ctx, 10*time.Second, "broken "+string(broken), 0)
}

// inspect checks everything that finish checks, while the nodes run.
func (c *cluster) inspect(limit time.Duration) (r report) {
	defer c.writers.pause()()
	c.must(c.compare(&r, limit))
	c.must(c.checkNodes(&r))
	return r
}

// countByKind returns how many findings there are of each kind.
func countByKind(found []finding) string {
	n := make(map[string]int)
	for _, f := range found {
		n[f.kind]++
	}
	var text []string
	for _, kind := range slices.Sorted(maps.Keys(n)) {
		text = append(text, fmt.Sprintf("%d %s", n[kind], kind))
	}
	return strings.Join(text, ", ")
}
