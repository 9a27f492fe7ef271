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

// setupLimit bounds what a test does to a database besides what it tests.
const setupLimit = time.Minute

// Pool is a pool for a test to look at its database, closed at the end of the test.
func Pool(tb pgtest.TB, dsn string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// MustExec executes statements. The last of them must change one row, if it is one that changes rows.
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

// Schemas are the schemas of a database that are not PostgreSQL's own, in order of their names.
func Schemas(tb pgtest.TB, pool *pgxpool.Pool) (names string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupLimit)
	defer cancel()
	if err := pool.QueryRow(ctx, allSchemas).Scan(&names); err != nil {
		tb.Fatalf("list the schemas: %v", err)
	}
	return names
}
