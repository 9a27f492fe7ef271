package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// A failover to an asynchronous standby, and a crash under asynchronous commits, lose what was committed last, and the new
// server hands the same positions out again. What survived is what counts from then on.
var failoverFaults = []fault{
	{
		name:    "failover to an asynchronous standby, with loss",
		expects: "nothing stops, and every read model is that of the events that survived",
		reach:   reachServer, weight: 2, least: 300 * time.Millisecond, most: 2 * time.Second, alone: 800 * time.Millisecond, own: true,
		strike: (*strike).loseServer,
		proves: func(s *strike) error { return errors.Join(s.somethingLost(), s.progress()) },
	},
	{
		name:    "a backend killed under asynchronous commits",
		expects: "PostgreSQL recovers without some appends, and every read model is that of the events that survived",
		reach:   reachServer, weight: 2, least: 300 * time.Millisecond, most: time.Second, alone: 800 * time.Millisecond, own: true,
		strike: (*strike).loseCommits,
		proves: func(s *strike) error { return errors.Join(s.somethingLost(), s.progress()) },
	},
	{
		name:    "the poolers of a node are killed and started again",
		expects: "the node goes on through the new ones",
		reach:   reachData, weight: 2, most: time.Second, own: true,
		strike: func(s *strike) error {
			n := s.nodes[pooled]
			if len(s.poolers) == 0 {
				s.t.Log(pgtest.ErrNoPgBouncer)
				return nil
			}
			if l := n.current(); l != nil {
				defer s.hit(l, "poolers killed")()
			}
			return s.restartPoolers(context.WithoutCancel(s.ctx))
		},
		proves: func(s *strike) error {
			s.node = s.nodes[pooled]
			s.victim = s.node.current()
			return errors.Join(s.rejoined(20*time.Second), s.progress())
		},
	},
	{
		name:    "connections reach a standby that lags",
		expects: "what is read there is not taken for complete",
		weight:  3, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second, own: true,
		strike: (*strike).stray,
		proves: func(s *strike) error { return errors.Join(s.rejoined(20*time.Second), s.progress()) },
	},
}

// somethingLost makes sure that the fault did what it is about.
func (s *strike) somethingLost() error {
	lost, err := s.lost()
	if err == nil && lost == 0 {
		err = errors.New("no event was lost")
	}
	return err
}

// rest waits until everything is handled and nothing is parked, while nobody appends. Poison events have what they need
// from then on: each failure would be written, synchronously, together with everything before it.
func (s *strike) rest() error {
	if _, err := s.caughtUp(30 * time.Second); err != nil {
		return err
	}
	if err := s.mend(s.ctx, "mended = greatest(head, 1000000000)"); err != nil {
		return err
	}
	return until(s.ctx, 30*time.Second, "everything that was parked is replayed", func() bool {
		left, err := s.remains(s.ctx, s.admin)
		return err == nil && len(left) == 0
	})
}

// fromRest begins something while the writers rest. Alone, everything is handled before, and handlers wait from then on,
// so that what is appended next is waited for in memory.
func (s *strike) fromRest(begin func() error) (release func(), err error) {
	resume := s.writers.pause()
	defer resume()
	if s.alone {
		if err := s.rest(); err != nil {
			return nil, err
		}
	} else {
		s.wait(200 * time.Millisecond)
	}
	if err := begin(); err != nil {
		return nil, err
	}
	if s.alone || s.rnd.IntN(2) == 0 {
		return hold(s.nodes...), nil
	}
	return func() {}, nil
}

// loseServer lets the standby fall behind, kills the primary, and goes on with the standby.
func (s *strike) loseServer() error {
	defer s.hitAll("failover")()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), time.Minute)
	defer cancel()
	var detached time.Time
	release, err := s.fromRest(func() error {
		detached = time.Now()
		return s.detach(ctx)
	})
	if err != nil {
		return err
	}
	s.wait(s.lasts)
	over := s.noNodes()
	err = s.failOver(ctx, detached, func() {
		over()
		release()
	})
	return errors.Join(err, s.resolveLost())
}

// loseCommits lets commits be asynchronous for a while, and kills a backend.
func (s *strike) loseCommits() (err error) {
	defer s.hitAll("crash")()
	var from time.Time
	release, err := s.fromRest(func() error {
		from = time.Now()
		s.writers.plain.Store(true)
		return s.commitLater()
	})
	defer s.writers.plain.Store(false)
	if err != nil {
		return errors.Join(err, s.commitAtOnce())
	}
	s.wait(s.lasts)
	over := s.noNodes()
	err = s.server().CrashBackend(context.WithoutCancel(s.ctx))
	over()
	release()
	s.lose(from)
	return errors.Join(err, s.commitAtOnce(), s.resolveLost())
}

// commitLater writes everything to the disk, and lets commits be lost from then on.
func (s *strike) commitLater() error {
	return errors.Join(s.exec("alter system set synchronous_commit = off"), s.exec("alter system set bgwriter_lru_maxpages = 0"),
		s.exec("select pg_reload_conf()"), s.exec("checkpoint"), s.server().HoldWAL(s.ctx))
}

// commitAtOnce undoes commitLater.
func (s *strike) commitAtOnce() error {
	return errors.Join(s.exec("alter system reset all"), s.exec("select pg_reload_conf()"))
}

// stray lets the connections of a node reach the standby, of which the replay is paused, one after another, and then the
// primary again. Its pool does not ask for the primary meanwhile. What is behind reads for itself.
func (s *strike) stray() error {
	standby := s.follower()
	if s.victim == nil || standby == nil { // a failover is under way
		return nil
	}
	over := s.hit(s.victim, "astray")
	defer over()
	before := s.victim.tells("astray")
	follower := func(sql string) error { return execute(s.ctx, standby.DSN("postgres"), sql) }
	if err := follower("select pg_wal_replay_pause()"); err != nil {
		return s.unlessAlone(err)
	}
	away := func() error {
		return errors.Join(s.victim.order(orderStray+s.link(s.server()).address), s.endConnections(s.server(), 10))
	}
	var err error
	if s.alone {
		if err = s.readAfter(away); err == nil && s.victim.tells("astray") == before {
			err = fmt.Errorf("no connection of %s reached the standby", s.node.name)
		}
	} else {
		release := hold(s.node)
		s.wait(s.lasts / 4)
		err = away()
		release()
		s.wait(s.lasts / 2)
	}
	err = errors.Join(err, s.victim.order(orderStray))
	for end := time.Now().Add(s.lasts / 4); err == nil && time.Now().Before(end); {
		s.wait(time.Duration(50+s.rnd.IntN(200)) * time.Millisecond)
		err = s.endConnections(standby, 1)
	}
	s.link(standby).endAll()
	return errors.Join(s.unlessAlone(err), s.unlessAlone(s.victim.order(orderStray)), s.unlessAlone(follower("select pg_wal_replay_resume()")))
}

// readAfter pauses the projections of the struck node until there are events that are settled, and lets the node's projections
// read those again when something has begun: what they read before is held, and not handled. Nothing is appended meanwhile, so
// that no lock scan meets the fault before a read does.
func (s *strike) readAfter(begin func() error) error {
	all, err := s.standings()
	if err != nil {
		return err
	}
	want := func(wanted engine.DesiredState) (err error) {
		for _, o := range all {
			if o.Owner == s.victim.identity() && o.Name != deadly {
				err = errors.Join(err, s.store.Engine().SetDesiredState(s.ctx, projection.ID{Tenant: o.Tenant, Name: o.Name}, wanted))
			}
		}
		return err
	}
	s.writers.plain.Store(true) // no append is rolled back, and leaves a gap
	defer s.writers.plain.Store(false)
	s.wait(500 * time.Millisecond)
	if err := want(engine.WantPause); err != nil {
		return err
	}
	s.wait(time.Second)
	resume := s.writers.pause()
	defer resume()
	s.wait(500 * time.Millisecond) // the feeds have settled everything
	release := hold(s.node)
	defer release()
	if err := errors.Join(want(engine.WantRun), s.shared()); err != nil {
		return err
	}
	err = begin()
	s.wait(300 * time.Millisecond) // the node has noticed that connections were lost
	release()
	s.wait(s.lasts / 2)
	return err
}

// link is how the node's pool reaches a server.
func (s *strike) link(server *pgtest.Server) *link {
	return s.node.pool[slices.Index(s.addresses, server.Address())]
}

// endConnections ends some connections of the node's pool to a server.
func (s *strike) endConnections(server *pgtest.Server, n int) error {
	return execute(s.ctx, server.DSN(s.database), fmt.Sprintf(`select pg_terminate_backend(pid) from (select pid from pg_stat_activity a
		where datname = current_database() and application_name = '%s'
		and not exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory' and l.objsubid = 1) order by random() limit %d) victims`, s.node.name, n))
}

// unlessAlone is err where nothing else goes wrong that may have caused it.
func (s *strike) unlessAlone(err error) error {
	if s.alone {
		return err
	}
	return nil
}
