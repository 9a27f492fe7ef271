package pgstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// ControlMigrations returns the migrations of a control schema as SQL, for psql, goose and other tools. They begin after
// version after, the database's current version, 0 for a new database. The text is empty if no migration follows.
//
// The schema is named as in Options. The SQL must run in one transaction, and does exactly what Migrate does to the control
// schema. It fails without effect if the database is at another version. DefaultTenant is a tenant like others: see
// TenantMigrations.
func ControlMigrations(schema string, after int) (string, error) {
	return controlScript(schema, after, ownMigrations.control)
}

// TenantMigrations returns the migrations of a tenant as SQL, as ControlMigrations does for the control schema, which must
// be migrated first. After version 0 they begin with the creation of the tenant.
func TenantMigrations(schema, tenant string, after int) (string, error) {
	return tenantScript(schema, tenant, after, ownMigrations.tenant)
}

func controlScript(schema string, after int, list []migration) (string, error) {
	opts := Options{Schema: schema}.withDefaults()
	if err := opts.validate(); err != nil {
		return "", fmt.Errorf("migrations of a control schema: %w", err)
	}
	if after < 0 || after > len(list) {
		return "", fmt.Errorf("migrations of a control schema: after must be from 0 to %d: %d", len(list), after)
	}
	if after == len(list) {
		return "", nil
	}
	s := newScript(opts.Schema, "")
	if after == 0 {
		s.add(queryText("create_schema"), "{schema}", sqltext.Name(opts.Schema))
		s.add(queryText("schema_versions"))
	} else {
		s.guard("require_control_version", strconv.Itoa(after))
	}
	for i, next := range list[after:] {
		s.add(next.sql)
		s.add(queryText("record_version"), "$1", strconv.Itoa(after+i+1), "$2", sqltext.String(next.name))
	}
	return s.text.String(), nil
}

func tenantScript(schema, tenant string, after int, list []migration) (string, error) {
	opts := Options{Schema: schema}.withDefaults()
	err := opts.validate()
	if err == nil {
		err = validName("tenant", tenant, 32)
	}
	if err != nil {
		return "", fmt.Errorf("migrations of a tenant: %w", err)
	}
	if after < 0 || after > len(list) {
		return "", fmt.Errorf("migrations of a tenant: after must be from 0 to %d: %d", len(list), after)
	}
	if after == len(list) {
		return "", nil
	}
	events := opts.Schema + "_" + tenant
	s := newScript(opts.Schema, events)
	if after == 0 {
		s.add(queryText("create_schema"), "{schema}", sqltext.Name(events))
		s.add(queryText("insert_tenant"), "$1", sqltext.String(tenant), "$2", sqltext.String(events))
	} else {
		s.guard("require_tenant_version", sqltext.String(tenant), strconv.Itoa(after))
	}
	for _, next := range list[after:] {
		s.add(next.sql)
	}
	s.add(queryText("set_tenant_version"), "$1", sqltext.String(tenant), "$2", strconv.Itoa(len(list)))
	return s.text.String(), nil
}

// script is what a migration sends, as text.
type script struct {
	text            strings.Builder
	control, tenant string
}

func newScript(control, tenant string) *script {
	s := &script{control: control, tenant: tenant}
	s.add(queryText("begin_migration"))
	s.add(queryText("migration_lock"), "$1", strconv.FormatInt(migrationKey(control), 10))
	return s
}

// add adds statements with values in place of their parameters. All are put in at once, since a tenant may be called $1 or
// {control}.
func (s *script) add(sql string, values ...string) {
	s.text.WriteString(strings.TrimSuffix(strings.TrimSpace(s.filled(sql, values...)), ";") + ";\n\n")
}

func (s *script) filled(sql string, values ...string) string {
	return sqltext.Fill(sql, append(values, "{control}", sqltext.Name(s.control), "{tenant}", sqltext.Name(s.tenant))...)
}

// guard adds a DO statement, whose body is quoted as a whole: no dollar quote is safe from the name of a tenant.
func (s *script) guard(name string, values ...string) {
	var parameters []string
	for i, value := range values {
		parameters = append(parameters, "$"+strconv.Itoa(i+1), value)
	}
	s.add("do $1", "$1", sqltext.String(s.filled(queryText(name), parameters...)))
}
