package chaos_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// reach is what a fault breaks. In random schedules faults of different reaches overlap; plan says which of the same
// reach do.
type reach int

const (
	reachProcess reach = iota // the process of one node; another node is always left alone
	reachNetwork              // the network of one node, even if it has no process; likewise
	reachFleet                // all nodes
	reachServer               // the server
	reachData                 // tables and transactions
)

// fault breaks something. After every fault nothing may be lost, doubled, parked or out of order, and every projection
// must make progress.
type fault struct {
	name    string
	expects string // what the library must do beyond that
	reach   reach
	weight  int                   // in random schedules; 0: never
	least   time.Duration         // the shortest duration
	most    time.Duration         // the longest duration
	alone   time.Duration         // the duration where it is the only fault; 0: most
	poll    time.Duration         // Config.PollInterval where it is the only fault; 0: the default
	own     bool                  // needs servers of its own
	busy    bool                  // needs as many appends where it is the only fault as in random schedules
	owns    string                // a projection that its node owns where it is the only fault; empty: any
	strike  func(s *strike) error // breaks and repairs
	check   func(s *strike) error // verifies what it expects where it is the only fault
}

// faults are all faults.
var faults = slices.Concat(processFaults, serverFaults, networkFaults, dataFaults, deadLetterFaults, tenantFaults,
	erasureFaults, splitFaults, failoverFaults, handlerFaults)

// strike is one fault at work.
type strike struct {
	*cluster
	node   *node
	victim *process // of node; nil while it has none
	lasts  time.Duration
	rnd    *rand.Rand
	alone  bool // it is the only fault
}

// ofNode reports whether the fault breaks a single node.
func (f *fault) ofNode() bool { return f.reach == reachProcess || f.reach == reachNetwork }

// do strikes and counts it.
func (f *fault) do(s *strike) error {
	s.mu.Lock()
	s.struck[f.name]++
	s.mu.Unlock()
	if s.node != nil {
		s.victim = s.node.current()
	}
	if f.reach == reachProcess && s.victim == nil {
		return nil
	}
	if err := f.strike(s); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// repeat calls do until the duration of the strike is over, with pauses of least plus up to spread milliseconds.
func (s *strike) repeat(least, spread int, do func() error) error {
	for end := time.Now().Add(s.lasts); time.Now().Before(end) && s.ctx.Err() == nil; {
		if err := do(); err != nil {
			return err
		}
		s.wait(time.Duration(least+s.rnd.IntN(spread)) * time.Millisecond)
	}
	return nil
}

// ifAlone returns err where no other fault can have caused it.
func (s *strike) ifAlone(err error) error {
	if s.alone {
		return err
	}
	return nil
}

// takenOver waits until living nodes own what the victim owned.
func (s *strike) takenOver() error {
	return until(s.ctx, 15*time.Second, fmt.Sprintf("living nodes own what %s owned", s.victim), func() bool {
		all, err := s.leases()
		return err == nil && !slices.ContainsFunc(all,
			func(l lease) bool { return !l.Alive || l.Owner == s.victim.identity() })
	})
}

// rejoined waits until the victim, still the same process, is registered and owns leases.
func (s *strike) rejoined() error {
	return until(s.ctx, 20*time.Second, fmt.Sprintf("%s is registered and owns leases", s.victim), func() bool {
		return s.victim.alive() && s.registered(s.victim) && s.owned(s.victim) > 0
	})
}

// noneTaken fails if a lease was taken from an owner that had not released it.
func (s *strike) noneTaken() error {
	o, err := s.ownership()
	for _, taken := range o.some(false) {
		err = errors.Join(err, fmt.Errorf("lease of %s was taken: %+v", taken.of, taken))
	}
	return err
}

// hold blocks all handlers of some nodes after they have written. Batches then wait with events that are in memory.
func hold(nodes ...*node) (release func()) {
	order := func(order string) {
		for _, n := range nodes {
			if p := n.current(); p != nil {
				_ = p.order(order) // it fails if the process has just ended
			}
		}
	}
	order(orderHold)
	return func() { order(orderGo) }
}

// trouble is a fault that affects a process. It ends when the process can work again, or has ended for good.
type trouble struct {
	who      *process
	what     string
	from, to time.Time // to is zero while it lasts
}

// hit records that something affects a process until over is called.
func (c *cluster) hit(who *process, what string) (over func()) {
	if who == nil {
		return func() {}
	}
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

// hitAll records that something affects all processes until over is called.
func (c *cluster) hitAll(what string) (over func()) {
	var all []func()
	for _, n := range c.nodes {
		all = append(all, c.hit(n.current(), what))
	}
	return func() {
		for _, over := range all {
			over()
		}
	}
}

// outage is a period in which no node could own anything: all were down, or the server was.
type outage struct{ from, to time.Time }

// outage records an outage from now until over is called.
func (c *cluster) outage() (over func()) {
	from := time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.outages = append(c.outages, outage{from, time.Now()})
	}
}
