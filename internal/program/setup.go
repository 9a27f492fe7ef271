package program

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
)

//go:embed queries/all_schemas.sql
var allSchemas string

// setupLimit limits each statement of a test's set-up.
const setupLimit = time.Minute

// Pool returns a pool for the checks of a test, and closes it at the end of the test.
func Pool(tb pgtest.TB, dsn string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// MustExec executes statements. If the last one changes rows, it must change exactly one.
func MustExec(tb pgtest.TB, pool *pgxpool.Pool, sql string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupLimit)
	defer cancel()
	tag, err := pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	if (tag.Update() || tag.Insert() || tag.Delete()) && tag.RowsAffected() != 1 {
		tb.Fatalf("%s: %d rows", sql, tag.RowsAffected())
	}
}

// Schemas returns the names of the schemas of a database, sorted, except PostgreSQL's own.
func Schemas(tb pgtest.TB, pool *pgxpool.Pool) (names string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupLimit)
	defer cancel()
	if err := pool.QueryRow(ctx, allSchemas).Scan(&names); err != nil {
		tb.Fatalf("list the schemas: %v", err)
	}
	return names
}
