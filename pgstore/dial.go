package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dial opens a connection outside the pool, to dsn or, if that is empty, as the pool does. The pool's hooks set it up:
// AfterConnect, PrepareConn and BeforeAcquire.
func (s *Store) dial(ctx context.Context, dsn string) (*pgx.Conn, error) {
	pool := s.pool.Config()
	config := pool.ConnConfig
	if dsn != "" {
		var err error
		if config, err = pgx.ParseConfig(dsn); err != nil {
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

// runHooks runs the hooks that the pool runs for a new connection and for its first use.
func runHooks(ctx context.Context, pool *pgxpool.Config, conn *pgx.Conn) error {
	if pool.AfterConnect != nil {
		if err := pool.AfterConnect(ctx, conn); err != nil {
			return fmt.Errorf("AfterConnect: %w", err)
		}
	}
	prepare := pool.PrepareConn
	//lint:ignore SA1019 pools of hosts may still have it
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
