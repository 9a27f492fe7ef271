package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// reach says what a fault takes for itself. Faults of different reaches overlap in the random schedule, those of the same
// only where they say so.
type reach int

const (
	reachNode   reach = iota // one node; one is always left alone
	reachFleet               // all nodes
	reachServer              // the server
	reachData                // tables and transactions
)

// fault is something that goes wrong, and what is expected of the library then. That nothing is lost, doubled, parked or
// out of order, and that everything goes on afterwards, is expected of every one.
type fault struct {
	name    string
	expects string // beyond that
	reach   reach
	weight  int           // in the random schedule; 0: only directed
	least   time.Duration // how long it lasts, at least and at most
	most    time.Duration
	alone   time.Duration         // how long where it is the only one; 0: at most
	poll    time.Duration         // of the nodes, where it is the only one
	own     bool                  // it needs a standby
	apart   bool                  // it strikes the node whose sessions others must not end, where it is the only one
	strike  func(s *strike) error // does it, and undoes it
	proves  func(s *strike) error // looks for what it expects, when it stands alone
}

// strike is one fault at work.
type strike struct {
	*cluster
	node   *node
	lasts  time.Duration
	rnd    *rand.Rand
	victim *life // the process that was struck
	alone  bool  // nothing else goes wrong meanwhile
}

// faults are all there are.
var faults = slices.Concat(processFaults, serverFaults, networkFaults, dataFaults, letterFaults, failoverFaults, handlerFaults)

// do strikes, and counts it.
func (f *fault) do(s *strike) error {
	s.mu.Lock()
	s.struck[f.name]++
	s.mu.Unlock()
	if s.node != nil {
		s.victim = s.node.current()
	}
	if err := f.strike(s); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// takenOver waits until others own what the victim owned.
func (s *strike) takenOver(limit time.Duration) error {
	return until(s.ctx, limit, fmt.Sprintf("what %s owned has an owner that lives", s.victim), func() bool {
		all, err := s.standings()
		return err == nil && !slices.ContainsFunc(all, func(l standing) bool { return !l.Alive || l.Owner == s.victim.identity() })
	})
}

// rejoined waits until the victim, the same process as before, takes part again and owns its share.
func (s *strike) rejoined(limit time.Duration) error {
	return until(s.ctx, limit, fmt.Sprintf("%s lives and takes part", s.victim), func() bool {
		return s.victim.alive() && s.registered(s.victim) && s.owned(s.victim) > 0
	})
}

// untaken makes sure that nobody took anything from anybody.
func (s *strike) untaken() error {
	o, err := s.judged()
	if err != nil {
		return err
	}
	for _, taken := range o.takeovers {
		if !taken.released {
			return fmt.Errorf("lease of %s was taken: %+v", taken.of, taken)
		}
	}
	return nil
}

// hit notes that something is done to a process, from now on.
func (c *cluster) hit(who *life, what string) (over func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := len(c.troubles)
	c.troubles = append(c.troubles, trouble{who: who, what: what, from: time.Now()})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.troubles[at].to = time.Now()
	}
}

// hold lets all handlers of some nodes wait, so that batches queue behind them with events that they have in memory.
func hold(nodes ...*node) (release func()) {
	order := func(order string) {
		for _, n := range nodes {
			if l := n.current(); l != nil {
				_ = l.order(order) // it fails where the process has just ended
			}
		}
	}
	order(orderHold)
	return func() { order(orderGo) }
}

// hitAll notes that something is done to all processes, from now on.
func (c *cluster) hitAll(what string) (over func()) {
	var all []func()
	for _, n := range c.nodes {
		if l := n.current(); l != nil {
			all = append(all, c.hit(l, what))
		}
	}
	return func() {
		for _, over := range all {
			over()
		}
	}
}

// noNodes notes that from now on nobody can own anything.
func (c *cluster) noNodes() (over func()) {
	from := time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.away = append(c.away, nobody{from, time.Now()})
	}
}
