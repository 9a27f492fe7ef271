package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/pgtest"
)

// restoreGuest takes the guest back to a backup, as docs/restoring.md says. Its projections continue, or are reset to
// where they were at some time. public.applied is not in the schema of the guest, so their rows of lost events, or
// above that position, are deleted. pass waits while the guest's writers append.
func (s *strike) restoreGuest(w *writers, pass func()) error {
	programs, err := pgtest.Find()
	if err != nil {
		s.t.Log(err)
		return nil
	}
	dump := filepath.Join(s.t.TempDir(), "guest.sql")
	err = s.program(filepath.Join(programs, "pg_dump"), "--schema=millrace_"+guest, "--file="+dump)
	if err != nil {
		return err
	}
	pass()
	resume, err := pauseGuest(w)
	defer resume()
	if err != nil {
		return err
	}
	a, err := admin.New(s.store)
	if err != nil {
		return err
	}
	err = s.retried(func(ctx context.Context) error { return a.PauseTenant(ctx, guest) })
	if err != nil {
		return err
	}
	defer s.restoring()()
	err = s.program(filepath.Join(programs, "psql"), "--no-psqlrc", "--quiet", "--single-transaction",
		"--set=ON_ERROR_STOP=1",
		"--command=drop schema millrace_"+guest+" cascade", "--file="+dump)
	if err != nil {
		return err
	}
	if err := s.recoverGuest(a); err != nil {
		return err
	}
	if err := s.forget(w); err != nil {
		return err
	}
	return s.retried(func(ctx context.Context) error { return a.ResumeTenant(ctx, guest) })
}

// restoring records that the guest is restored until over is called.
func (s *strike) restoring() (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.restores)
	s.restores = append(s.restores, trouble{from: time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.restores[at].to = time.Now()
	}
}

// program runs a program of PostgreSQL, and repeats it while it fails, as it does during an outage.
func (s *strike) program(path string, args ...string) error {
	var out []byte
	var failed error
	err := until(s.ctx, 30*time.Second, filepath.Base(path)+" succeeds", func() bool {
		out, failed = exec.CommandContext(s.ctx, path,
			append(args, "--dbname="+s.server().DSN(s.database))...).CombinedOutput()
		return failed == nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w: %s", err, failed, out)
	}
	return nil
}

// recoverGuest lets each projection continue, or resets it to a position that all of its partitions have passed. The
// projection deadly would end processes again.
func (s *strike) recoverGuest(a *admin.Admin) error {
	var done admin.RecoverResult
	options := admin.RecoverOptions{Reset: make(map[string]int64)}
	err := until(s.ctx, 30*time.Second, "nothing of the guest runs", func() bool {
		all, err := s.leasesOf(guest)
		if err != nil || slices.ContainsFunc(all, func(l lease) bool { return l.Owner != "" }) {
			return false
		}
		lowest := make(map[string]int64)
		for _, l := range all {
			at, found := lowest[l.Name]
			if !found || l.Checkpoint < at {
				lowest[l.Name] = min(l.Checkpoint, l.Head)
			}
		}
		for name, at := range lowest {
			if name == deadly || s.rnd.IntN(2) == 0 {
				options.Continue = append(options.Continue, name)
			} else {
				options.Reset[name] = s.rnd.Int64N(at + 1)
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	err = s.retried(func(ctx context.Context) (err error) {
		done, err = a.RecoverTenant(ctx, guest, options)
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range done.Projections {
		up, reset := options.Reset[p.ID.Name]
		if !reset {
			up = done.End
		}
		err = errors.Join(err,
			s.exec(`delete from public.applied a where tenant = $1 and projection = $2 and (position > $3
			or not exists (select from `+eventsOf(guest)+` e where e.global_seq = a.position and coalesce(e.body->>'token', '') = a.token))`,
				guest, p.ID.Name, up))
	}
	return errors.Join(err, s.countAnew())
}

// countAnew lets the counts of the guest's dead letters and commands begin at 0: a recovery deletes dead letters, and
// resolves others.
func (s *strike) countAnew() (err error) {
	const ofGuest = " where projection_id in (select id from millrace.projections where tenant = $1)"
	for _, sql := range []string{
		"update millrace.commands set done = 0, failed = 0" + ofGuest,
		"update millrace.dead_letters set replays = 0" + ofGuest,
		"delete from millrace.dead_letters" + ofGuest + " and state not in ('parked', 'replaying')",
	} {
		err = errors.Join(err, s.exec(sql, guest))
	}
	return err
}

// forget removes the acknowledgements of events that the guest lost.
func (s *strike) forget(w *writers) error {
	type kept struct {
		Position int64
		Token    string
	}
	left, err := rows(s.cluster, pgx.RowToStructByPos[kept], "select global_seq, coalesce(body->>'token', '') from "+
		eventsOf(guest))
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.acknowledged[guest])
	w.acknowledged[guest] = slices.DeleteFunc(w.acknowledged[guest], func(a acknowledgement) bool {
		return !slices.Contains(left, kept{a.position, a.token})
	})
	if s.alone && len(w.acknowledged[guest]) == before {
		return errors.New("the guest lost no event")
	}
	return nil
}
