package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// dial opens a connection outside the pool, to dsn or, if that is empty, as the pool does. The pool's hooks set it up:
// AfterConnect, PrepareConn and BeforeAcquire.
func (db *database) dial(ctx context.Context, dsn string) (*pgx.Conn, error) {
	pool := db.pool.Config()
	config := pool.ConnConfig
	if dsn != "" {
		var err error
		config, err = pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		primaryOnly(config)
	} else if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := runHooks(ctx, pool, conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("set up a connection as the pool does: %w", err)
	}
	return conn, nil
}

// dialFresh is dial for a batch, within askTime. While the server has no connection left, it calls makePlace and tries
// again: a connection that was just closed counts until its process has ended.
func (db *database) dialFresh(ctx context.Context, makePlace func()) (conn *pgx.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err = backoff.Poll(ctx, askTime/100, askTime, func() (dialed bool, err error) {
		conn, err = db.dial(ctx, "")
		if pgerr.Is(err, pgerr.TooManyConnections) {
			makePlace()
			return false, nil
		}
		return true, err
	})
	return conn, err
}

// runHooks runs the hooks that the pool runs for a new connection and for its first use.
func runHooks(ctx context.Context, pool *pgxpool.Config, conn *pgx.Conn) error {
	if pool.AfterConnect != nil {
		if err := pool.AfterConnect(ctx, conn); err != nil {
			return fmt.Errorf("AfterConnect: %w", err)
		}
	}
	prepare := pool.PrepareConn
	//lint:ignore SA1019 the host's pool may still have it
	if before := pool.BeforeAcquire; prepare == nil && before != nil {
		prepare = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return before(ctx, conn), nil }
	}
	if prepare == nil {
		return nil
	}
	accepted, err := prepare(ctx, conn)
	if err == nil && !accepted {
		err = errors.New("the pool's hook refused the connection")
	}
	return err
}

// primaryOnly makes connections to a server that takes no writes fail, unless the configuration has a check of its own.
func primaryOnly(config *pgx.ConnConfig) {
	if config.ValidateConnect == nil {
		config.ValidateConnect = takesWrites
	}
}

// takesWrites returns an error if the session is read-only, or would misread what is written. The other hosts of the
// DSN are tried next. A role or a database may have got its settings after Open.
func takesWrites(ctx context.Context, conn *pgconn.PgConn) error {
	for _, required := range requiredSettings {
		// The server reports some settings by itself.
		if value := conn.ParameterStatus(required.name); value != "" && value != required.value && required.misreads {
			return required.differs(value)
		}
	}
	result := conn.ExecParams(ctx, queries.Text("ping"), nil, nil, nil, nil).Read()
	switch {
	case result.Err != nil:
		return result.Err
	case len(result.Rows) != 1:
		return fmt.Errorf("check whether the server takes writes: got %d rows, want 1", len(result.Rows))
	case string(result.Rows[0][0]) != "f":
		return fmt.Errorf("the server is a standby in recovery: %w", event.ErrNotPrimary)
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

// closeStandby closes a connection if err shows that its server is a standby or takes no writes. The pool then opens
// another connection, which may go to the primary.
func closeStandby(ctx context.Context, conn *pgx.Conn, err error) {
	if fromStandby(err) {
		closeHard(ctx, conn)
	}
}

func fromStandby(err error) bool {
	return errors.Is(err, event.ErrNotPrimary) ||
		pgerr.Is(err, pgerr.Standby, pgerr.ReadOnlyTransaction, pgerr.NotSupported)
}
