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

// detachPatience is how long Detach waits for the standby to end its receiver.
const detachPatience = time.Second

// StandbyOptions configure a standby. The zero value is an asynchronous standby without delay.
type StandbyOptions struct {
	// Settings are written to the standby's postgresql.conf and win over the primary's, which it inherits. An example
	// is recovery_min_apply_delay, which delays the replay.
	Settings map[string]string

	// Name is the standby's application_name in the primary's pg_stat_replication. Default "standby".
	Name string

	// Sync makes the primary wait at each commit for this standby alone. Commits block while the standby is down.
	Sync bool

	// Port is the standby's port on 127.0.0.1. Default 0: a free one is chosen.
	Port int
}

// Standby starts a hot standby of this server and returns when it accepts (read-only) connections. The caller must stop
// it before this server. It does not need pg_basebackup, which some packages lack. It refuses a server with
// tablespaces.
func (s *Server) Standby(ctx context.Context, options StandbyOptions) (*Server, error) {
	if options.Name == "" {
		options.Name = "standby"
	}
	settings := map[string]string{
		"hot_standby":               "on",
		"primary_conninfo":          s.conninfo(options.Name),
		"recovery_min_apply_delay":  "0",
		"synchronous_standby_names": "",
		// The delay before a standby reconnects.
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

// conninfo returns the connection string of a standby of this server.
func (s *Server) conninfo(name string) string {
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name)
	return fmt.Sprintf("host=%s port=%d user=postgres application_name='%s'", s.socket(), s.port, quoted)
}

// waitForStandby makes commits wait for a standby. It returns when they do.
func (s *Server) waitForStandby(ctx context.Context, name string) error {
	quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	if err := s.reconfigure(ctx, map[string]string{"synchronous_standby_names": quoted}); err != nil {
		return err
	}
	return s.awaitTrue(ctx, "the standby is synchronous",
		"select exists (select from pg_stat_replication where application_name = $1 and sync_state = 'sync')", name)
}

// Promote makes a standby a primary and returns when it accepts writes. It keeps everything that the standby has
// received, even if its replay was paused or delayed.
func (s *Server) Promote(ctx context.Context) error {
	if err := s.exec(ctx, "select pg_promote(wait => false)"); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	return s.awaitTrue(ctx, "the standby is promoted", "select not pg_is_in_recovery()")
}

// Detach disconnects a standby from its primary. Commits after Detach returns are lost if the standby is promoted.
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
		if err == nil && time.Now().After(patience) { // a paused or delayed replay does not end it
			if process, err := os.FindProcess(receiver); err == nil {
				_ = process.Signal(syscall.SIGTERM)
			}
		}
		return false, err
	})
}

// Attach undoes Detach. It returns when the standby receives WAL again.
func (s *Server) Attach(ctx context.Context) error {
	if err := s.reconfigure(ctx, map[string]string{"primary_conninfo": s.upstream}); err != nil {
		return fmt.Errorf("attach the standby: %w", err)
	}
	return s.awaitTrue(ctx, "the standby receives",
		"select exists (select from pg_stat_wal_receiver where status = 'streaming')")
}

// CatchUp returns when a standby of this server has replayed all commits before the call.
func (s *Server) CatchUp(ctx context.Context, standby *Server) error {
	var end string
	err := connected(ctx, s.DSN("postgres"), func(conn *pgx.Conn) error {
		// A synchronous commit sends the asynchronous ones before it.
		if _, err := conn.Exec(ctx,
			"set synchronous_commit = local; select pg_logical_emit_message(true, 'pgtest', '')"); err != nil {
			return err
		}
		return conn.QueryRow(ctx, "select pg_current_wal_flush_lsn()::text").Scan(&end)
	})
	if err != nil {
		return fmt.Errorf("wait for the standby: %w", err)
	}
	return standby.awaitTrue(ctx, "the standby has caught up", "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn",
		end)
}

// HostsDSN returns the URL of a database on several servers, of which the first that accepts the connection is used.
// Each address is host:port. sessionAttrs is target_session_attrs, such as read-write or any; it may be empty.
func HostsDSN(database, sessionAttrs string, addresses ...string) string {
	query := url.Values{"sslmode": {"disable"}}
	if sessionAttrs != "" {
		query.Set("target_session_attrs", sessionAttrs)
	}
	// Package url does not support several hosts with ports.
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

// awaitTrue waits until a query returns true.
func (s *Server) awaitTrue(ctx context.Context, what, sql string, args ...any) error {
	return s.await(ctx, what, func(conn *pgx.Conn) (holds bool, err error) {
		err = conn.QueryRow(ctx, sql, args...).Scan(&holds)
		return holds, err
	})
}

// await waits until a condition holds.
func (s *Server) await(ctx context.Context, what string, condition func(*pgx.Conn) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := connected(ctx, s.DSN("postgres"), func(conn *pgx.Conn) error {
		return poll(ctx, func() (bool, error) { return condition(conn) })
	})
	if err != nil {
		return fmt.Errorf("wait until %s on port %d: %w", what, s.port, err)
	}
	return nil
}
