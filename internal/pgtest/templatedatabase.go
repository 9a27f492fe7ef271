package pgtest

import (
	"context"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"
)

// TemplateDatabase is a database that is filled once and copied for each test. A copy costs less than a new database
// that each test fills.
type TemplateDatabase struct {
	name   string
	server string                 // its DSN, once the template is made
	source func() (string, error) // makes the template once, and returns its name with the options of a copy
}

// NewTemplateDatabase returns a template. The first test that needs it calls fill, which must close its connections.
func NewTemplateDatabase(fill func(ctx context.Context, dsn string) error) *TemplateDatabase {
	t := &TemplateDatabase{name: databaseName("template")}
	t.source = sync.OnceValues(func() (string, error) { return t.make(fill) })
	return t
}

// Database is the function Database, except that the new database is a copy of the template.
func (t *TemplateDatabase) Database(tb TB) string {
	tb.Helper()
	source, err := t.source()
	if err != nil {
		tb.Fatalf("make the template database %s: %v", t.name, err)
	}
	return databaseFrom(tb, t.server, source)
}

// Stop drops the template.
func (t *TemplateDatabase) Stop(context.Context) error {
	owned.Delete(t)
	return execute(t.server, "drop database "+t.name)
}

func (t *TemplateDatabase) make(fill func(ctx context.Context, dsn string) error) (source string, err error) {
	t.server, err = shared()
	if err != nil {
		return "", err
	}
	if err := execute(t.server, "create database "+t.name+" template template0"); err != nil {
		return "", err
	}
	foreign := os.Getenv(Variable) != ""
	if foreign { // a private server is removed as a whole
		owned.Store(t, nil)
	}
	dsn, err := WithDatabase(t.server, t.name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	if err := fill(ctx, dsn); err != nil {
		return "", err
	}
	source = t.name
	err = connected(ctx, t.server, func(conn *pgx.Conn) error {
		// Autovacuum must not connect either: a database in use cannot be copied.
		if _, err := conn.Exec(ctx, "alter database "+t.name+" with allow_connections false"); err != nil {
			return err
		}
		version := 0
		if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
			return err
		}
		// A copy of files costs half as much as one through the WAL, where a checkpoint is cheap. Older servers know no
		// other way.
		if version >= 150000 && !foreign {
			source += " strategy file_copy"
		}
		return nil
	})
	return source, err
}
