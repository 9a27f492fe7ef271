package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// A failover to an asynchronous standby, and a crash under asynchronous commits, lose the last commits. The new server
// assigns the same positions again.
var failoverFaults = []fault{
	{
		name:    "failover to an asynchronous standby, with loss",
		expects: "nothing stops, and every read model matches the events that survived",
		reach:   reachServer, weight: 2, least: 300 * time.Millisecond, most: 2 * time.Second,
		alone: 800 * time.Millisecond, own: true,
		strike: (*strike).loseServer,
		check:  (*strike).somethingLost,
	},
	{
		name:    "a backend killed under asynchronous commits",
		expects: "PostgreSQL recovers without some appends, and every read model matches the events that survived",
		reach:   reachServer, weight: 2, least: 300 * time.Millisecond, most: time.Second,
		alone: 800 * time.Millisecond, own: true,
		strike: (*strike).loseCommits,
		check:  (*strike).somethingLost,
	},
	{
		name:    "the poolers of a node killed and started again",
		expects: "the node continues through the new ones",
		reach:   reachData, weight: 2, most: time.Second, own: true,
		strike: func(s *strike) error {
			if len(s.poolers) == 0 {
				s.t.Log(pgtest.ErrNoPgBouncer)
			}
			s.node = s.nodes[pooled]
			s.victim = s.node.current()
			defer s.hit(s.victim, "poolers killed")()
			return s.restartPoolers(context.WithoutCancel(s.ctx))
		},
		check: (*strike).rejoined,
	},
	{
		name:    "connections reach a standby that lags",
		expects: "events that are read there are not taken for complete",
		weight:  3, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second, own: true,
		strike: (*strike).readStandby,
		check:  (*strike).rejoined,
	},
}

// somethingLost verifies that the fault lost commits.
func (s *strike) somethingLost() error {
	all, err := s.histories()
	if err != nil {
		return err
	}
	if _, lost := s.missing(s.writers, all); lost == 0 {
		return errors.New("no event was lost")
	}
	return nil
}

// quiesce waits until every event is handled and none is parked, while the writers pause. It makes the dependency of
// all later poison events available: their failures would be committed synchronously, together with everything before
// them.
func (s *strike) quiesce() error {
	if _, err := s.caughtUp(30 * time.Second); err != nil {
		return err
	}
	if err := s.updateDependency(s.ctx, "available = greatest(head, 1000000000)", tenants...); err != nil {
		return err
	}
	return until(s.ctx, 30*time.Second, "all dead letters are replayed", func() bool {
		left, err := s.unfinished(s.ctx, s.admin)
		return err == nil && len(left) == 0
	})
}

// fromQuiet calls begin while the writers pause. Where this is the only fault, it waits before until everything is
// handled, and holds the handlers afterwards, so that later events wait in memory. Otherwise it does that at random.
func (s *strike) fromQuiet(begin func() error) (release func(), err error) {
	defer s.writers.pause()()
	if s.alone {
		if err := s.quiesce(); err != nil {
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

// loseServer lets the standby lag, kills the primary, and promotes the standby.
func (s *strike) loseServer() error {
	defer s.hitAll("failover")()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), time.Minute)
	defer cancel()
	lost := func() {}
	release, err := s.fromQuiet(func() error {
		lost = s.lose()
		return s.detach(ctx)
	})
	if err != nil {
		return err
	}
	s.wait(s.lasts)
	over := s.outage()
	err = s.failOver(ctx, lost, func() {
		over()
		release()
	})
	return errors.Join(err, s.resolveLost(), s.reopen())
}

// loseCommits makes commits asynchronous and kills a backend.
func (s *strike) loseCommits() error {
	defer s.hitAll("crash")()
	lost := func() {}
	defer s.writers.plain.Store(false)
	release, err := s.fromQuiet(func() error {
		lost = s.lose()
		s.writers.plain.Store(true)
		return s.asyncCommits()
	})
	if err != nil {
		return errors.Join(err, s.syncCommits())
	}
	s.wait(s.lasts)
	over := s.outage()
	err = s.server().CrashBackend(context.WithoutCancel(s.ctx))
	over()
	release()
	lost()
	return errors.Join(err, s.syncCommits(), s.resolveLost(), s.reopen())
}

// asyncCommits writes everything to the disk and makes later commits asynchronous.
func (s *strike) asyncCommits() error {
	return errors.Join(s.exec("alter system set synchronous_commit = off"),
		s.exec("alter system set bgwriter_lru_maxpages = 0"),
		s.exec("select pg_reload_conf()"), s.exec("checkpoint"), s.server().HoldWAL(s.ctx))
}

// syncCommits undoes asyncCommits.
func (s *strike) syncCommits() error {
	return errors.Join(s.exec("alter system reset all"), s.exec("select pg_reload_conf()"))
}

// readStandby pauses the replay of the standby and lets connections of a node reach it, one after another. Then they
// reach the primary again. The node's pool does not ask for the primary meanwhile.
func (s *strike) readStandby() error {
	standby := s.standby.Load()
	if standby == nil { // during a failover
		return nil
	}
	defer s.hit(s.victim, "connected to the standby")()
	before := s.victim.reported("any server")
	onStandby := func(sql string) error { return execOnce(s.ctx, standby.DSN("postgres"), sql) }
	if err := onStandby("select pg_wal_replay_pause()"); err != nil {
		return s.ifAlone(err)
	}
	begin := func() error {
		return errors.Join(s.victim.order(orderAvoid+" "+s.link(s.server()).address), s.endConnections(s.server(), 10))
	}
	var err error
	if s.alone {
		err = s.readAfter(begin)
		if err == nil && s.victim.reported("any server") == before {
			err = fmt.Errorf("no connection of %s reached the standby", s.node.name)
		}
	} else {
		release := hold(s.node)
		s.wait(s.lasts / 4)
		err = begin()
		release()
		s.wait(s.lasts / 2)
	}
	err = errors.Join(err, s.victim.order(orderAvoid))
	for end := time.Now().Add(s.lasts / 4); err == nil && time.Now().Before(end); {
		s.wait(time.Duration(50+s.rnd.IntN(200)) * time.Millisecond)
		err = s.endConnections(standby, 1)
	}
	s.link(standby).endAll()
	return s.ifAlone(errors.Join(err, onStandby("select pg_wal_replay_resume()")))
}

// readAfter lets the projections of the victim read settled events again after begin. It pauses them, lets events
// settle, holds the handlers of the node, and resumes the projections: what they read before begin waits in memory.
// Nothing is appended meanwhile, so that no lock scan meets the fault before a read does.
func (s *strike) readAfter(begin func() error) error {
	all, err := s.leases()
	if err != nil {
		return err
	}
	set := func(desired engine.DesiredState) (err error) {
		for _, l := range all {
			if l.Owner == s.victim.identity() && l.Name != deadly {
				err = errors.Join(err, control.On(s.store.Engine()).SetDesiredState(s.ctx,
					projection.ID{Tenant: l.Tenant, Name: l.Name}, desired))
			}
		}
		return err
	}
	s.writers.plain.Store(true) // no append is rolled back, and leaves a gap
	defer s.writers.plain.Store(false)
	s.wait(500 * time.Millisecond)
	if err := set(engine.WantPause); err != nil {
		return err
	}
	s.wait(time.Second)
	defer s.writers.pause()()
	s.wait(500 * time.Millisecond) // the feeds settle everything
	release := hold(s.node)
	defer release()
	if err := errors.Join(set(engine.WantRun), s.shared()); err != nil {
		return err
	}
	err = begin()
	s.wait(300 * time.Millisecond) // the node notices that connections are lost
	release()
	s.wait(s.lasts / 2)
	return err
}

// link returns how the node's pool reaches a server.
func (s *strike) link(server *pgtest.Server) *link {
	return s.node.pool[slices.Index(s.addresses, server.Address())]
}

// endConnections ends some connections of the node's pool to a server.
func (s *strike) endConnections(server *pgtest.Server, n int) error {
	return execOnce(s.ctx, server.DSN(s.database),
		fmt.Sprintf(`select pg_terminate_backend(pid) from (select pid from pg_stat_activity a
		where datname = current_database() and application_name = '%s'
		and not exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory' and l.objsubid = 1) order by random() limit %d) victims`, s.node.name, n))
}
