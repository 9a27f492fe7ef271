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

// mark is the comment by which the demo knows its schemas.
const mark = "made by the demo of millrace"

var errNotThere = errors.New("there is nothing of the demo's in this database: start a node or a load first")

// databaseFlag adds the flag that says which database several commands share.
func databaseFlag(cmd *cobra.Command, url *string) {
	cmd.Flags().StringVar(url, "database-url", "", "the database, needed (default $DATABASE_URL)")
}

// sharedURL is the database that a command shares with others: it starts no server of its own.
func sharedURL(cmd *cobra.Command, given string) (string, error) {
	if url := program.DatabaseURL(cmd, given); url != "" {
		return url, nil
	}
	return "", errors.New("-database-url is missing, and so is DATABASE_URL: this command starts no server of its own, but demo serve does")
}

// openShared connects to a database that several processes share. With share it creates what is missing there, and
// without it everything must be there. Nothing is removed at the end.
func openShared(ctx, hurry context.Context, dsn string, writers int, share bool, log *zap.Logger) (_ *database, err error) {
	d := &database{keep: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(hurry))
		}
	}()
	if err = d.connect(ctx, dsn, writers, log); err != nil {
		return nil, err
	}
	if share {
		return d, d.share(ctx)
	}
	return d, d.recognise(ctx)
}

// share creates what is missing. Others may do so at the same time.
func (d *database) share(ctx context.Context) error {
	err := d.claim(ctx)
	var taken *program.TakenError
	if errors.As(err, &taken) || errors.Is(err, program.ErrUnderWay) {
		err = d.recognise(ctx)
	}
	if err == nil {
		err = d.store.Migrate(ctx)
	}
	if err != nil {
		return fmt.Errorf("create the demo's tables: %w", err)
	}
	return nil
}

// recognise fails unless the demo's schemas are there, and are the demo's.
func (d *database) recognise(ctx context.Context) error {
	ours, err := d.found(ctx)
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

// found lists the demo's schemas that are there. One that has such a name and was not made by the demo is an error.
func (d *database) found(ctx context.Context) (ours []string, err error) {
	rows, err := d.pool.Query(ctx, `select nspname::text, coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '')
		from pg_catalog.pg_namespace where nspname = any ($1::text[]) order by 1`, d.schemas())
	if err != nil {
		return nil, fmt.Errorf("look for the demo's schemas: %w", err)
	}
	var name, comment string
	var foreign []string
	_, err = pgx.ForEachRow(rows, []any{&name, &comment}, func() error {
		// The store makes its own schema for the events, and takes none that it did not make.
		if comment == mark || name == d.store.EventsSchema() && slices.Contains(ours, storeSchema) {
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
