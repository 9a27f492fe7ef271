package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/tenancy"
)

//go:embed migrations
var migrationFiles embed.FS

// ownMigrations are the migrations of this program.
var ownMigrations = mustLoadMigrations(migrationFiles)

type migrations struct{ control, tenant []migration.Step }

func mustLoadMigrations(files fs.FS) migrations {
	control, err := migration.Load(files, "migrations/control")
	if err != nil {
		panic(err)
	}
	tenant, err := migration.Load(files, "migrations/tenant")
	if err != nil {
		panic(err)
	}
	return migrations{control: control, tenant: tenant}
}

var createdObject = regexp.MustCompile(`create (?:unlogged )?(?:table|function|view|type|sequence) \{control\}\.(\w+)`)

// controlNames returns the names of the objects in the control schema.
func controlNames(list []migration.Step) []string {
	names := []string{"schema_versions", "snapshots"}
	for _, m := range list {
		for _, created := range createdObject.FindAllStringSubmatch(m.SQL, -1) {
			names = append(names, created[1])
		}
	}
	return names
}

// locked runs fn in a transaction that holds the store's migration lock, and commits it. The transaction is READ
// COMMITTED, so its statements see what the previous holder of the lock committed.
func (m migrator) locked(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return m.lockedBy(ctx, "migration_lock", fn)
}

// lockedBy is locked with a statement that takes the migration lock.
func (m migrator) lockedBy(ctx context.Context, statement string, fn func(tx pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return m.inTx(ctx, options, func(tx pgx.Tx) error {
		if err := execScript(ctx, tx, queries.Text("begin_migration")+"; "+m.server.unbounded); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, queries.Text(statement), pgx.QueryExecModeExec,
			lockKey("millrace migrate "+m.opts.Schema)); err != nil {
			return err
		}
		return fn(tx)
	})
}

// execScript runs any number of statements without parameters, by the simple protocol.
func execScript(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

func schemaExists(ctx context.Context, q querier, name string) (exists bool, err error) {
	err = q.QueryRow(ctx, queries.Text("schema_exists"), pgx.QueryExecModeExec, name).Scan(&exists)
	return exists, err
}

func (db *database) controlVersion(ctx context.Context, q querier) (version int, err error) {
	err = q.QueryRow(ctx, db.control.sql("control_version"), pgx.QueryExecModeExec).Scan(&version)
	return version, err
}

// tenantVersion returns the schema and the version of a tenant. The error is tenancy.ErrUnknown if there is
// none of that name, tenancy.ErrDropping while it is being dropped, and tenancy.ErrDropped if its schema
// is gone.
func (db *database) tenantVersion(ctx context.Context, q querier, name string) (schema string, version int, err error) {
	var state tenancy.State
	var gone bool
	err = q.QueryRow(ctx, db.control.sql("tenant_version"), pgx.QueryExecModeExec, name).Scan(&schema, &version, &state,
		&gone)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = fmt.Errorf("%w %q", tenancy.ErrUnknown, name)
	case err == nil && state == tenancy.Dropping:
		err = fmt.Errorf("tenant %q: %w", name, tenancy.ErrDropping)
	case err == nil && gone:
		err = fmt.Errorf("the schema %q of tenant %q is gone: %w", schema, name, tenancy.ErrDropped)
	}
	return schema, version, err
}

// outdatedTenants lists the next tenants after a name that are not at this program's version, or whose schema is gone.
func (db *database) outdatedTenants(ctx context.Context, own int, after string) ([]string, error) {
	rows, _ := db.pool.Query(ctx, db.control.sql("outdated_tenants"), pgx.QueryExecModeExec, own,
		len(db.opts.TenantSetup), after)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// ControlMigrations returns the migrations of a control schema as SQL, for psql, goose and other tools. after is the
// database's current version, 0 for a new database. The text is empty if the database is up to date.
//
// schema is as in Options. The SQL does what Migrate does to the control schema. It must run in one transaction, and
// fails without effect if the database is at another version. It does not create DefaultTenant: see TenantMigrations.
// It also creates the table of snapshots of package aggregate, and renews the functions that check leases. A database
// that is up to date may lack both, and gets them by Migrate of the owner's role.
func ControlMigrations(schema string, after int) (string, error) {
	return controlScript(schema, after, ownMigrations.control)
}

// TenantMigrations returns the migrations of a tenant as SQL, as ControlMigrations does for the control schema, which
// must be migrated first. If after is 0, they begin with the creation of the tenant.
func TenantMigrations(schema, tenant string, after int) (string, error) {
	return tenantScript(schema, tenant, after, ownMigrations.tenant)
}

func controlScript(schema string, after int, list []migration.Step) (string, error) {
	s, err := newScript("a control schema", schema, "", after, len(list))
	switch {
	case err != nil || after == len(list):
		return "", err
	case after == 0:
		s.add(queries.Text("create_schema"), "{schema}", sqltext.Name(s.control))
		s.add(queries.Text("schema_versions"))
	default:
		s.guard("require_control_version", strconv.Itoa(after))
	}
	for i, next := range list[after:] {
		s.add(next.SQL)
		s.add(queries.Text("record_version"), "$1", strconv.Itoa(after+i+1), "$2", sqltext.String(next.Name))
	}
	s.add(queries.Text("fence_functions"))
	s.add(queries.Text("create_snapshots"))
	return s.text.String(), nil
}

func tenantScript(schema, tenant string, after int, list []migration.Step) (string, error) {
	if err := valid.Tenant(tenant); err != nil {
		return "", fmt.Errorf("migrations of a tenant: %w", err)
	}
	s, err := newScript("a tenant", schema, tenant, after, len(list))
	switch {
	case err != nil || after == len(list):
		return "", err
	case after == 0:
		s.add(queries.Text("create_schema"), "{schema}", sqltext.Name(s.tenant))
		s.add(queries.Text("insert_tenant"), "$1", sqltext.String(tenant), "$2", sqltext.String(s.tenant),
			"$3", sqltext.String(controlChannel(s.control)))
	default:
		s.guard("require_tenant_version", sqltext.String(tenant), strconv.Itoa(after))
	}
	for _, next := range list[after:] {
		s.add(next.SQL)
	}
	s.add(queries.Text("set_tenant_version"), "$1", sqltext.String(tenant), "$2", strconv.Itoa(len(list)))
	return s.text.String(), nil
}

// script is the text of migrations. control and tenant are the names of the schemas.
type script struct {
	text            strings.Builder
	control, tenant string
}

// newScript begins the migrations from version after to newest.
func newScript(of, schema, tenant string, after, newest int) (*script, error) {
	opts := Options{Schema: schema}.withDefaults()
	err := opts.validate()
	if err == nil && (after < 0 || after > newest) {
		err = fmt.Errorf("after must be from 0 to %d: %d", newest, after)
	}
	if err != nil {
		return nil, fmt.Errorf("migrations of %s: %w", of, err)
	}
	s := &script{control: opts.Schema, tenant: schemaName(opts.Schema, tenant)}
	s.add(queries.Text("begin_migration"))
	s.add(queries.Text("migration_lock"), "$1", strconv.FormatInt(lockKey("millrace migrate "+s.control), 10))
	return s, nil
}

// add adds statements with values in place of their parameters. It replaces all at once, since a tenant may be called
// $1 or {control}.
func (s *script) add(sql string, values ...string) {
	s.text.WriteString(strings.TrimSuffix(strings.TrimSpace(s.filled(sql, values...)), ";") + ";\n\n")
}

func (s *script) filled(sql string, values ...string) string {
	return sqltext.Fill(sql, append(values, "{control}",
		sqltext.Name(s.control), "{tenant}", sqltext.Name(s.tenant))...)
}

// guard adds a DO statement, whose body is quoted as a whole: no dollar quote is safe from the name of a tenant.
func (s *script) guard(name string, values ...string) {
	var parameters []string
	for i, value := range values {
		parameters = append(parameters, "$"+strconv.Itoa(i+1), value)
	}
	s.add("do $1", "$1", sqltext.String(s.filled(queries.Text(name), parameters...)))
}
