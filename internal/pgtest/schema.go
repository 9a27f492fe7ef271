package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// Schema is a place for a test in a database that it shares with others.
type Schema struct {
	// DSN leads to the database. Its search path begins with a new, empty schema.
	DSN string
	// Store is the name for a store's control schema. No schema has this name, or begins with it and an underscore.
	Store string
}

// MayCreateDatabases reports whether the user of a DSN may create databases.
func MayCreateDatabases(dsn string) (may bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	err = connected(ctx, dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx,
			"select rolcreatedb or rolsuper from pg_catalog.pg_roles where rolname = current_user").Scan(&may)
	})
	return may, err
}

// SchemaOn returns a place in the database of a DSN, whose user must be allowed to create schemas. At the end of the
// test it drops the new schema, the store's control schema, and those of its tenants.
func SchemaOn(tb TB, database string) Schema {
	tb.Helper()
	number := rand.Uint32()
	s := Schema{Store: fmt.Sprintf("millrace_%08x", number)}
	models := fmt.Sprintf("models_%08x", number)
	if err := execute(database, "create schema "+models); err != nil {
		tb.Fatalf("create schema %s: %v", models, err)
	}
	tb.Cleanup(func() {
		tb.Helper()
		if err := dropSchemas(database, models, s.Store); err != nil {
			tb.Fatalf("drop schema %s, %s and those of its tenants: %v", models, s.Store, err)
		}
	})
	var err error
	s.DSN, err = WithSetting(database, "search_path", models+", public")
	if err != nil {
		tb.Fatalf("connect to schema %s: %v", models, err)
	}
	return s
}

// dropSchemas drops the schemas of a test. Each is a transaction, so that many tenants need few locks at a time.
func dropSchemas(database, models, store string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	return connected(ctx, database, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx,
			"select format('drop schema %I cascade', nspname) from pg_catalog.pg_namespace where nspname in ($1, $2) or starts_with(nspname, $2 || '_')",
			models, store)
		drops, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, drop := range drops {
			_, failed := conn.Exec(ctx, drop)
			err = errors.Join(err, failed)
		}
		return err
	})
}
