package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/tenancy"
)

// absent adds to err why the schema of the tenant, or a table in it, was not found: the tenant is unknown, was dropped,
// or was not migrated. If the cause cannot be read, it returns the error of that read, so that an outage is not taken
// for a missing tenant. Other errors are returned unchanged.
func (t namedTenant) absent(ctx context.Context, err error) error {
	if !pgerr.IsMissing(err) {
		return t.closed(err)
	}
	schema, version, asked := t.db.tenantVersion(ctx, t.db.pool, t.name)
	switch {
	case errors.Is(asked, tenancy.ErrUnknown), errors.Is(asked, tenancy.ErrDropped),
		errors.Is(asked, tenancy.ErrDropping):
		return fmt.Errorf("%w: %w", asked, err)
	case pgerr.IsMissing(asked):
		return t.db.missing(asked)
	case asked != nil:
		return unexplained(t.name, asked, err)
	case version < len(ownMigrations.tenant):
		return fmt.Errorf("tenant %q: %w: %w", t.name, migration.Acceptable(version, len(ownMigrations.tenant)), err)
	}
	var exists bool
	switch asked := t.db.pool.QueryRow(ctx, queries.Text("table_exists"), pgx.QueryExecModeExec, schema,
		"events").Scan(&exists); {
	case asked != nil:
		return unexplained(t.name, asked, err)
	case exists:
		return fmt.Errorf("%w %q, which was created meanwhile: %w", tenancy.ErrUnknown, t.name, err)
	}
	return fmt.Errorf("a table in the schema %q of tenant %q is gone: %w: %w", schema, t.name, tenancy.ErrDropped, err)
}

// unexplained returns the error of a read that should have explained err.
func unexplained(tenant string, asked, err error) error {
	return fmt.Errorf("find out why a table of tenant %q is missing (%v): %w", tenant, err, asked)
}

// closed adds to err that the tenant takes no appends. Other errors are returned unchanged.
func (t namedTenant) closed(err error) error {
	switch {
	case pgerr.Is(err, pgerr.TenantArchived):
		return fmt.Errorf("tenant %q: %w: %w", t.name, tenancy.ErrArchived, err)
	case pgerr.Is(err, pgerr.TenantDropping):
		return fmt.Errorf("tenant %q: %w: %w", t.name, tenancy.ErrDropping, err)
	case pgerr.Is(err, pgerr.TenantCopying):
		return fmt.Errorf("tenant %q: %w: %w", t.name, tenancy.ErrCopying, err)
	}
	return err
}

// missing adds ErrNotMigrated to an error about a missing control schema or a table in it. Other errors are returned
// unchanged.
func (db *database) missing(err error) error {
	if pgerr.IsMissing(err) {
		return fmt.Errorf("control schema %q: %w: %w", db.opts.Schema, ErrNotMigrated, err)
	}
	return err
}

// lacking adds to err the privilege that the role lacks for a migration of schema, and the role that has it. It never
// advises to give the privilege to this role if another owns the schemas: a role that only runs projections must not
// own or alter them. Errors other than a missing privilege are returned unchanged, as are those of lacking.
func (db *database) lacking(ctx context.Context, schema string, err error) error {
	var named *lackingError
	if !pgerr.Is(err, pgerr.InsufficientPrivilege) || errors.As(err, &named) {
		return err
	}
	var role, database, owner string
	var mayCreateSchemas, mayCreate, exists bool
	var usage *bool
	asked := db.pool.QueryRow(ctx, queries.Text("missing_privilege"), pgx.QueryExecModeExec, schema, db.opts.Schema).
		Scan(&role, &database, &mayCreateSchemas, &usage, &mayCreate, &owner, &exists)
	if asked != nil {
		return err
	}
	what := "lacks a right"
	switch {
	case usage == nil && !mayCreateSchemas:
		what = fmt.Sprintf("may not create schemas in database %q", database)
	case usage != nil && !*usage:
		what = fmt.Sprintf("may not use schema %q", schema)
	case usage != nil && !mayCreate:
		what = fmt.Sprintf("may not create in schema %q", schema)
	case owner != "" && usage != nil:
		what = fmt.Sprintf("may not alter tables in schema %q", schema)
	}
	remedy := "run this as the role that owns the schemas"
	switch {
	case owner != "":
		remedy = fmt.Sprintf("run this as the role %q, which owns the schemas, and not as a role that only runs projections (docs/roles.sql)", owner)
	case !exists:
		remedy = "run this as the role that is to own the schemas and may create them: millrace_owner of docs/roles.sql, not a role that only runs projections"
	case usage == nil && !mayCreateSchemas:
		remedy = fmt.Sprintf("this role owns the schemas: grant create on database %s to %s", sqltext.Name(database),
			sqltext.Name(role))
	}
	return &lackingError{fmt.Sprintf("the role %q %s: %s", role, what, remedy), err}
}

// lackingError is an error with the privilege that a role lacks.
type lackingError struct {
	lacks string
	err   error
}

func (e *lackingError) Error() string { return e.lacks + ": " + e.err.Error() }

func (e *lackingError) Unwrap() error { return e.err }

// Lacking implements store.Control.
func (s port) Lacking(ctx context.Context, err error) error {
	return s.lacking(ctx, s.opts.Schema, err)
}
