package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	// readSchema holds the read models.
	readSchema = "demo"
	// storeSchema holds the demo's store.
	storeSchema = "demo_millrace"
	// mark is the comment on the demo's schemas.
	mark = "made by the demo of millrace"
)

// postgresPlace is a database of a PostgreSQL server.
type postgresPlace struct {
	url string
	// private means that the server is removed at the end.
	private bool
}

// postgresDatabase is a store in schemas of the demo's own.
type postgresDatabase struct {
	*pgstore.Store
	schemas *program.Database
	private bool
}

func (p postgresPlace) connect(ctx context.Context, writers int, log *zap.Logger) (*postgresDatabase, error) {
	layout := program.Layout{Tables: readSchema, Store: storeSchema, SQL: inPostgres("").createTables(), Mark: mark}
	d, err := program.Open(ctx, p.url, layout, writers, log)
	if err != nil {
		return nil, err
	}
	return &postgresDatabase{d.Store, d, p.private}, nil
}

func (p postgresPlace) create(ctx context.Context, writers int, log *zap.Logger) (database, error) {
	d, err := p.connect(ctx, writers, log)
	if err != nil {
		return nil, err
	}
	if err := d.schemas.Create(ctx); err != nil {
		err = errors.Join(err, d.drop(ctx))
		d.Close()
		return nil, err
	}
	return d, nil
}

func (p postgresPlace) share(ctx context.Context, writers int, log *zap.Logger) (database, error) {
	d, err := p.connect(ctx, writers, log)
	if err != nil {
		return nil, err
	}
	if err := d.createOrShare(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// createOrShare creates the schemas, or migrates those of another run of the demo.
func (d *postgresDatabase) createOrShare(ctx context.Context) error {
	err := d.schemas.Create(ctx)
	var taken *program.TakenError
	if !errors.As(err, &taken) && !errors.Is(err, program.ErrUnderWay) {
		return err
	}
	if err := d.mustBeOurs(ctx); err != nil {
		return err
	}
	return d.Store.Migrate(ctx)
}

func (p postgresPlace) open(ctx context.Context) (database, error) {
	d, err := p.connect(ctx, 0, zap.NewNop())
	if err != nil {
		return nil, err
	}
	if err := d.mustBeOurs(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (p postgresPlace) clean(ctx context.Context) (removed string, err error) {
	d, err := p.connect(ctx, 0, zap.NewNop())
	if err != nil {
		return "", err
	}
	defer d.Close()
	ours, err := d.ourSchemas(ctx)
	if err != nil || len(ours) == 0 {
		return "", err
	}
	if err := mustBeUnused(ctx, d); err != nil {
		return "", err
	}
	return "the schemas " + strings.Join(ours, ", "), program.Remove(ctx, d.schemas.Pool, ours)
}

func (p postgresPlace) other() string {
	if p.private {
		return "without -postgres it runs on SQLite, in a temporary file"
	}
	return "-file NAME runs it on SQLite"
}

func (d *postgresDatabase) Close() { d.schemas.Close() }

func (d *postgresDatabase) kind() string { return "postgres" }

func (d *postgresDatabase) batch(handle batchHandler) millrace.Handler {
	return pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		run := func(ctx context.Context, sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}
		return handle(ctx, transaction{d.dialect(), run}, events)
	})
}

func (d *postgresDatabase) dialect() *dialect {
	return inPostgres(pgx.Identifier{d.Store.EventsSchema(), "events"}.Sanitize())
}

func (d *postgresDatabase) query(ctx context.Context, sql string, args, scan []any, fn func()) error {
	rows, err := d.schemas.Pool.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, scan, func() error {
		fn()
		return nil
	})
	return err
}

func (d *postgresDatabase) describe(ctx context.Context) (string, error) {
	var version string
	if err := d.schemas.Pool.QueryRow(ctx,
		"select split_part(current_setting('server_version'), ' ', 1)").Scan(&version); err != nil {
		return "", fmt.Errorf("read the server's version: %w", err)
	}
	if d.private {
		return "a private PostgreSQL " + version + ", with durable commits; it is removed at the end", nil
	}
	config := d.schemas.Pool.Config().ConnConfig
	return fmt.Sprintf("PostgreSQL %s, database %s on %s", version, config.Database, config.Host), nil
}

func (d *postgresDatabase) removal() string { return program.Drop(d.schemas.Schemas()) }

func (d *postgresDatabase) drop(ctx context.Context) error { return d.schemas.Drop(ctx) }

// mustBeOurs fails unless the demo's schemas exist and the demo created them.
func (d *postgresDatabase) mustBeOurs(ctx context.Context) error {
	ours, err := d.ourSchemas(ctx)
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

// ourSchemas returns the demo's schemas. It fails if another program created a schema of such a name.
func (d *postgresDatabase) ourSchemas(ctx context.Context) (ours []string, err error) {
	var name, comment string
	var foreign []string
	err = d.query(ctx, `select nspname::text, coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '')
		from pg_catalog.pg_namespace where nspname = any ($1::text[]) order by 1`, []any{d.schemas.Schemas()}, []any{&name, &comment}, func() {
		// The store creates the schema of the events, and uses none that it did not create.
		if comment == mark || name == d.Store.EventsSchema() && slices.Contains(ours, storeSchema) {
			ours = append(ours, name)
		} else {
			foreign = append(foreign, name)
		}
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
