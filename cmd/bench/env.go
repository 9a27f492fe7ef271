package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/program"
)

const (
	// tableSchema holds the tables of the handlers.
	tableSchema = "bench"
	// storeSchema holds the store.
	storeSchema = "bench_millrace"
)

var layout = program.Layout{Tables: tableSchema, Store: storeSchema, Mark: "made by the benchmark of millrace",
	SQL: `create table ` + tableSchema + `.counts (contender text, type text, n bigint, primary key (contender, type));
		create table ` + tableSchema + `.checkpoint (contender text primary key, position bigint)`}

// env is the environment of a measurement: a store and tables for the handlers, in schemas of its own.
type env struct{ *program.Database }

// newEnv creates the schemas. It fails if one of them exists, and leaves nothing after an error.
func newEnv(ctx context.Context, dsn string, writers int) (*env, error) {
	d, err := program.Open(ctx, dsn, layout, writers, zap.NewNop())
	if err != nil {
		return nil, err
	}
	e := &env{d}
	if err := d.Create(ctx); err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	return e, nil
}

// close removes what newEnv created.
func (e *env) close(ctx context.Context) error {
	defer e.Close()
	return e.Drop(ctx)
}

// connect returns a connection outside the pool, and the function that closes it.
func (e *env) connect(ctx context.Context) (*pgx.Conn, func(), error) {
	conn, err := pgx.ConnectConfig(ctx, e.Pool.Config().ConnConfig)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	return conn, func() { _ = program.Cleanup(ctx, conn.Close) }, nil
}

// mustHaveCounted fails unless the handler of a contender has counted this number of events.
func (e *env) mustHaveCounted(ctx context.Context, contender string, events int) error {
	return e.mustBe(ctx, events, contender+" counted", "select coalesce(sum(n), 0) from "+tableSchema+".counts where contender = $1", contender)
}

// mustHold fails unless the store has this number of events.
func (e *env) mustHold(ctx context.Context, events int) error {
	return e.mustBe(ctx, events, "the store has", "select count(*) from "+e.events())
}

func (e *env) mustBe(ctx context.Context, want int, what, sql string, args ...any) error {
	var got int
	if err := e.Pool.QueryRow(ctx, sql, args...).Scan(&got); err != nil {
		return fmt.Errorf("verify the count: %w", err)
	}
	if got != want {
		return fmt.Errorf("not verified: %s %d events, not %d", what, got, want)
	}
	return nil
}

// events returns the name of the table of events.
func (e *env) events() string { return e.Store.EventsSchema() + ".events" }
