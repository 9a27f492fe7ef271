package chaos_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

var scenarios = map[protection]scenario{
	fence: {
		finds: kindDoubled, times: times{Timeout: time.Minute},
		strike: (*strike).overtaken,
	},
	raisingFence: {
		finds: kindDoubled, times: times{Timeout: time.Minute},
		strike: (*strike).overtaken,
	},
	serverClock: {
		finds: kindStolen,
		strike: func(s *strike) error {
			s.wait(1500 * time.Millisecond) // the node checks three times for free leases
			return nil
		},
	},
	settledMark: {
		finds: kindLost, fleet: true,
		strike: func(s *strike) error {
			return s.appendOpen(func(ctx context.Context, tx pgx.Tx) error {
				s.wait(1500 * time.Millisecond) // others append after it
				return tx.Commit(ctx)
			})
		},
	},
	faultClasses: {
		finds: kindParked, fleet: true,
		strike: func(s *strike) error {
			return s.whileLocked("public.applied in exclusive mode", 10*time.Second, func() error {
				s.wait(2500 * time.Millisecond) // audit's handler waits for 1.5 s
				return nil
			})
		},
	},
	listening: {
		finds: kindLagging, fleet: true,
		times:  times{Poll: 5 * time.Minute}, // events without a notification are not found
		strike: (*strike).renewSessions,
	},
	passedEvents: {
		finds:  kindDoubled,
		strike: (*strike).splitUneven,
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

// overtaken freezes the node in a handler until other nodes have handled the same events.
func (s *strike) overtaken() error { return s.unendedZombie(s.progress) }

// sessions returns the backends that hold a session lock, by node.
func (s *strike) sessions() (map[string]uint32, error) {
	type session struct {
		Node string
		PID  uint32
	}
	found, err := rows(s.cluster, pgx.RowToStructByPos[session],
		`select a.application_name, a.pid from pg_stat_activity a join pg_locks l using (pid)
		where a.datname = current_database() and l.locktype = 'advisory' and l.objsubid = 1`)
	all := make(map[string]uint32)
	for _, one := range found {
		all[one.Node] = one.PID
	}
	return all, err
}

// renewed waits until all nodes that had session connections before have new ones, except some.
func (s *strike) renewed(before map[string]uint32, except ...*node) error {
	return until(s.ctx, 20*time.Second, "nodes have new session connections", func() bool {
		now, err := s.sessions()
		return err == nil && !slices.ContainsFunc(s.nodes, func(n *node) bool {
			had := before[n.name]
			return had != 0 && !slices.Contains(except, n) && (now[n.name] == 0 || now[n.name] == had)
		})
	})
}

// renewSessions ends all session connections while the writers pause. When the nodes have new ones, the writers append
// events that only notifications announce.
func (s *strike) renewSessions() error {
	before, err := s.sessions()
	if err != nil {
		return err
	}
	resume := s.writers.pause()
	_, err = s.caughtUp(30 * time.Second)
	if err == nil {
		err = errors.Join(s.endSessions("n%"), s.renewed(before))
		s.wait(500 * time.Millisecond) // each node polls once after it has reconnected
	}
	resume()
	s.wait(1500 * time.Millisecond)
	return err
}

// lateBack restarts the server, and lets the node reconnect after the others, long before its lease ends.
func (s *strike) lateBack() error {
	before, err := s.sessions()
	if err != nil {
		return err
	}
	over := s.outage()
	err = s.server().Kill()
	s.node.proxy.disconnect()
	err = errors.Join(err, s.server().StartAgain(context.WithoutCancel(s.ctx)))
	over()
	if err == nil {
		err = s.renewed(before, s.node)
		s.wait(2 * time.Second) // the others check it twice
	}
	return errors.Join(err, s.node.proxy.heal(), s.renewed(before))
}
