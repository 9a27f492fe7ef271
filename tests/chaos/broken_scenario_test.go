package chaos_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// unendable lets nobody but a superuser end sessions, as many operators have it: a zombie's batch then lives on.
const unendable = "revoke execute on function pg_terminate_backend from public"

var scenarios = map[protection]scenario{
	fence: {
		finds: kindDoubled, prepare: unendable, times: times{Deadline: time.Minute},
		strike: (*strike).overtaken,
	},
	raisingFence: {
		finds: kindDoubled, prepare: unendable, times: times{Deadline: time.Minute},
		strike: (*strike).overtaken,
	},
	serverClock: {
		finds: kindStolen,
		strike: func(s *strike) error {
			s.wait(1500 * time.Millisecond) // three looks for free leases
			return nil
		},
	},
	settledMark: {
		finds: kindLost, fleet: true,
		strike: func(s *strike) error {
			return s.appendOpen(func(ctx context.Context, tx pgx.Tx) error {
				s.wait(1500 * time.Millisecond) // others append behind it
				return tx.Commit(ctx)
			})
		},
	},
	faultClasses: {
		finds: kindParked, fleet: true,
		strike: func(s *strike) error {
			tx, err := s.admin.Begin(s.ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(s.ctx)) }()
			if _, err = tx.Exec(s.ctx, "set local lock_timeout = 10000; lock table public.applied in exclusive mode"); err == nil {
				s.wait(2500 * time.Millisecond) // audit's handler waits for 1.5 s
			}
			return err
		},
	},
	listening: {
		finds: kindBehind, fleet: true,
		times:  times{Poll: 5 * time.Minute}, // so that what is not notified is not found
		strike: (*strike).renewSessions,
	},
	oneServerLife: {
		finds: kindForeign, own: true,
		strike: func(s *strike) error {
			s.lasts = 500 * time.Millisecond
			return s.loseCommits()
		},
	},
	seenLock: {
		finds: kindStolen, fleet: true,
		times:  times{Lease: 15 * time.Second},
		strike: (*strike).lateBack,
	},
}

// overtaken freezes the node with a batch in hand until others have handled the same events, and lets it go on at once.
func (s *strike) overtaken() error {
	before := s.victim.tells("stalled")
	if err := s.victim.order(orderStall); err != nil {
		return err
	}
	if err := until(s.ctx, 10*time.Second, "a handler stalls", func() bool { return s.victim.tells("stalled") > before }); err != nil {
		return err
	}
	err := s.freeze(func() error {
		return errors.Join(s.takenOver(deathLimit), s.progress(), s.victim.order(orderRelease))
	})
	return errors.Join(err, until(s.ctx, 20*time.Second, "the stalled handler returns", func() bool { return s.victim.tells("released") > before }))
}

// sessions are the backends that hold a session lock, by node.
func (s *strike) sessions() (map[string]uint32, error) {
	type session struct {
		Node string
		PID  uint32
	}
	found, err := rows(s.cluster, pgx.RowToStructByPos[session], `select a.application_name, a.pid from pg_stat_activity a join pg_locks l using (pid)
		where a.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 1`)
	all := make(map[string]uint32)
	for _, one := range found {
		all[one.Node] = one.PID
	}
	return all, err
}

// renewed waits until all nodes that had session connections before have others, beside some.
func (s *strike) renewed(before map[string]uint32, beside ...*node) error {
	return until(s.ctx, 20*time.Second, "nodes have new session connections", func() bool {
		now, err := s.sessions()
		return err == nil && !slices.ContainsFunc(s.nodes, func(n *node) bool {
			had := before[n.name]
			return had != 0 && !slices.Contains(beside, n) && (now[n.name] == 0 || now[n.name] == had)
		})
	})
}

// renewSessions lets every node make its session connection again while there is nothing to do, and then gives them work
// of which only notifications tell.
func (s *strike) renewSessions() error {
	err := func() error {
		resume := s.writers.pause()
		defer resume()
		if _, err := s.caughtUp(30 * time.Second); err != nil {
			return err
		}
		before, err := s.sessions()
		if err != nil {
			return err
		}
		err = s.exec(`select pg_terminate_backend(a.pid) from pg_stat_activity a join pg_locks l using (pid)
			where a.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 1`)
		if err != nil {
			return err
		}
		err = s.renewed(before)
		s.wait(500 * time.Millisecond) // whoever has a new one looks once, notified or not
		return err
	}()
	s.wait(1500 * time.Millisecond)
	return err
}

// lateBack restarts the server, and lets the node find it only when the others have, long before its lease ends.
func (s *strike) lateBack() error {
	before, err := s.sessions()
	if err != nil {
		return err
	}
	over := s.noNodes()
	err = s.server().Kill()
	s.node.proxy.cut()
	err = errors.Join(err, s.server().StartAgain(context.WithoutCancel(s.ctx)))
	over()
	if err == nil {
		err = s.renewed(before, s.node)
		s.wait(2 * time.Second) // who is back looks at the others twice
	}
	return errors.Join(err, s.node.proxy.heal(), s.renewed(before))
}
