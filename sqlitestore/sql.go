package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/internal/sqlfile"
)

//go:embed queries/*.sql control/*.sql
var queryFiles embed.FS

// queries are the statements of the files, by name.
var queries = sqlfile.Load(queryFiles).Share(control.Statements, translated)

// macros are those of the statements that both stores share.
var macros = sqlfile.Macros{
	"control":     "{control}",
	"projection":  "projection",
	"now":         ":now",
	"in":          "in (select value from json_each(%s))",
	"rows":        "json_each(%s) as list",
	"objects":     "json_each(%s) as list",
	"tenant_id":   "(select id from millrace_tenants where name = %s)",
	"tenant_name": "name",
	"living":      "(%s is :living)",
	"lock":        "",

	"object":         "json_object(%s)",
	"array":          "json_group_array(%s)",
	"json":           "json(%s)",
	"micros":         "%s",
	"time":           "%s",
	"numbers":        "list.value->>%s",
	"texts":          "list.value->>%s",
	"ids":            "case when list.value->>%s is not null then (select json_group_array(x.value + $4) from json_each(list.value->%s) x) end",
	"passed":         "json(%s.passed)",
	"passed_columns": "passed",
	"passed_values":  "list.value->>'passed'",
	"stream_version": "version",
	"given_ids":      "",
}

// translated returns a shared statement for SQLite, which has no schemas and no casts to types of PostgreSQL.
func translated(shared string) (string, error) {
	text, err := macros.Expand(shared)
	text = strings.ReplaceAll(text, "{control}.", "millrace_")
	return withQuestionMarks(withoutCasts(text)), err
}

// withoutCasts removes casts such as ::text[]. Every program that links the store calls it for each statement, so it
// does not search by a regular expression.
func withoutCasts(text string) string {
	var kept strings.Builder
	for {
		before, after, found := strings.Cut(text, "::")
		kept.WriteString(before)
		if !found {
			return kept.String()
		}
		text = strings.TrimPrefix(strings.TrimLeft(after, "abcdefghijklmnopqrstuvwxyz"), "[]")
	}
}

// withQuestionMarks writes ?1 for the parameter $1. A dollar before anything but a number stays, since paths of JSON
// begin with one.
func withQuestionMarks(text string) string {
	bytes := []byte(text)
	for i, c := range bytes[:max(len(bytes)-1, 0)] {
		if next := bytes[i+1]; c == '$' && '0' <= next && next <= '9' {
			bytes[i] = '?'
		}
	}
	return string(bytes)
}

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
	var v T
	err = each(ctx, q, statement, args, []any{&v}, func() error {
		values = append(values, v)
		return nil
	})
	return values, err
}

// each runs a statement of the store. It scans each row into results and calls fn.
func each(ctx context.Context, q querier, statement string, args, results []any, fn func() error) error {
	rows, err := q.QueryContext(ctx, queries.Text(statement), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(results...); err != nil {
			return err
		}
		if err := fn(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list returns items as a JSON array, which statements read by json_each.
func list[T any](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // numbers and texts are always encoded
	}
	return string(text)
}

// micros scans a time, which is a number of microseconds since 1970. Null is the zero time.
type micros struct{ *time.Time }

// Scan implements sql.Scanner.
func (m micros) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*m.Time = time.Time{}
	case int64:
		*m.Time = time.UnixMicro(v)
	default:
		return fmt.Errorf("scan a time: %T", value)
	}
	return nil
}
