package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// detachPatience is how long a standby has to end its receiver by itself.
const detachPatience = time.Second

// StandbyOptions describe a standby. With the zero value it follows asynchronously and without a delay.
type StandbyOptions struct {
	// Settings are written to the standby's postgresql.conf and win over the primary's, which it inherits. For example,
	// recovery_min_apply_delay makes what the standby shows older than what it has received.
	Settings map[string]string

	// Name is the standby's application_name in the primary's pg_stat_replication. Default "standby".
	Name string

	// Sync makes the primary wait for this standby at each commit, and for no other. The primary's commits then hang
	// while the standby is away.
	Sync bool

	// Port is the standby's port on 127.0.0.1. Default 0: a free one is chosen.
	Port int
}

// Standby makes a hot standby of this server and returns when it accepts (read-only) connections. It is a server of
// its own: the caller must call its Stop, before that of this one. It is made without pg_basebackup, because some
// packages of binaries lack that program. A server with tablespaces is refused.
func (s *Server) Standby(ctx context.Context, options StandbyOptions) (*Server, error) {
	if options.Name == "" {
		options.Name = "standby"
	}
	settings := map[string]string{
		"hot_standby":               "on",
		"primary_conninfo":          s.conninfo(options.Name),
		"recovery_min_apply_delay":  "0",
		"synchronous_standby_names": "",
		// How soon a standby connects again.
		"wal_retrieve_retry_interval": "50ms",
	}
	maps.Copy(settings, options.Settings)
	server := Options{BinDir: s.bin, NoTCP: s.noTCP, InMemory: s.inMemory, Settings: settings, Port: options.Port}
	standby, err := start(ctx, server, func(ctx context.Context, standby *Server) error {
		standby.upstream = settings["primary_conninfo"]
		return s.backup(ctx, standby.folder)
	})
	if err != nil {
		return nil, fmt.Errorf("make a standby: %w", err)
	}
	if options.Sync {
		if err := s.waitForStandby(ctx, options.Name); err != nil {
			return nil, errors.Join(fmt.Errorf("make a synchronous standby: %w", err), standby.Stop(ctx))
		}
	}
	return standby, nil
}

// conninfo is how a standby connects to this server.
func (s *Server) conninfo(name string) string {
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name)
	return fmt.Sprintf("host=%s port=%d user=postgres application_name='%s'", s.socket(), s.port, quoted)
}

// waitForStandby makes commits wait for a standby, and returns when they do.
func (s *Server) waitForStandby(ctx context.Context, name string) error {
	quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	if err := s.reconfigure(ctx, map[string]string{"synchronous_standby_names": quoted}); err != nil {
		return err
	}
	return s.awaitTrue(ctx, "the standby is synchronous",
		"select exists (select from pg_stat_replication where application_name = $1 and sync_state = 'sync')", name)
}

// Promote makes a primary of a standby, whatever became of its primary, and returns when it accepts writes. What it had
// received is kept, also where its replay was paused or delayed. What it had not received is lost.
func (s *Server) Promote(ctx context.Context) error {
	if err := s.exec(ctx, "select pg_promote(wait => false)"); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	return s.awaitTrue(ctx, "the standby is promoted", "select not pg_is_in_recovery()")
}

// Detach cuts a standby off its primary, and returns when it receives nothing any more. What the primary commits from
// then on is lost when the standby is promoted.
func (s *Server) Detach(ctx context.Context) error {
	if err := s.reconfigure(ctx, map[string]string{"primary_conninfo": ""}); err != nil {
		return fmt.Errorf("detach the standby: %w", err)
	}
	patience := time.Now().Add(detachPatience)
	return s.await(ctx, "the standby receives nothing", func(conn *pgx.Conn) (bool, error) {
		var receiver int
		err := conn.QueryRow(ctx, "select pid from pg_stat_wal_receiver").Scan(&receiver)
		if errors.Is(err, pgx.ErrNoRows) {
			return true, nil
		}
		if err == nil && time.Now().After(patience) { // replay is paused or delayed, and ends no receiver
			if process, err := os.FindProcess(receiver); err == nil {
				_ = process.Signal(syscall.SIGTERM)
			}
		}
		return false, err
	})
}

// Attach undoes Detach, and returns when the standby receives again what its primary writes.
func (s *Server) Attach(ctx context.Context) error {
	if err := s.reconfigure(ctx, map[string]string{"primary_conninfo": s.upstream}); err != nil {
		return fmt.Errorf("attach the standby: %w", err)
	}
	return s.awaitTrue(ctx, "the standby receives", "select exists (select from pg_stat_wal_receiver where status = 'streaming')")
}

// CatchUp returns when a standby of this server shows everything that was committed before the call.
func (s *Server) CatchUp(ctx context.Context, standby *Server) error {
	var end string
	err := connected(ctx, s.DSN("postgres"), func(conn *pgx.Conn) error {
		// An asynchronous commit is sent when a synchronous one after it has been written.
		if _, err := conn.Exec(ctx, "set synchronous_commit = local; select pg_logical_emit_message(true, 'pgtest', '')"); err != nil {
			return err
		}
		return conn.QueryRow(ctx, "select pg_current_wal_flush_lsn()::text").Scan(&end)
	})
	if err != nil {
		return fmt.Errorf("wait for the standby: %w", err)
	}
	return standby.awaitTrue(ctx, "the standby has caught up", "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", end)
}

// HostsDSN returns how to connect to a database on the first of some addresses, each host:port, that accepts it, as a
// URL. sessionAttrs is the DSN's target_session_attrs, such as read-write or any; empty: it is not given.
func HostsDSN(database, sessionAttrs string, addresses ...string) string {
	query := url.Values{"sslmode": {"disable"}}
	if sessionAttrs != "" {
		query.Set("target_session_attrs", sessionAttrs)
	}
	// Package url refuses several hosts with ports.
	return "postgres://postgres@" + strings.Join(addresses, ",") + "/" + url.PathEscape(database) + "?" + query.Encode()
}

// reconfigure changes settings of a running server.
func (s *Server) reconfigure(ctx context.Context, settings map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.configure(settings); err != nil {
		return err
	}
	return s.exec(ctx, "select pg_reload_conf()")
}

func (s *Server) exec(ctx context.Context, sql string) error {
	return connected(ctx, s.DSN("postgres"), func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// awaitTrue asks the server until a query returns true.
func (s *Server) awaitTrue(ctx context.Context, what, sql string, args ...any) error {
	return s.await(ctx, what, func(conn *pgx.Conn) (holds bool, err error) {
		err = conn.QueryRow(ctx, sql, args...).Scan(&holds)
		return holds, err
	})
}

// await asks the server until a condition holds.
func (s *Server) await(ctx context.Context, what string, condition func(*pgx.Conn) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := connected(ctx, s.DSN("postgres"), func(conn *pgx.Conn) error {
		ticker := time.NewTicker(pollEvery)
		defer ticker.Stop()
		for {
			if holds, err := condition(conn); err != nil || holds {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-ticker.C:
			}
		}
	})
	if err != nil {
		return fmt.Errorf("wait until %s on port %d: %w", what, s.port, err)
	}
	return nil
}
