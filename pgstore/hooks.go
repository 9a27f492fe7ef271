package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/session"
)

const (
	// hookConnections limits the connections of Options.HookDSN. A node runs at most 4 hooks at once, and ends sessions
	// of others meanwhile.
	hookConnections = 5
	// hookConnect is how long a connection may take to open at most.
	hookConnect = 5 * time.Second
	// hookIdle is about how long such a connection is kept after a hook.
	hookIdle = time.Second
)

// lender is where the transaction of a batch or hook gets its connection.
type lender struct {
	pool *pgxpool.Pool
	// lent reports whether a pooler gives each transaction another session.
	lent bool
}

func (b *batchTx) lender() lender {
	if b.opts.hook && b.store.hooks != nil {
		return lender{pool: b.store.hooks}
	}
	return lender{b.store.pool, b.store.server.pooling.Lends}
}

// newHooks returns the pool of Options.HookDSN. It has no connection while no hook runs.
func (db *database) newHooks(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(db.opts.HookDSN)
	if err != nil {
		return nil, err
	}
	primaryOnly(config.ConnConfig)
	if limit := config.ConnConfig.ConnectTimeout; limit == 0 || limit > hookConnect {
		config.ConnConfig.ConnectTimeout = hookConnect
	}
	config.MaxConns, config.MinConns, config.MinIdleConns = hookConnections, 0, 0
	config.MaxConnIdleTime, config.HealthCheckPeriod = hookIdle, hookIdle
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		pooling, err := session.FindPooling(ctx, conn,
			func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config.ConnConfig) })
		switch {
		case err != nil:
			return fmt.Errorf("detect a pooler: %w", err)
		case pooling.Lends:
			return errHooksPooled
		}
		if err := db.sameDatabase(ctx, conn); err != nil {
			return err
		}
		return runHooks(ctx, db.pool.Config(), conn)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

var (
	errHooksPooled    = errors.New("Options.HookDSN leads to a pooler in transaction mode: let it lead to the server itself")
	errHooksElsewhere = errors.New("Options.HookDSN leads to another database than the store's")
)

// identity identifies a database. Its copies have the incarnation of the original.
type identity struct{ incarnation, database int64 }

func (db *database) identity(ctx context.Context, q querier) (i identity, err error) {
	err = q.QueryRow(ctx, db.control.sql("database_identity"), pgx.QueryExecModeExec).Scan(&i.incarnation, &i.database)
	return i, err
}

// sameDatabase returns an error unless conn leads to the database of the pool. Otherwise a hook could change another
// store, and end an operation of that.
func (db *database) sameDatabase(ctx context.Context, conn *pgx.Conn) error {
	var pool identity
	err := db.inIncarnation(ctx, func() (err error) {
		pool, err = db.identity(ctx, db.pool)
		return err
	})
	if err != nil {
		return fmt.Errorf("identify the database: %w", err)
	}
	hooks, err := db.identity(ctx, conn)
	if err != nil {
		return fmt.Errorf("identify the database of Options.HookDSN: %w", err)
	}
	if hooks != pool {
		return errHooksElsewhere
	}
	return nil
}

// notAllowed adds to err where the hook can have the right that it lacks. Other errors are returned unchanged.
func (db *database) notAllowed(err error) error {
	if !pgerr.Is(err, pgerr.InsufficientPrivilege) || db.hooks != nil {
		return err
	}
	return fmt.Errorf("%w: hooks run as the role of the nodes: if that role should not have this right, use Options.HookDSN or Runtime.Operate (docs/changing.md, \"Hooks and roles\")", err)
}
