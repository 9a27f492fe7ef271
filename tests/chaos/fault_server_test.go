package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

var serverFaults = []fault{
	{
		name:    "PostgreSQL killed and started again",
		expects: "no lease is taken, although all session locks are gone; everything continues soon",
		reach:   reachServer, weight: 2, most: 500 * time.Millisecond,
		strike: func(s *strike) error {
			defer s.outage()()
			err := s.server().Kill()
			if err == nil {
				s.wait(s.lasts)
			}
			return errors.Join(err, s.server().StartAgain(context.WithoutCancel(s.ctx)))
		},
	},
	{
		name:    "PostgreSQL restarted",
		expects: "no lease is taken, although all session locks are gone; everything continues soon",
		reach:   reachServer, weight: 2,
		strike: func(s *strike) error {
			defer s.outage()()
			return s.server().Restart(context.WithoutCancel(s.ctx), "fast")
		},
	},
	{
		name:    "PostgreSQL restarted, and a node reconnects late",
		expects: "its leases are not taken while its heartbeat is valid, although its session lock is gone",
		reach:   reachServer, // never in random schedules: another fault of the node would excuse a takeover
		least:   1200 * time.Millisecond, most: 1200 * time.Millisecond,
		strike: func(s *strike) error {
			late, until := s.busiest("").proxy, time.Now().Add(s.lasts)
			late.disconnect()
			over := s.outage()
			err := s.server().Restart(context.WithoutCancel(s.ctx), "fast")
			over()
			s.wait(time.Until(until))
			return errors.Join(err, late.heal())
		},
	},
	{
		name:    "database read-only",
		expects: "everything waits, and continues when writes are possible",
		reach:   reachServer, weight: 1, least: 500 * time.Millisecond, most: 2 * time.Second,
		strike: func(s *strike) error {
			defer s.outage()()
			if err := s.readOnly("on"); err != nil {
				return err
			}
			s.wait(s.lasts)
			return s.readOnly("off")
		},
	},
	{
		name:    "another program takes all connections",
		expects: "nodes that need another connection wait for it",
		reach:   reachServer, weight: 1, least: time.Second, most: 2 * time.Second,
		strike: (*strike).takeConnections,
	},
	{
		name:    "session connection ended",
		expects: "the node reconnects at once and listens; no lease is taken",
		weight:  3,
		poll:    5 * time.Minute, // a lost notification stops progress
		strike:  (*strike).endSession,
		check: func(s *strike) error {
			s.wait(leaseTime + heartbeat)
			return errors.Join(s.rejoined(), s.progress(), s.noneTaken())
		},
	},
	{
		name:    "session connection ended again and again",
		expects: "leases may move; the node keeps running and rejoins",
		weight:  2, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			defer s.hit(s.victim, "session ended")()
			return s.repeat(20, 300, func() error { return s.endSessions(s.node.name) })
		},
		check: (*strike).rejoined,
	},
	{
		name:    "random connections ended",
		expects: "interrupted work is done again",
		reach:   reachServer, weight: 3, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			defer s.hitAll("connections ended")()
			return s.repeat(30, 100, func() error {
				return s.exec(`select pg_terminate_backend(pid) from (select pid from pg_stat_activity
					where datname = current_database() and usename = $1 order by random() limit 3) victims`, app)
			})
		},
	},
}

// endSession ends the node's session connection, and waits for the next one. The other nodes rightly take the leases of
// a node that has no session lock for longer than they wait before they look again. In a schedule, in which the machine
// is busy and the node has other faults, that is recorded, and excuses a takeover.
func (s *strike) endSession() error {
	before, err := s.sessions()
	if err != nil {
		return err
	}
	ended := time.Now()
	if err := s.endSessions(s.node.name); err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(s.nodes), func(n *node) bool { return n == s.node })
	err = s.renewed(before, others...)
	if now := time.Now(); !s.alone && now.Sub(ended) > failureDetection/4 {
		s.mu.Lock()
		s.troubles = append(s.troubles, trouble{who: s.victim, what: "session renewed late", from: ended, to: now})
		s.mu.Unlock()
	}
	return s.ifAlone(err)
}

// endSessions ends the session connections of the nodes with a name like pattern. They are those that hold a session
// lock.
func (c *cluster) endSessions(pattern string) error {
	return c.exec(`select pg_terminate_backend(a.pid) from pg_stat_activity a join pg_locks l using (pid)
		where a.datname = current_database() and a.application_name like $1 and l.locktype = 'advisory' and l.objsubid = 1`, pattern)
}

// readOnly makes the database read-only, or not, for all users but the superuser.
func (s *strike) readOnly(value string) error {
	if err := s.exec(fmt.Sprintf("alter database %s set default_transaction_read_only = %s", s.database,
		value)); err != nil {
		return err
	}
	return s.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and usename = $1", app)
}

// takeConnections takes all free connections, also those of the nodes' sessions, which it ends, and closes them
// afterwards.
func (s *strike) takeConnections() error {
	var taken []*pgx.Conn
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 10*time.Second)
		defer cancel()
		for _, conn := range taken {
			_ = conn.Close(ctx)
		}
	}()
	take := func() error {
		for len(taken) < maxConnections {
			conn, err := pgx.Connect(s.ctx, s.dsn(app, "application_name", "another program"))
			if err != nil {
				break // all are taken
			}
			taken = append(taken, conn)
		}
		return nil
	}
	_ = take()
	if err := s.endSessions("n%"); err != nil {
		return err
	}
	return s.repeat(20, 1, take)
}
