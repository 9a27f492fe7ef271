package commandline

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

var errNotMigrated, errFileNotMigrated = pgstore.ErrNotMigrated, sqlitestore.ErrNotMigrated

// store is what the commands need of a store. Both kinds have these methods, apart from those that the types below add.
type store interface {
	millrace.Store
	Close()
	Migrate(ctx context.Context) error
	Tenants(ctx context.Context) ([]string, error)
	CreateTenants(ctx context.Context, names ...string) error
	ArchiveTenant(ctx context.Context, name string) error
	UnarchiveTenant(ctx context.Context, name string) error
	DropTenant(ctx context.Context, name string, opts tenancy.DropOptions) error
	DeadLetters(id projection.ID) projection.DeadLetters

	// of returns a tenant, whether or not it exists.
	of(tenant string) (events, error)
	// inTx runs fn in one transaction, in which it appends to a tenant.
	inTx(ctx context.Context, tenant string, fn func(ctx context.Context, append appendFunc) error) error
}

// events are the events of a tenant.
type events interface {
	event.Reader
	event.Appender
	State(ctx context.Context) (tenancy.State, error)
	EraseStream(ctx context.Context, stream, reason string) (event.Erasure, error)
	RedactEvents(ctx context.Context, positions []int64, reason string) (event.Erasure, error)
	Erasures(ctx context.Context) ([]event.Erasure, error)
}

// appendFunc appends in a transaction.
type appendFunc func(ctx context.Context, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error)

// database is a store in PostgreSQL.
type database struct{ *pgstore.Store }

func openPostgres(ctx context.Context, url, schema, sessionURL string, types *eventtype.Types) (store, error) {
	s, err := pgstore.Open(ctx, url, pgstore.Options{Schema: schema, SessionDSN: sessionURL, Types: types})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return database{s}, nil
}

func (d database) of(tenant string) (events, error) {
	return d.ForTenant(tenant)
}

// file is a store in a file.
type file struct{ *sqlitestore.Store }

func openFile(ctx context.Context, path string, types *eventtype.Types) (store, error) {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Options{Types: types})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return file{s}, nil
}

func (f file) of(tenant string) (events, error) {
	return f.ForTenant(tenant)
}

func (d database) inTx(ctx context.Context, tenant string,
	fn func(ctx context.Context, append appendFunc) error) error {
	t, err := d.ForTenant(tenant)
	if err != nil {
		return err
	}
	return t.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return fn(ctx, func(ctx context.Context, stream string,
			expected event.Expected, events ...event.Event) (event.Appended, error) {
			return t.AppendTx(ctx, tx, stream, expected, events...)
		})
	})
}

func (f file) inTx(ctx context.Context, tenant string, fn func(ctx context.Context, append appendFunc) error) error {
	t, err := f.ForTenant(tenant)
	if err != nil {
		return err
	}
	return f.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return fn(ctx, func(ctx context.Context, stream string,
			expected event.Expected, events ...event.Event) (event.Appended, error) {
			return t.AppendTx(ctx, tx, stream, expected, events...)
		})
	})
}
