package program

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// connectionsBeside are those that a program needs besides its writers': for the projections, for what it shows, and for
// what it is compared with.
const connectionsBeside = 12

// Connect makes a pool that has room for that many writers and all else that a program does.
func Connect(ctx context.Context, dsn string, writers int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	config.MaxConns = int32(writers + connectionsBeside)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return pool, nil
}

// PrivateServer is a server for one program, which keeps everybody else out. It flushes as one in production does, so that
// figures are not better than life.
func PrivateServer(writers int) pgtest.Options {
	return pgtest.Options{NoTCP: true, Settings: map[string]string{
		"fsync":           "on",
		"max_connections": strconv.Itoa(writers + connectionsBeside + 20),
	}}
}
