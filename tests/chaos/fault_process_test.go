package chaos_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
)

// A death is taken over within this, whatever else this machine does.
const deathLimit = 15 * time.Second

var processFaults = []fault{
	{
		name:    "killed while idle",
		expects: "others own its leases soon, and handle what comes next",
		least:   time.Second, most: time.Second,
		strike: func(s *strike) error {
			resume := s.writers.pause()
			defer resume()
			if _, err := s.caughtUp(30 * time.Second); err != nil {
				return err
			}
			return s.kill()
		},
		proves: func(s *strike) error { return s.takenOver(deathLimit) },
	},
	{
		name:    "killed",
		expects: "others own its leases soon; batches under way are rolled back",
		weight:  6, least: 100 * time.Millisecond, most: 3 * time.Second, alone: time.Second,
		strike: (*strike).kill,
		proves: func(s *strike) error { return s.takenOver(deathLimit) },
	},
	killedAt(orderDieInHandler, "killed in the handler", "what the handler wrote is rolled back, and applied by the next owner"),
	killedAt(orderDieBeforeCommit, "killed between handler and commit", "the batch is rolled back, and applied by the next owner"),
	killedAt(orderDieAfterCommit, "killed after the commit, before it was told", "the batch counts, and the next owner begins behind it"),
	{
		name:    "frozen past its lease",
		expects: "others take over when the heartbeat has run out; thawed, it gives up what it lost and takes part again",
		weight:  4, least: 500 * time.Millisecond, most: 4 * time.Second, alone: 3 * time.Second,
		strike: func(s *strike) error { return s.freeze(func() error { return nil }) },
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "frozen with a batch in hand",
		expects: "the zombie's commit is refused; it gives up what it lost and takes part again",
		weight:  2, least: 3 * time.Second, most: 3500 * time.Millisecond,
		strike: (*strike).zombie,
		proves: func(s *strike) error {
			if s.victim.tells("released") == 0 {
				return errors.New("the zombie's handler was never called or did not return")
			}
			return s.rejoined(20 * time.Second)
		},
	},
	{
		name:    "frozen with a batch in hand that nobody may end",
		expects: "as before: it is the fence that refuses the zombie's commit",
		least:   3 * time.Second, most: 3 * time.Second, apart: true,
		strike: (*strike).zombie,
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "an event that ends its process",
		expects: "after a few deaths the event is parked, and the fleet lives",
		reach:   reachFleet, weight: 1, least: time.Second, most: time.Second,
		strike: (*strike).deadly,
	},
	{
		name:    "a node joins and leaves",
		expects: "it takes its share and gives it back, each without a gap that is longer than a batch",
		reach:   reachData, weight: 2, least: 2 * time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: (*strike).joinAndLeave,
		proves: (*strike).movedGently,
	},
	{
		name:    "all nodes killed and started again",
		expects: "the next ones take everything over",
		reach:   reachFleet, weight: 1, least: 300 * time.Millisecond, most: 2 * time.Second,
		strike: func(s *strike) error {
			over := s.noNodes()
			defer over()
			for _, n := range s.nodes {
				n.stayAway(s.lasts)
				if l := n.current(); l != nil {
					s.hit(l, "killed")
					l.signal(syscall.SIGKILL)
				}
			}
			s.wait(s.lasts)
			return until(s.ctx, 30*time.Second, "a node is registered", func() bool {
				for _, n := range s.nodes {
					if s.registered(n.current()) {
						return true
					}
				}
				return false
			})
		},
	},
}

// killedAt lets the process of a node be killed at the moment that an order names.
func killedAt(order, name, expects string) fault {
	return fault{
		name: name, expects: expects,
		weight: 3, least: 100 * time.Millisecond, most: 3 * time.Second, alone: time.Second,
		strike: func(s *strike) error { return s.killBy(order) },
		proves: func(s *strike) error { return s.takenOver(deathLimit) },
	}
}

// kill kills the node's process; another one follows after a while.
func (s *strike) kill() error {
	if s.victim == nil {
		return nil // it is down already
	}
	s.node.stayAway(s.lasts)
	s.hit(s.victim, "killed")
	s.victim.signal(syscall.SIGKILL)
	return s.victim.awaitEnd(s.ctx, 20*time.Second)
}

// killBy lets the node's process kill itself at a certain moment. Where that does not come, it is killed at any.
func (s *strike) killBy(order string) error {
	if s.victim == nil {
		return nil
	}
	s.node.stayAway(s.lasts)
	if s.victim.order(order) != nil {
		return nil // it has just ended
	}
	limit := 2 * time.Second
	if s.alone {
		limit = 20 * time.Second
	}
	err := s.victim.awaitEnd(s.ctx, limit)
	if err != nil && !s.alone {
		return s.kill()
	}
	return err
}

// freeze stops the node's process, and lets it go on after a while when more is done, too.
func (s *strike) freeze(more func() error) error {
	if s.victim == nil {
		return nil
	}
	over := s.hit(s.victim, "frozen")
	defer over()
	s.victim.signal(syscall.SIGSTOP)
	s.wait(s.lasts)
	err := more()
	s.victim.signal(syscall.SIGCONT)
	return err
}

// zombie freezes the node while one of its handlers has written and not returned, and lets the handler return when
// others own the leases.
func (s *strike) zombie() error {
	if s.victim == nil || s.victim.order(orderStall) != nil {
		return nil
	}
	before := s.victim.tells("stalled")
	stalled := func() bool { return s.victim.tells("stalled") > before || !s.victim.alive() }
	if err := until(s.ctx, 10*time.Second, "a handler stalls", stalled); err != nil {
		if s.alone {
			return err
		}
		_ = s.victim.order(orderRelease)
		return nil
	}
	err := s.freeze(func() error {
		if s.alone {
			return s.takenOver(deathLimit)
		}
		return nil
	})
	_ = s.victim.order(orderRelease)
	released := func() bool { return s.victim.tells("released") > before || !s.victim.alive() }
	return errors.Join(err, until(s.ctx, 20*time.Second, "the stalled handler returns", released))
}

// deadly appends an event that no process survives, and waits until it is parked.
func (s *strike) deadly() error {
	name := tenants[s.rnd.IntN(len(tenants))]
	tenant, err := s.store.ForTenant(name)
	if err != nil {
		return err
	}
	key := fmt.Sprint("deadly-", s.rnd.Uint64())
	there := func() (at int64, err error) { // where it is; 0: a server lost it
		found, err := rows(s.cluster, scanNumber, "select coalesce(max(global_seq), 0) from "+pgx.Identifier{tenant.EventsSchema(), "events"}.Sanitize()+" where stream_id = $1", key)
		if err != nil {
			return 0, err
		}
		return found[0], nil
	}
	return until(s.ctx, 90*time.Second, "the deadly event is parked", func() bool {
		at, err := there()
		if err == nil && at == 0 {
			var result event.Appended
			if result, err = tenant.Append(s.ctx, key, event.Any.WithKey(key), event.Event{Type: typeDeadly}); err == nil {
				at = result.Positions[0]
			}
		}
		if err != nil {
			return false
		}
		s.expect(name, stored{Position: at, Stream: key})
		letters, err := rows(s.cluster, scanNumber, `select d.position from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
			where p.tenant = $1 and p.name = $2 and d.position = $3`, name, deadly, at)
		return err == nil && len(letters) == 1
	})
}

// expect notes that an event is to be parked by deadly.
func (c *cluster) expect(tenant string, e stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.expected[tenant], e) {
		c.expected[tenant] = append(c.expected[tenant], e)
	}
}

// moveLimit is far more than a planned move takes, whatever else this machine does.
const moveLimit = 5 * time.Second

// movedGently makes sure that the spare node had something, and that no move left a lease alone for long.
func (s *strike) movedGently() error {
	o, err := s.judged()
	if err != nil {
		return err
	}
	given := o.some(true)
	had := slices.ContainsFunc(given, func(t takeover) bool {
		return slices.ContainsFunc(s.spare.allLives(), func(l *life) bool { return l.identity() == t.from })
	})
	if most := longest(given); !had || most.gap > moveLimit {
		return fmt.Errorf("the node that came and went gave something back: %v; the longest gap of a move was %+v", had, most)
	}
	return s.untaken()
}

// joinAndLeave lets the spare node come and go in order.
func (s *strike) joinAndLeave() error {
	for end := time.Now().Add(s.lasts); time.Now().Before(end) && s.ctx.Err() == nil; {
		s.spare.start()
		err := until(s.ctx, 30*time.Second, "the spare node is registered", func() bool { return s.registered(s.spare.current()) })
		s.wait(500 * time.Millisecond)
		if err := errors.Join(err, s.spare.stop()); err != nil {
			return err
		}
	}
	return nil
}
