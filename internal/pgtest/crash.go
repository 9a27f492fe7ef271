package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// AsyncCommits returns settings with which commits are reported before they are written. Further settings are added to
// them, and win. A crash alone loses little of it, because the WAL writer passes each full page to the operating system:
// see HoldWAL.
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

// HoldWAL stops the server's WAL writer, so that asynchronous commits stay in memory until a synchronous commit, a
// checkpoint or a full wal_buffers writes them. A crash (CrashBackend, Kill, Restart "immediate") loses what is still in
// memory and ends the hold; so do an orderly Restart and Stop, which lose nothing.
func (s *Server) HoldWAL(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pid int
	err := connected(ctx, s.DSN("postgres"), func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select pid from pg_stat_activity where backend_type = 'walwriter'").Scan(&pid)
	})
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGSTOP)
	}
	if err != nil {
		return fmt.Errorf("stop the WAL writer: %w", err)
	}
	s.walWriter = pid
	return nil
}

// endHold lets the WAL writer go on, or ends it where the server crashed.
func (s *Server) endHold(sig syscall.Signal) {
	if s.walWriter != 0 {
		_ = syscall.Kill(s.walWriter, sig) // it may be gone
		s.walWriter = 0
	}
}

// CrashBackend kills one backend (SIGKILL), upon which PostgreSQL ends all others and recovers as after a crash, under
// the same postmaster. It returns when the server accepts connections again.
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
		// The crash has begun when it ends others' sessions.
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
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if err = s.exec(ctx, "select 1"); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("recover from the crash of a backend: %w", err)
		case <-ticker.C:
		}
	}
}
