package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dial opens a connection outside the pool, to dsn or, where that is empty, to where and as the pool does. It is set up as the
// pool's are: by AfterConnect, and by what runs before the pool lends a connection.
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

// runHooks does to a connection what the pool does to one that is new and lent for the first time.
func runHooks(ctx context.Context, pool *pgxpool.Config, conn *pgx.Conn) error {
	if pool.AfterConnect != nil {
		if err := pool.AfterConnect(ctx, conn); err != nil {
			return fmt.Errorf("AfterConnect: %w", err)
		}
	}
	accepted := true
	var err error
	switch {
	case pool.PrepareConn != nil:
		accepted, err = pool.PrepareConn(ctx, conn)
	case pool.BeforeAcquire != nil:
		accepted = pool.BeforeAcquire(ctx, conn)
	}
	if err == nil && !accepted {
		err = errors.New("the pool's hook refused the connection")
	}
	return err
}
