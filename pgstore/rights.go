package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// lacking adds to err the right that the role lacks for a migration of schema, and the statement that grants it. Errors other
// than a missing privilege are returned as they are.
func (s *Store) lacking(ctx context.Context, schema string, err error) error {
	if !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		return err
	}
	var role, database, table, owner string
	var mayCreateSchemas, mayCreate bool
	var usage *bool
	asked := s.pool.QueryRow(ctx, queryText("lacking"), pgx.QueryExecModeExec, schema).
		Scan(&role, &database, &mayCreateSchemas, &usage, &mayCreate, &table, &owner)
	if asked != nil {
		return err
	}
	var what, remedy string
	switch {
	case usage == nil && !mayCreateSchemas:
		what = fmt.Sprintf("may not create schemas in database %q", database)
		remedy = fmt.Sprintf("grant create on database %s to %s", quote(database), quote(role))
	case usage == nil:
	case table != "":
		what = fmt.Sprintf("may not alter table %q in schema %q, which belongs to role %q", table, schema, owner)
		remedy = fmt.Sprintf("grant %s to %s", quote(owner), quote(role))
	case !*usage:
		what = fmt.Sprintf("may not use schema %q", schema)
		remedy = fmt.Sprintf("grant usage, create on schema %s to %s", quote(schema), quote(role))
	case !mayCreate:
		what = fmt.Sprintf("may not create in schema %q", schema)
		remedy = fmt.Sprintf("grant create on schema %s to %s", quote(schema), quote(role))
	}
	if what == "" {
		return fmt.Errorf("the role %q lacks a right: run this as the role that owns the schemas: %w", role, err)
	}
	return fmt.Errorf("the role %q %s: run this as the role that owns the schemas, or grant the right (%s): %w", role, what, remedy, err)
}
