package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/program"
)

const (
	// readSchema holds the read models.
	readSchema = "demo"
	// storeSchema holds the demo's store.
	storeSchema = "demo_millrace"
	// mark is the comment on the demo's schemas.
	mark = "made by the demo of millrace"
)

var errNotThere = errors.New("this database has no tables of the demo: start a node or a load first")

func layout() program.Layout {
	var tables []string
	for _, m := range readModels {
		tables = append(tables, m.table)
	}
	return program.Layout{Tables: readSchema, Store: storeSchema, SQL: strings.Join(tables, ";\n"), Mark: mark}
}

// describe returns the server's version and address, for people.
func describe(ctx context.Context, d *program.Database, private bool) (string, error) {
	var version string
	if err := d.Pool.QueryRow(ctx, "select split_part(current_setting('server_version'), ' ', 1)").Scan(&version); err != nil {
		return "", fmt.Errorf("read the server's version: %w", err)
	}
	if private {
		return "a private PostgreSQL " + version + ", with durable commits; it is removed at the end", nil
	}
	config := d.Pool.Config().ConnConfig
	return fmt.Sprintf("PostgreSQL %s, database %s on %s", version, config.Database, config.Host), nil
}

// databaseFlag adds the flag for the database that several commands share.
func databaseFlag(cmd *cobra.Command, url *string) {
	cmd.Flags().StringVar(url, "database-url", "", "database to use; required (default $DATABASE_URL)")
}

// sharedURL returns the database that several commands use.
func sharedURL(cmd *cobra.Command, given string) (string, error) {
	if url := program.DatabaseURL(cmd, given); url != "" {
		return url, nil
	}
	return "", errors.New("neither -database-url nor DATABASE_URL is set; demo serve starts a server")
}

// openShared opens a database that several processes use, and creates missing tables.
func openShared(ctx context.Context, dsn string, writers int, log *zap.Logger) (*program.Database, error) {
	d, err := program.Open(ctx, dsn, layout(), writers, log)
	if err != nil {
		return nil, err
	}
	err = d.Create(ctx)
	var taken *program.TakenError
	if errors.As(err, &taken) || errors.Is(err, program.ErrUnderWay) {
		if err = mustBeOurs(ctx, d); err == nil {
			err = d.Store.Migrate(ctx)
		}
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// openExisting opens a database in which the demo's tables exist.
func openExisting(ctx context.Context, dsn string) (*program.Database, error) {
	d, err := program.Open(ctx, dsn, layout(), 0, zap.NewNop())
	if err != nil {
		return nil, err
	}
	if err := mustBeOurs(ctx, d); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// mustBeOurs fails unless the demo's schemas exist and the demo created them.
func mustBeOurs(ctx context.Context, d *program.Database) error {
	ours, err := ourSchemas(ctx, d)
	switch {
	case err != nil:
		return err
	case len(ours) == 0:
		return errNotThere
	case !slices.Contains(ours, readSchema) || !slices.Contains(ours, storeSchema):
		return fmt.Errorf("only schema %s of the demo exists: remove it with demo clean", strings.Join(ours, " and "))
	}
	return nil
}

// ourSchemas returns the demo's schemas in a database. It fails if another program created a schema of such a name.
func ourSchemas(ctx context.Context, d *program.Database) (ours []string, err error) {
	rows, err := d.Pool.Query(ctx, `select nspname::text, coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '')
		from pg_catalog.pg_namespace where nspname = any ($1::text[]) order by 1`, d.Schemas())
	if err != nil {
		return nil, fmt.Errorf("list the demo's schemas: %w", err)
	}
	var name, comment string
	var foreign []string
	_, err = pgx.ForEachRow(rows, []any{&name, &comment}, func() error {
		// The store creates the schema of the events, and uses none that it did not create.
		if comment == mark || name == d.Store.EventsSchema() && slices.Contains(ours, storeSchema) {
			ours = append(ours, name)
		} else {
			foreign = append(foreign, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the demo's schemas: %w", err)
	}
	if len(foreign) > 0 {
		return nil, fmt.Errorf("another program created the schema %s: use another database",
			strings.Join(foreign, " and the schema "))
	}
	return ours, nil
}
