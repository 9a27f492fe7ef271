package chaos_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/millrace-go/millrace/event"
)

var processFaults = []fault{
	{
		name:    "killed while idle",
		expects: "other nodes own its leases soon, and handle new events",
		least:   time.Second, most: time.Second,
		strike: func(s *strike) error {
			defer s.writers.pause()()
			if _, err := s.caughtUp(30 * time.Second); err != nil {
				return err
			}
			return s.kill()
		},
		check: (*strike).takenOver,
	},
	{
		name:    "killed",
		expects: "other nodes own its leases soon; its unfinished batches are rolled back",
		weight:  6, least: 100 * time.Millisecond, most: 3 * time.Second, alone: time.Second,
		strike: (*strike).kill,
		check:  (*strike).takenOver,
	},
	killedAt(orderDieInHandler, "", "killed in the handler",
		"the handler's writes are rolled back, and the next owner applies the events"),
	killedAt(orderDieBeforeCommit, "", "killed between handler and commit",
		"the batch is rolled back, and the next owner applies it"),
	killedAt(orderDieAfterCommit, "", "killed after the commit, before the answer",
		"the batch counts, and the next owner begins after it"),
	{
		name:    "frozen past its lease",
		expects: "other nodes take over when the heartbeat has expired; thawed, it gives up its leases and rejoins",
		weight:  4, least: 500 * time.Millisecond, most: 4 * time.Second, alone: 3 * time.Second,
		strike: func(s *strike) error { return s.freeze(nothing) },
		check:  (*strike).rejoined,
	},
	{
		name:    "frozen in a handler",
		expects: "the zombie's commit is refused; it gives up its leases and rejoins",
		weight:  2, least: 3 * time.Second, most: 3500 * time.Millisecond,
		strike: func(s *strike) error { return s.zombie(nothing) },
		check:  (*strike).zombieRejoined,
	},
	{
		name:    "frozen in a handler while sessions cannot be ended",
		expects: "the same: the fence refuses the zombie's commit",
		weight:  2, least: 3 * time.Second, most: 3500 * time.Millisecond,
		strike: func(s *strike) error { return s.unendedZombie(nothing) },
		check:  (*strike).zombieRejoined,
	},
	{
		name:    "an event ends the process",
		expects: "after a few crashes the event is parked, and the fleet survives",
		reach:   reachFleet, weight: 1, least: time.Second, most: time.Second,
		strike: (*strike).deadly,
	},
	{
		name:    "a node joins and leaves",
		expects: "it takes its share and releases it, and no lease is without an owner for long",
		reach:   reachData, weight: 2, least: 2 * time.Second, most: 4 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			return s.repeat(0, 1, func() error {
				s.spare.start()
				err := until(s.ctx, 30*time.Second, "the spare node owns a lease", func() bool {
					return s.registered(s.spare.current()) && s.owned(s.spare.current()) > 0
				})
				s.wait(500 * time.Millisecond)
				return errors.Join(err, s.spare.stop())
			})
		},
		check: (*strike).movedGently,
	},
	{
		name:    "all nodes killed and started again",
		expects: "the next processes take over everything",
		reach:   reachFleet, weight: 1, least: 300 * time.Millisecond, most: 2 * time.Second,
		strike: func(s *strike) error {
			defer s.outage()()
			for _, n := range s.nodes {
				n.stayAway(s.lasts)
				if p := n.current(); p != nil {
					s.hit(p, "killed")
					p.signal(syscall.SIGKILL)
				}
			}
			s.wait(s.lasts)
			return until(s.ctx, 30*time.Second, "a node is registered", func() bool {
				return slices.ContainsFunc(s.nodes, func(n *node) bool { return s.registered(n.current()) })
			})
		},
	},
}

// unendable lets only superusers end sessions, as many operators have it: a zombie's batch then survives the takeover.
const (
	unendable = "revoke execute on function pg_terminate_backend from public"
	endable   = "grant execute on function pg_terminate_backend to public"
)

// killedAt is the fault that a node's process is killed at the moment that an order names, in the projection owns if it
// is not empty.
func killedAt(order, owns, name, expects string) fault {
	return fault{
		name: name, expects: expects, owns: owns,
		weight: 3, least: 100 * time.Millisecond, most: 3 * time.Second, alone: time.Second,
		strike: func(s *strike) error { return s.killBy(order) },
		check:  (*strike).takenOver,
	}
}

// kill kills the node's process. The next one starts after the duration of the strike.
func (s *strike) kill() error {
	s.node.stayAway(s.lasts)
	s.hit(s.victim, "killed")
	s.victim.signal(syscall.SIGKILL)
	return s.victim.awaitEnd(s.ctx, 20*time.Second)
}

// killBy lets the node's process kill itself at a certain moment. In random schedules it is killed anyway after a
// while.
func (s *strike) killBy(order string) error {
	s.node.stayAway(s.lasts)
	if s.victim.order(order) != nil {
		return nil // it has just ended
	}
	if s.alone {
		return s.victim.awaitEnd(s.ctx, time.Minute)
	}
	if s.victim.awaitEnd(s.ctx, 2*time.Second) != nil {
		return s.kill()
	}
	return nil
}

func nothing() error { return nil }

// freeze stops the node's process and continues it when more has returned.
func (s *strike) freeze(more func() error) error {
	defer s.hit(s.victim, "frozen")()
	s.victim.signal(syscall.SIGSTOP)
	s.wait(s.lasts)
	err := more()
	s.victim.signal(syscall.SIGCONT)
	return err
}

// zombie freezes the node while one of its handlers has written and not returned. The handler returns when more has
// returned and, where this is the only fault, other nodes own the leases.
func (s *strike) zombie(more func() error) error {
	before := s.victim.reported("stalled")
	if s.victim.order(orderStall) != nil {
		return nil // it has just ended
	}
	if err := s.victim.awaitReport(s.ctx, 20*time.Second, "stalled", before); err != nil {
		_ = s.victim.order(orderRelease)
		return s.ifAlone(err)
	}
	err := s.freeze(func() (err error) {
		if s.alone {
			err = s.takenOver()
		}
		return errors.Join(err, more(), s.victim.order(orderRelease))
	})
	return errors.Join(s.ifAlone(err), s.victim.awaitReport(s.ctx, 20*time.Second, "released", before))
}

// unendedZombie is zombie while other nodes cannot end its sessions.
func (s *strike) unendedZombie(more func() error) error {
	if err := s.exec(unendable); err != nil {
		return err
	}
	return errors.Join(s.zombie(more), s.exec(endable))
}

func (s *strike) zombieRejoined() error {
	if s.victim.reported("released") == 0 {
		return errors.New("the zombie's handler was never called or did not return")
	}
	return s.rejoined()
}

// deadly appends an event that ends every process that handles it, and waits until it is parked.
func (s *strike) deadly() error {
	name := tenants[s.rnd.IntN(len(tenants))]
	tenant, err := s.store.ForTenant(name)
	if err != nil {
		return err
	}
	key := fmt.Sprint("deadly-", s.rnd.Uint64())
	return until(s.ctx, 90*time.Second, "the deadly event is parked", func() bool {
		at, err := value[int64](s.cluster, "select coalesce(max(global_seq), 0) from "+eventsOf(name)+
			" where stream_id = $1", key)
		if err != nil {
			return false
		}
		if at == 0 { // it is new, or a server lost it
			result, err := tenant.Append(s.ctx, key, event.Any.WithKey(key), event.Event{Type: typeDeadly})
			if err != nil {
				return false
			}
			at = result.Positions[0]
		}
		s.expectParked(name, stored{Position: at, Stream: key})
		parked, err := value[int64](s.cluster,
			`select count(*) from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
			where p.tenant = $1 and p.name = $2 and d.position = $3`, name, deadly, at)
		return err == nil && parked == 1
	})
}

// expectParked records that the projection deadly must park an event.
func (c *cluster) expectParked(tenant string, e stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.expected[tenant], e) {
		c.expected[tenant] = append(c.expected[tenant], e)
	}
}

// movedGently verifies that the spare node owned and released something, and that no move left a lease without an owner
// for far longer than a move takes. A move ends when another node claims the lease.
func (s *strike) movedGently() error {
	isSpare := func(t takeover) bool {
		return slices.ContainsFunc(s.spare.allProcesses(), func(p *process) bool { return p.identity() == t.from })
	}
	var released []takeover
	err := until(s.ctx, 30*time.Second, "a lease of the spare node has moved", func() bool {
		o, err := s.ownership()
		released = o.some(true)
		return err == nil && slices.ContainsFunc(released, isSpare)
	})
	if err != nil {
		return err
	}
	if most := longest(released); most.gap > 5*time.Second {
		return fmt.Errorf("the longest gap of a move was %+v", most)
	}
	return s.noneTaken()
}
