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
	// storeSchema keeps the demo's store apart from another one in the same database.
	storeSchema = "demo_millrace"
	// mark is the comment by which the demo knows its schemas.
	mark = "made by the demo of millrace"
)

var errNotThere = errors.New("there is nothing of the demo's in this database: start a node or a load first")

func layout() program.Layout {
	var tables []string
	for _, m := range readModels {
		tables = append(tables, m.table)
	}
	return program.Layout{Tables: readSchema, Store: storeSchema, SQL: strings.Join(tables, ";\n"), Mark: mark}
}

// describe names the server.
func describe(ctx context.Context, d *program.Database, private bool) (string, error) {
	var version string
	if err := d.Pool.QueryRow(ctx, "select split_part(current_setting('server_version'), ' ', 1)").Scan(&version); err != nil {
		return "", fmt.Errorf("ask for the server's version: %w", err)
	}
	if private {
		return "a private PostgreSQL " + version + ", where commits wait for the disk; it is removed at the end", nil
	}
	config := d.Pool.Config().ConnConfig
	return fmt.Sprintf("PostgreSQL %s, database %s on %s", version, config.Database, config.Host), nil
}

// databaseFlag adds the flag for the database that several commands share.
func databaseFlag(cmd *cobra.Command, url *string) {
	cmd.Flags().StringVar(url, "database-url", "", "the database, needed (default $DATABASE_URL)")
}

// sharedURL is the database that a command shares with others.
func sharedURL(cmd *cobra.Command, given string) (string, error) {
	if url := program.DatabaseURL(cmd, given); url != "" {
		return url, nil
	}
	return "", errors.New("-database-url is missing, and so is DATABASE_URL: this command starts no server of its own, but demo serve does")
}

// openShared opens a database that several processes share, and creates the demo's tables where they are missing.
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
		return fmt.Errorf("of the demo's schemas there is only %s: remove it with demo clean", strings.Join(ours, " and "))
	}
	return nil
}

// ourSchemas lists the demo's schemas in a database. A schema of such a name that the demo did not create is an error.
func ourSchemas(ctx context.Context, d *program.Database) (ours []string, err error) {
	rows, err := d.Pool.Query(ctx, `select nspname::text, coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '')
		from pg_catalog.pg_namespace where nspname = any ($1::text[]) order by 1`, d.Schemas())
	if err != nil {
		return nil, fmt.Errorf("look for the demo's schemas: %w", err)
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
		return nil, fmt.Errorf("look for the demo's schemas: %w", err)
	}
	if len(foreign) > 0 {
		return nil, fmt.Errorf("there is a schema %s that the demo did not make, and leaves alone: use another database",
			strings.Join(foreign, " and a schema "))
	}
	return ours, nil
}
