package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

// primaryOnly refuses connections to a server that takes no writes, unless the configuration has a check of its own.
func primaryOnly(config *pgx.ConnConfig) {
	if config.ValidateConnect == nil {
		config.ValidateConnect = takesWrites
	}
}

// takesWrites returns an error if the session is read-only. The other hosts of the DSN are tried next.
func takesWrites(ctx context.Context, conn *pgconn.PgConn) error {
	result := conn.ExecParams(ctx, ping, nil, nil, nil, nil).Read()
	switch {
	case result.Err != nil:
		return result.Err
	case len(result.Rows) != 1:
		return fmt.Errorf("ask the server whether it takes writes: got %d rows, want 1", len(result.Rows))
	case string(result.Rows[0][0]) != "f":
		return fmt.Errorf("the server is a standby in recovery: %w", projection.ErrNotPrimary)
	case string(result.Rows[0][1]) != "f":
		return errReadOnly
	}
	return nil
}

// onePrimary returns an error if connections may go to several servers without a check that the server takes writes.
func onePrimary(config *pgx.ConnConfig) error {
	if config.ValidateConnect != nil {
		return nil
	}
	for _, other := range config.Fallbacks {
		if other.Host != config.Host || other.Port != config.Port {
			return fmt.Errorf("the pool connects to several hosts (%s:%d and %s:%d), of which some may be standbys: add target_session_attrs=read-write to its DSN",
				config.Host, config.Port, other.Host, other.Port)
		}
	}
	return nil
}

// closeStandby closes a connection if err shows that its server is a standby or takes no writes. The pool then opens another
// connection, which may go to the primary.
func closeStandby(ctx context.Context, conn *pgx.Conn, err error) {
	if errors.Is(err, projection.ErrNotPrimary) || pgerr.Is(err, pgerr.Standby, pgerr.ReadOnlyTransaction, pgerr.NotSupported) {
		closeHard(ctx, conn)
	}
}

// onConn runs fn on a connection of the pool, which is closed where it turns out to lead to a standby.
func (s *Store) onConn(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	err = fn(conn.Conn())
	closeStandby(ctx, conn.Conn(), err)
	return err
}

// inTx runs fn in a transaction on a connection of the pool and commits it.
func (s *Store) inTx(ctx context.Context, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	return s.onConn(ctx, func(conn *pgx.Conn) error { return pgx.BeginTxFunc(ctx, conn, options, fn) })
}
