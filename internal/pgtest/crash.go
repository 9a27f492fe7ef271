package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// AsyncCommits returns settings for asynchronous commits, and the settings in more, which take precedence. A crash
// alone loses few commits, because the WAL writer passes each full page to the operating system. See HoldWAL.
func AsyncCommits(more map[string]string) map[string]string {
	settings := map[string]string{
		"synchronous_commit":    "off",
		"wal_buffers":           "16MB",
		"bgwriter_lru_maxpages": "0",
		"checkpoint_timeout":    "1h",
		"autovacuum":            "off",
	}
	maps.Copy(settings, more)
	return settings
}

// HoldWAL freezes the server's WAL writer. Asynchronous commits then stay in memory until a synchronous commit, a
// checkpoint or a full wal_buffers writes them. A crash (CrashBackend, Kill, Restart "immediate") loses those in memory
// and ends the hold. An orderly Restart or Stop ends it without loss.
func (s *Server) HoldWAL(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pid int
	// A server accepts connections before its WAL writer has started.
	err := s.await(ctx, "the WAL writer has started", func(conn *pgx.Conn) (bool, error) {
		err := conn.QueryRow(ctx, "select pid from pg_stat_activity where backend_type = 'walwriter'").Scan(&pid)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("stop the WAL writer: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop the WAL writer: %w", err)
	}
	s.walWriter = pid
	return nil
}

// endHold continues the WAL writer, or kills it after a crash.
func (s *Server) endHold(sig syscall.Signal) {
	if s.walWriter != 0 {
		_ = syscall.Kill(s.walWriter, sig) // it may be gone
		s.walWriter = 0
	}
}

// CrashBackend kills one backend with SIGKILL. PostgreSQL then ends all others and recovers as after a crash, under the
// same postmaster. CrashBackend returns when the server accepts connections again.
func (s *Server) CrashBackend(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := connected(ctx, s.DSN("postgres"), func(witness *pgx.Conn) error {
		victim, err := pgx.Connect(ctx, s.DSN("postgres"))
		if err != nil {
			return err
		}
		defer victim.Close(context.WithoutCancel(ctx))
		process, err := os.FindProcess(int(victim.PgConn().PID()))
		if err != nil {
			return err
		}
		if err := process.Kill(); err != nil {
			return err
		}
		// The crash has begun when it ends other sessions.
		_, err = witness.Exec(ctx, "select pg_sleep(3600)")
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		s.endHold(syscall.SIGKILL)
		return nil
	})
	if err != nil {
		return fmt.Errorf("crash a backend: %w", err)
	}
	var last error
	if poll(ctx, func() (bool, error) {
		last = s.exec(ctx, "select 1")
		return last == nil, nil
	}) != nil {
		return fmt.Errorf("recover from the crash of a backend: %w", last)
	}
	return nil
}
