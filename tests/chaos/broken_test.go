package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// scenario is what a broken protection cannot stand, and every other library can.
type scenario struct {
	fleet   bool   // the protection is broken on every node, and not only on the struck one
	finds   string // the kind of finding that shows it
	times   times
	prepare string // a statement, as superuser
	own     bool   // it needs a standby
	strike  func(s *strike) error
}

const (
	// patience is within what time everything is handled after a scenario, which takes far less.
	patience = 30 * time.Second
	// impatience is that where something is broken: then a scenario is repeated.
	impatience = 5 * time.Second
	// noticeLimit is within what time a broken protection is noticed: the scenario is repeated until it is.
	noticeLimit = 40 * time.Second
)

// The proof that the suite can fail: each protection is broken, and found to be. Before that, the same scenario on the same
// nodes finds nothing.
func TestChaosNoticesWhatIsBroken(t *testing.T) {
	for broken, one := range scenarios {
		t.Run(string(broken), func(t *testing.T) {
			if broken != seenLock { // which strikes the server
				t.Parallel() // each on a database of its own
			}
			c := setup(t, options{limit: 2 * time.Minute, seed: rand.Uint64(), times: one.times, nodes: 2, own: one.own,
				repeat: fmt.Sprintf("go test -race ./tests/chaos -run '^%s$'", strings.ReplaceAll(t.Name(), "/", "$/^"))})
			if one.prepare != "" {
				c.must(c.exec(one.prepare))
			}
			began := time.Now()
			c.findNothing(one)
			broke := time.Now()
			tries, found := c.findBroken(one, broken)
			t.Logf("nothing found in %v; broken, found in %v and %d tries: %s",
				broke.Sub(began).Round(time.Millisecond), time.Since(broke).Round(time.Millisecond), tries, counted(found))
		})
	}
}

// findNothing carries out the scenario while nothing is broken.
func (c *cluster) findNothing(one scenario) {
	c.t.Helper()
	c.must(one.strike(c.aim()))
	c.must(c.live())
	r, err := c.inspect(patience)
	c.must(err)
	c.verify(r)
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// findBroken breaks the protection and repeats the scenario until that is noticed.
func (c *cluster) findBroken(one scenario, broken protection) (tries int, found []finding) {
	c.t.Helper()
	for limit := time.Now().Add(noticeLimit); time.Now().Before(limit); {
		tries++
		s := c.aim()
		if sql := breaks[broken]; sql != "" {
			c.must(c.exec(sql))
		}
		for _, n := range c.nodes {
			if breaks[broken] == "" && (one.fleet && n != c.spare || n == s.node) {
				c.must(c.breakOn(n, broken))
			}
		}
		if err := one.strike(s); err != nil {
			c.t.Logf("broken: %v", err) // what is broken need not recover
		}
		r, err := c.inspect(impatience)
		c.must(err)
		if slices.ContainsFunc(r.findings, func(f finding) bool {
			// What was not handled yet would count as lost, too.
			behind := func(b finding) bool { return f.kind == kindLost && b.kind == kindBehind && b.of == f.of && f.at > b.at }
			return f.kind == one.finds && !slices.ContainsFunc(r.findings, behind)
		}) {
			return tries, r.findings
		}
		found = r.findings
	}
	c.t.Fatalf("%s was broken, and %d tries did not find %q, but: %s", broken, tries, one.finds, counted(found))
	return tries, nil
}

// aim chooses a node that owns a ledger, whose handlers can be stalled. The busiest may own none.
func (c *cluster) aim() *strike {
	c.t.Helper()
	s := &strike{cluster: c, rnd: rand.New(rand.NewPCG(rand.Uint64(), 1)), alone: true}
	c.must(until(c.ctx, 20*time.Second, "a node owns a ledger", func() bool {
		all, err := c.standings()
		if err != nil {
			return false
		}
		for _, n := range c.nodes {
			l := n.current()
			if l != nil && slices.ContainsFunc(all, func(o standing) bool { return o.Name == "ledger" && o.Alive && o.Owner == l.identity() }) {
				s.node, s.victim = n, l
				return true
			}
		}
		return false
	}))
	return s
}

// breakOn breaks a protection on the connections of a node's process, for the rest of its life.
func (c *cluster) breakOn(n *node, broken protection) error {
	l := n.current()
	if l == nil {
		return fmt.Errorf("node %s has no process in which to break %s", n.name, broken)
	}
	if err := l.order(orderBreak + string(broken)); err != nil {
		return err
	}
	return until(c.ctx, 10*time.Second, fmt.Sprintf("%s is broken in %s", broken, l), func() bool { return l.tells("broken "+string(broken)) > 0 })
}

// inspect looks for everything that the end of a test looks for, while the nodes run.
func (c *cluster) inspect(patience time.Duration) (r report, err error) {
	resume := c.writers.pause()
	defer resume()
	if err := c.compare(&r, patience); err != nil {
		return r, err
	}
	if r.ownership, err = c.judged(); err != nil {
		return r, err
	}
	r.findings = append(append(r.findings, c.misbehaved()...), r.ownership.findings...)
	return r, nil
}

// counted tells how many findings there are of each kind.
func counted(found []finding) string {
	n := make(map[string]int)
	var kinds []string
	for _, f := range found {
		if n[f.kind]++; n[f.kind] == 1 {
			kinds = append(kinds, f.kind)
		}
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", n[kind], kind)
	}
	return strings.Join(kinds, ", ")
}
