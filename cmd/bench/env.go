package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// databaseName is the database that each case creates, and removes when it ends.
	databaseName = "millrace_bench"
	// storeSchema holds the stores.
	storeSchema = "millrace"
	// handConnections are the connections of the handwritten code, the checks and the set-up.
	handConnections = 40
	// dropLimit limits the removal of the database.
	dropLimit = 10 * time.Minute
)

// tables are the handlers' tables, and the checkpoints of the handwritten code.
const tables = `
	create schema bench;
	create table bench.counts (contender text, type text, n bigint, primary key (contender, type)) with (fillfactor = 50);
	create table bench.checkpoint (contender text primary key, position bigint not null) with (fillfactor = 50);
	create table bench.applied (contender text, n int, primary key (contender, n));
	create table bench.totals (contender text, tenant int, projection int, n bigint not null, primary key (contender, tenant, projection)) with (fillfactor = 50);
	create table bench.marks (contender text, tenant int, projection int, position bigint not null, primary key (contender, tenant, projection)) with (fillfactor = 50)`

// env is the environment of a case. It has a database of its own or, for an embedded scenario, only a folder.
type env struct {
	// Pool is for the handwritten code, for checks and for the set-up. The stores have pools of their own.
	Pool *pgxpool.Pool
	// serverPID is the process of a server on this machine that was started for the benchmark, and 0 otherwise.
	serverPID int

	dsn      string
	cleanups []func(ctx context.Context) error
}

// newEnv creates the database. It fails if the database exists, and leaves nothing after an error.
func newEnv(ctx context.Context, serverDSN string, serverPID int) (_ *env, err error) {
	e := &env{serverPID: serverPID}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(ctx))
		}
	}()
	if err := e.createDatabase(ctx, serverDSN); err != nil {
		return nil, err
	}
	e.dsn, err = pgtest.WithDatabase(serverDSN, databaseName)
	if err != nil {
		return nil, err
	}
	e.Pool, err = e.pool(ctx, handConnections, nil)
	if err != nil {
		return nil, err
	}
	if _, err := e.Pool.Exec(ctx, tables, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("create the tables: %w", err)
	}
	return e, nil
}

func (e *env) createDatabase(ctx context.Context, serverDSN string) error {
	exec := func(ctx context.Context, sql string) error {
		conn, err := pgx.Connect(ctx, serverDSN)
		if err != nil {
			return fmt.Errorf("connect to the server: %w", err)
		}
		_, err = conn.Exec(ctx, sql)
		return errors.Join(err, conn.Close(ctx))
	}
	// An interruption in the middle could leave the database behind.
	err := program.Cleanup(ctx, func(ctx context.Context) error { return exec(ctx, "create database "+databaseName) })
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42P04" {
		return fmt.Errorf("there is already a database %s; if no other run uses it, remove it with: drop database %s",
			databaseName, databaseName)
	}
	if err != nil {
		return fmt.Errorf("create the database %s: %w", databaseName, err)
	}
	e.atEnd(func(ctx context.Context) error {
		if err := exec(ctx, "drop database "+databaseName+" with (force)"); err != nil {
			return fmt.Errorf("remove the database: %w; remove it with: drop database %s", err, databaseName)
		}
		return nil
	})
	return nil
}

// atEnd calls a function when the env is closed, the last one first.
func (e *env) atEnd(cleanup func(ctx context.Context) error) {
	e.cleanups = append(e.cleanups, cleanup)
}

// close removes everything that the case created.
func (e *env) close(ctx context.Context) (err error) {
	for len(e.cleanups) > 0 {
		last := len(e.cleanups) - 1
		err = errors.Join(err, cleanUp(ctx, e.cleanups[last]))
		e.cleanups = e.cleanups[:last]
	}
	return err
}

// cleanUp is program.Cleanup with more time: a database of 10,000 tenants has some 100,000 files.
func cleanUp(ctx context.Context, cleanup func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	if err := cleanup(ctx); err != nil {
		return &program.CleanupError{Err: err}
	}
	return nil
}

// pool returns a pool of that many connections, which closes with the env.
func (e *env) pool(ctx context.Context, connections int, change func(config *pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(e.dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	config.MaxConns = int32(connections)
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	e.atEnd(func(context.Context) error { pool.Close(); return nil })
	return pool, nil
}

// store returns a store with a pool of its own, which closes with the env. Its schemas exist.
func (e *env) store(ctx context.Context, connections int, options pgstore.Options,
	change func(config *pgxpool.Config)) (*pgstore.Store, error) {
	pool, err := e.pool(ctx, connections, change)
	if err != nil {
		return nil, err
	}
	options.Schema = storeSchema
	store, err := pgstore.OpenPool(ctx, pool, options)
	if err != nil {
		return nil, err
	}
	e.atEnd(func(context.Context) error { store.Close(); return nil })
	return store, store.Migrate(ctx)
}

// tenants creates that many tenants.
func (e *env) tenants(ctx context.Context, store *pgstore.Store, n int) ([]*pgstore.Tenant, error) {
	names, all := make([]string, n), make([]*pgstore.Tenant, n)
	for i := range names {
		names[i] = fmt.Sprint("t", i)
		tenant, err := store.ForTenant(names[i])
		if err != nil {
			return nil, err
		}
		all[i] = tenant
	}
	if err := store.CreateTenants(ctx, names...); err != nil {
		return nil, err
	}
	// All tables of thousands of tenants would take minutes.
	_, err := e.Pool.Exec(ctx, "analyze "+storeSchema+".tenants")
	return all, err
}

// connect returns a connection outside of the pools, and the function that closes it.
func (e *env) connect(ctx context.Context) (*pgx.Conn, func(), error) {
	conn, err := pgx.Connect(ctx, e.dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	return conn, func() { _ = program.Cleanup(ctx, conn.Close) }, nil
}

// counted returns a verification that the handler of a contender has counted this number of events.
func (e *env) counted(contender string, events int) verify {
	return e.isCount(events, contender+" counted",
		"select coalesce(sum(n), 0) from bench.counts where contender = $1", contender)
}

// isCount returns a verification that a statement returns this number. what begins the error.
func (e *env) isCount(want int, what, sql string, args ...any) verify {
	return func(ctx context.Context) error {
		var got int
		if err := e.Pool.QueryRow(ctx, sql, args...).Scan(&got); err != nil {
			return fmt.Errorf("read the count: %w", err)
		}
		if got != want {
			return fmt.Errorf("%s %d events, want %d", what, got, want)
		}
		return nil
	}
}

// all returns a verification that makes several.
func all(checks ...verify) verify {
	return func(ctx context.Context) error {
		var failed []error
		for _, check := range checks {
			failed = append(failed, check(ctx))
		}
		return errors.Join(failed...)
	}
}

// withApplication returns a DSN whose sessions have this application_name.
func withApplication(dsn, name string) (string, error) {
	return pgtest.WithSetting(dsn, "application_name", name)
}
