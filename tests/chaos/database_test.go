package chaos_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/tests/kit"
)

// execOnce runs a statement over a connection of its own.
func execOnce(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// exec runs a statement as superuser, and retries it during an outage.
func (c *cluster) exec(sql string, args ...any) error {
	return c.retried(func(ctx context.Context) error {
		_, err := c.admin.Exec(ctx, sql, args...)
		return err
	})
}

// value reads one value as superuser, and retries during an outage.
func value[T any](c *cluster, sql string, args ...any) (v T, err error) {
	err = c.retried(func(ctx context.Context) error { return c.admin.QueryRow(ctx, sql, args...).Scan(&v) })
	return v, err
}

// rows reads rows as superuser, and retries during an outage.
func rows[T any](c *cluster, scan pgx.RowToFunc[T], sql string, args ...any) (all []T, err error) {
	err = c.retried(func(ctx context.Context) error {
		found, err := c.admin.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(found, scan)
		return err
	})
	return all, err
}

// retried calls do until the server is available.
func (c *cluster) retried(do func(ctx context.Context) error) error {
	limit, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	for {
		err := do(limit)
		if limit.Err() != nil || !isOutage(err) {
			return err
		}
		kit.Pass(limit, 30*time.Millisecond)
	}
}

// isOutage reports whether err comes from a server that is unavailable or refuses writes. The library classifies errors
// itself, but its checker must not rely on that.
func isOutage(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		class := refused.Code[:2]
		return class == "57" || class == "53" || class == "08" || refused.Code == "25006"
	}
	var network net.Error
	var connect *pgconn.ConnectError
	// an Open while the fault "database read-only" lasts
	if err != nil && strings.Contains(err.Error(), "default_transaction_read_only is") {
		return true
	}
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		pgconn.SafeToRetry(err)
}

// eventsOf is the quoted name of a tenant's events table.
func eventsOf(tenant string) string { return pgx.Identifier{"millrace_" + tenant, "events"}.Sanitize() }
