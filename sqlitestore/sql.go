package sqlitestore

import (
	"context"
	"database/sql"
	"embed"

	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/internal/sqlfile"
)

//go:embed queries/*.sql
var queryFiles embed.FS

// queries are the statements of the files, by name.
var queries = sqlfile.Load(queryFiles)

//go:embed migrations
var migrationFiles embed.FS

// ownMigrations are the migrations of this program.
var ownMigrations = mustLoadMigrations()

func mustLoadMigrations() []migration.Step {
	list, err := migration.Load(migrationFiles, "migrations")
	if err != nil {
		panic(err)
	}
	return list
}

// querier is a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// execute executes a statement of the store.
func execute(ctx context.Context, q querier, statement string, args ...any) error {
	_, err := q.ExecContext(ctx, queries.Text(statement), args...)
	return err
}

// column returns the values of a statement of the store that returns one column.
func column[T any](ctx context.Context, q querier, statement string, args ...any) (values []T, err error) {
	rows, err := q.QueryContext(ctx, queries.Text(statement), args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, rows.Err()
}
