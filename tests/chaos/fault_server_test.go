package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

var serverFaults = []fault{
	{
		name:    "PostgreSQL killed and started again",
		expects: "nobody takes another's leases because all session locks went at once; everything goes on soon",
		reach:   reachServer, weight: 2, most: 500 * time.Millisecond,
		strike: func(s *strike) error {
			over := s.noNodes()
			defer over()
			err := s.server().Kill()
			if err == nil {
				s.wait(s.lasts)
			}
			return errors.Join(err, s.server().StartAgain(context.WithoutCancel(s.ctx)))
		},
		proves: (*strike).progress,
	},
	{
		name:    "PostgreSQL restarted",
		expects: "nobody takes another's leases because all session locks went at once; everything goes on soon",
		reach:   reachServer, weight: 2,
		strike: func(s *strike) error {
			over := s.noNodes()
			defer over()
			return s.server().Restart(context.WithoutCancel(s.ctx), "fast")
		},
		proves: (*strike).progress,
	},
	{
		name:    "PostgreSQL restarted, and a node comes back late",
		expects: "nobody takes what it owns while its heartbeat holds, though its session lock is gone",
		reach:   reachServer, // only where it is the only one: any other trouble of the node would excuse who takes
		least:   1200 * time.Millisecond, most: 1200 * time.Millisecond,
		strike: func(s *strike) error {
			late, until := s.busiest().proxy, time.Now().Add(s.lasts)
			late.cut()
			over := s.noNodes()
			err := s.server().Restart(context.WithoutCancel(s.ctx), "fast")
			over()
			s.wait(time.Until(until))
			return errors.Join(err, late.heal())
		},
		proves: (*strike).progress,
	},
	{
		name:    "database read-only for a while",
		expects: "everything waits, and goes on when it may write",
		reach:   reachServer, weight: 1, least: 500 * time.Millisecond, most: 2 * time.Second,
		strike: func(s *strike) error {
			over := s.noNodes()
			defer over()
			if err := s.readOnly("on"); err != nil {
				return err
			}
			s.wait(s.lasts)
			return s.readOnly("off")
		},
		proves: (*strike).progress,
	},
	{
		name:    "a stranger takes all connections",
		expects: "nodes that need another connection wait for it",
		reach:   reachServer, weight: 1, least: time.Second, most: 2 * time.Second,
		strike: (*strike).takeConnections,
		proves: (*strike).progress,
	},
	{
		name:    "the session connection is terminated",
		expects: "it is made again at once and listens, and nobody takes anything",
		weight:  3,
		poll:    5 * time.Minute, // so that what is not notified is not found
		strike:  func(s *strike) error { return s.endSession() },
		proves: func(s *strike) error {
			s.wait(leaseTime + heartbeat)
			return errors.Join(s.rejoined(10*time.Second), s.progress(), s.untaken())
		},
	},
	{
		name:    "the session connection is terminated again and again",
		expects: "leases may move; the node lives on and takes part again",
		weight:  2, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			if s.victim == nil {
				return nil
			}
			over := s.hit(s.victim, "session terminated")
			defer over()
			for end := time.Now().Add(s.lasts); time.Now().Before(end); {
				if err := s.endSession(); err != nil {
					return err
				}
				s.wait(time.Duration(20+s.rnd.IntN(300)) * time.Millisecond)
			}
			return nil
		},
		proves: func(s *strike) error { return s.rejoined(20 * time.Second) },
	},
	{
		name:    "sessions are terminated at random",
		expects: "their work is done again",
		reach:   reachServer, weight: 3, least: time.Second, most: 3 * time.Second, alone: 2 * time.Second,
		strike: func(s *strike) error {
			defer s.hitAll("sessions terminated")()
			for end := time.Now().Add(s.lasts); time.Now().Before(end); {
				err := s.exec(`select pg_terminate_backend(pid) from (select pid from pg_stat_activity
					where datname = current_database() and usename like $1 order by random() limit 3) victims`, appsPrefix)
				if err != nil {
					return err
				}
				s.wait(time.Duration(30+s.rnd.IntN(100)) * time.Millisecond)
			}
			return nil
		},
		proves: (*strike).progress,
	},
}

// endSession terminates the node's session connection: the one with a session lock.
func (s *strike) endSession() error {
	return s.exec(`select pg_terminate_backend(a.pid) from pg_stat_activity a where a.application_name = $1 and a.datname = current_database()
		and exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory' and l.objsubid = 1)`, s.node.name)
}

// readOnly makes the database read-only, or not, for everybody who is not the harness.
func (s *strike) readOnly(value string) error {
	if err := s.exec(fmt.Sprintf("alter database %s set default_transaction_read_only = %s", s.database, value)); err != nil {
		return err
	}
	return s.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and usename like $1", appsPrefix)
}

// takeConnections takes what connections there are, also those that it ends for it, and gives all of them back.
func (s *strike) takeConnections() error {
	dsn, err := s.dsn(app, "application_name", "stranger")
	if err != nil {
		return err
	}
	var taken []*pgx.Conn
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 10*time.Second)
		defer cancel()
		for _, conn := range taken {
			_ = conn.Close(ctx)
		}
	}()
	take := func() {
		for s.ctx.Err() == nil && len(taken) < maxConnections {
			conn, err := pgx.Connect(s.ctx, dsn)
			if err != nil {
				return
			}
			taken = append(taken, conn)
		}
	}
	take()
	if err := s.exec(`select pg_terminate_backend(a.pid) from pg_stat_activity a join pg_locks l using (pid)
		where a.datname = current_database() and a.usename like $1 and l.locktype = 'advisory' and l.objsubid = 1`, appsPrefix); err != nil {
		return err
	}
	for end := time.Now().Add(s.lasts); time.Now().Before(end); {
		take()
		s.wait(20 * time.Millisecond)
	}
	return nil
}
