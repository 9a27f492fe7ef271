package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// AsyncCommits returns settings with which commits are reported before they are written, and nothing writes them soon.
// A crash of the server then loses the commits of up to 10 s, unless a synchronous commit or a checkpoint came after
// them. Further settings are added to it, and win.
func AsyncCommits(more map[string]string) map[string]string {
	settings := map[string]string{
		"synchronous_commit":     "off",
		"wal_writer_delay":       "10s",
		"wal_writer_flush_after": "1GB",
		"bgwriter_lru_maxpages":  "0",
		"checkpoint_timeout":     "1h",
		"autovacuum":             "off",
	}
	maps.Copy(settings, more)
	return settings
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
