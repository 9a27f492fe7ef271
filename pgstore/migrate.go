package pgstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

var (
	// ErrNotMigrated is returned if the control schema, or a part of it, is missing.
	ErrNotMigrated = migration.ErrNotMigrated
	// ErrSchemaTooNew is returned if the database is more than one schema version ahead of this version of the library.
	ErrSchemaTooNew = migration.ErrTooNew
	// ErrForeignSchema is returned if the control schema, or the schema of a new tenant, exists and belongs to
	// something else.
	ErrForeignSchema = errors.New("a schema of that name exists and does not belong to this store")
)

// Migrate brings the control schema and every tenant to this program's version, and creates DefaultTenant. Each tenant
// is a transaction of its own, and any number of processes may migrate at once. Migrate never goes back. It accepts a
// schema that is one version newer, so that an old and a new program can run side by side during a deployment. For
// newer ones it returns ErrSchemaTooNew. ctx alone limits how long it waits.
//
// Migrate also runs the steps of Options.TenantSetup that a tenant lacks. If a tenant fails, Migrate goes on with the
// others and returns all errors, joined. Each names the tenant and, if a step failed, the step. The next Migrate
// repeats the bad tenants alone. After the end of ctx or of the connection, the tenants that are left wait for the next
// Migrate.
//
// Migrate also replaces the functions that check leases by those of this program, if they are older, and if the role
// owns them. They have no schema version.
//
// If everything is up to date, Migrate only reads and needs no right to create. If the role lacks a right, the error
// names it. A tenant whose schema was dropped without millrace is logged and skipped: see tenancy.ErrDropped.
func (s *Store) Migrate(ctx context.Context) error {
	return s.migrate(ctx, ownMigrations)
}

func (s *Store) migrate(ctx context.Context, m migrations) error {
	if err := s.migrateSchema(ctx, m); err != nil {
		return fmt.Errorf("migrate schema %q: %w", s.opts.Schema, s.lacking(ctx, s.opts.Schema, err))
	}
	if err := s.migrator().migrateTenants(ctx, m); err != nil {
		return err
	}
	var named bool
	err := s.pool.QueryRow(ctx, s.control.sql("other_tenants_exist"), pgx.QueryExecModeExec,
		projection.DefaultTenant).Scan(&named)
	if err == nil && named {
		s.extensions.warn(ctx)
	}
	return err
}

// migrateSchema brings the control schema to this program's version.
func (s *Store) migrateSchema(ctx context.Context, m migrations) error {
	if err := s.notWithin(ctx); err != nil {
		return err
	}
	if err := s.migrator().migrateControl(ctx, m.control); err != nil {
		return err
	}
	if err := s.migrator().renewFence(ctx); err != nil {
		return err
	}
	// The table has no version. If this role may not create it, it is for the owner.
	err := s.plane().MakeSnapshots(ctx)
	if pgerr.Is(err, pgerr.InsufficientPrivilege) {
		return nil
	}
	return err
}

// renewFence replaces the functions of the fence if they are those of an older program. A role that may not do that
// leaves them to their owner.
func (m migrator) renewFence(ctx context.Context) error {
	current, mayRenew, err := fenceIsCurrent(ctx, m.pool, m.opts.Schema)
	if err != nil || current || !mayRenew {
		return err
	}
	return m.locked(ctx, func(tx pgx.Tx) error {
		current, _, err := fenceIsCurrent(ctx, tx, m.opts.Schema)
		if err != nil || current {
			return err
		}
		return execScript(ctx, tx, m.control.sql("fence_functions"))
	})
}

// fenceVersion is that of the functions of the fence in this program.
var fenceVersion = regexp.MustCompile("Version of the fence: ([0-9]+)").
	FindStringSubmatch(queries.Text("fence_functions"))[1]

// fenceIsCurrent reports whether the functions of the fence are those of this program or newer ones, and whether the
// role may replace them.
func fenceIsCurrent(ctx context.Context, q querier, schema string) (current, mayRenew bool, err error) {
	err = q.QueryRow(ctx, queries.Text("fence_is_current"), pgx.QueryExecModeExec, schema, fenceVersion).
		Scan(&current, &mayRenew)
	return current, mayRenew, err
}

// CreateTenant creates a tenant with a schema of its own, runs Options.TenantSetup, and returns the tenant. All of it
// is one transaction. A tenant that exists is brought to this program's version. The errors are:
//   - ErrNotMigrated before Migrate,
//   - ErrForeignSchema if a schema of the name exists that is not this store's,
//   - tenancy.ErrDropped if the tenant exists and its schema does not,
//   - tenancy.ErrDropping until a drop of a tenant of that name has ended.
func (s *Store) CreateTenant(ctx context.Context, name string) (*Tenant, error) {
	m := s.migrator()
	t, err := m.createTenant(ctx, name, ownMigrations)
	if err != nil {
		return nil, m.notCreated(ctx, name, err)
	}
	if name != projection.DefaultTenant {
		s.extensions.warn(ctx)
	}
	return &Tenant{store: s, namedTenant: t}, nil
}

// migrator brings the control schema and tenants to the version of this program, and creates tenants.
type migrator struct {
	*database
	extensions *extensions
}

func (s *Store) migrator() migrator { return migrator{s.database, &s.extensions} }

// notCreated adds the name of a tenant to the error of its creation, and the extensions that it does not find.
func (m migrator) notCreated(ctx context.Context, name string, err error) error {
	return fmt.Errorf("create tenant %s: %w", excerpt.Quoted(name), m.extensions.wrap(ctx, m.pool, name, err))
}

// migrateControl applies what the control schema lacks, one migration in each transaction.
func (m migrator) migrateControl(ctx context.Context, list []migration.Step) error {
	if err := m.notForeign(ctx, list); err != nil {
		return err
	}
	version, err := m.controlVersion(ctx, m.pool)
	if err != nil && !pgerr.IsMissing(err) {
		return err
	}
	if err == nil && version >= len(list) {
		return migration.NotTooNew(version, len(list))
	}
	for done := false; !done; {
		err := m.locked(ctx, func(tx pgx.Tx) error {
			version, err := m.bootstrap(ctx, tx)
			if err != nil {
				return err
			}
			done = version >= len(list)
			if done {
				return migration.NotTooNew(version, len(list))
			}
			next := list[version]
			if err := execScript(ctx, tx, inSchemas(next.SQL, m.opts.Schema, "")); err != nil {
				return fmt.Errorf("migration %s: %w", next.Name, err)
			}
			_, err = tx.Exec(ctx, m.control.sql("record_version"), pgx.QueryExecModeExec, version+1, next.Name)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// notForeign returns ErrForeignSchema if the control schema holds objects with millrace's names that are not
// millrace's.
func (m migrator) notForeign(ctx context.Context, list []migration.Step) error {
	// The schema of another store's tenant holds the tables of keys.
	names := append(controlNames(list), "append_keys", "append_results")
	rows, _ := m.pool.Query(ctx, queries.Text("foreign_objects"), pgx.QueryExecModeExec, m.opts.Schema, names)
	foreign, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(foreign) > 0 {
		err = fmt.Errorf("%w: it holds %q", ErrForeignSchema, foreign)
	}
	return err
}

// bootstrap creates the control schema and its table of versions if they are missing, and returns the version.
func (m migrator) bootstrap(ctx context.Context, tx pgx.Tx) (int, error) {
	exists, err := schemaExists(ctx, tx, m.opts.Schema)
	if err != nil {
		return 0, err
	}
	// The database's owner may have created the schema for a role that may not.
	if !exists {
		if err := execScript(ctx, tx, sqltext.Fill(queries.Text("create_schema"),
			"{schema}", sqltext.Name(m.opts.Schema))); err != nil {
			return 0, err
		}
	}
	if err := execScript(ctx, tx, m.control.sql("schema_versions")); err != nil {
		return 0, err
	}
	return m.controlVersion(ctx, tx)
}

// createTenant creates a tenant, or applies the migrations and the steps of Options.TenantSetup that an existing one
// lacks.
func (m migrator) createTenant(ctx context.Context, name string, known migrations) (namedTenant, error) {
	t, err := m.named(name)
	if err != nil {
		return t, err
	}
	if err := m.notWithin(ctx); err != nil {
		return t, err
	}
	// A complete tenant needs neither the lock nor the right to create.
	if done, err := m.isComplete(ctx, t, known); err != nil {
		return t, err
	} else if done {
		return t, nil
	}
	err = m.locked(ctx, func(tx pgx.Tx) error {
		schema, version, err := m.tenantVersion(ctx, tx, name)
		if errors.Is(err, tenancy.ErrUnknown) {
			schema, version, err = t.schema, 0, m.insertTenant(ctx, tx, t)
		}
		if err != nil {
			return err
		}
		return m.completeTenant(ctx, tx, name, schema, version, known)
	})
	if err != nil {
		return t, m.lacking(ctx, t.schema, err)
	}
	return t, nil
}

// migrateTenant applies what an existing tenant lacks. It does not create a tenant that was removed meanwhile.
func (m migrator) migrateTenant(ctx context.Context, name string, known migrations) error {
	var schema string
	err := m.locked(ctx, func(tx pgx.Tx) (err error) {
		var version int
		schema, version, err = m.tenantVersion(ctx, tx, name)
		switch {
		case errors.Is(err, tenancy.ErrUnknown), errors.Is(err, tenancy.ErrDropping):
			return nil
		case err != nil:
			return err
		}
		return m.completeTenant(ctx, tx, name, schema, version, known)
	})
	return m.lacking(ctx, schema, err)
}

// completeTenant applies the migrations after version, and the steps of Options.TenantSetup, that a tenant lacks.
func (m migrator) completeTenant(ctx context.Context, tx pgx.Tx, name, schema string, version int,
	known migrations) error {
	if err := m.applyTenant(ctx, tx, name, schema, version, known.tenant); err != nil {
		return err
	}
	return m.setUpTenant(ctx, tx, name)
}

// isComplete reports whether the tenant exists and lacks no migration and no step.
func (m migrator) isComplete(ctx context.Context, t namedTenant, known migrations) (bool, error) {
	control, err := m.controlVersion(ctx, m.pool)
	if err != nil {
		return false, m.missing(err)
	}
	if err := migration.Acceptable(control, len(known.control)); err != nil {
		return false, err
	}
	_, version, err := m.tenantVersion(ctx, m.pool, t.name)
	if errors.Is(err, tenancy.ErrUnknown) {
		return false, nil
	}
	if err != nil || version < len(known.tenant) {
		return false, err
	}
	if err := migration.NotTooNew(version, len(known.tenant)); err != nil {
		return false, err
	}
	var applied int
	err = m.pool.QueryRow(ctx, m.control.sql("tenant_setup"), pgx.QueryExecModeExec, t.name).Scan(&applied)
	return err == nil && applied >= len(m.opts.TenantSetup), err
}

// insertTenant creates the schema and the row of a tenant.
func (m migrator) insertTenant(ctx context.Context, tx pgx.Tx, t namedTenant) error {
	if err := createTenantSchema(ctx, tx, t); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, m.control.sql("insert_tenant"), pgx.QueryExecModeExec, t.name, t.schema,
		m.control.controlChannel)
	return err
}

func createTenantSchema(ctx context.Context, tx pgx.Tx, t namedTenant) error {
	exists, err := schemaExists(ctx, tx, t.schema)
	if err != nil {
		return err
	}
	if exists {
		return fmt.Errorf("schema %q: %w", t.schema, ErrForeignSchema)
	}
	return execScript(ctx, tx, sqltext.Fill(queries.Text("create_schema"), "{schema}", sqltext.Name(t.schema)))
}

// applyTenant applies the migrations after version to a tenant, and records its new version.
func (m migrator) applyTenant(ctx context.Context, tx pgx.Tx, name, schema string, version int,
	list []migration.Step) error {
	if version >= len(list) {
		return migration.NotTooNew(version, len(list))
	}
	for _, next := range list[version:] {
		if err := execScript(ctx, tx, inSchemas(next.SQL, m.opts.Schema, schema)); err != nil {
			return fmt.Errorf("migration %s: %w", next.Name, err)
		}
	}
	_, err := tx.Exec(ctx, m.control.sql("set_tenant_version"), pgx.QueryExecModeExec, name, len(list))
	return err
}
