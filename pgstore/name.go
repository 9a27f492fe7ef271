package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

// validName reports why name cannot name a schema of ours; nil means that it can.
func validName(what, name string, most int) error {
	if name == "" {
		return fmt.Errorf("%s must not be empty", what)
	}
	if len(name) > most {
		return fmt.Errorf("%s must be at most %d bytes: %s", what, most, excerpt.Quoted(name))
	}
	if err := valid.Text(what, name); err != nil {
		return err
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s must not contain control characters: %s", what, excerpt.Quoted(name))
		}
	}
	return nil
}

// notReserved reports why a control schema must not have that name.
func notReserved(schema string) error {
	switch {
	case schema == "information_schema", strings.HasPrefix(schema+"_", "pg_"):
		return fmt.Errorf("Options.Schema must not be %q: the server keeps that name for itself", schema)
	case schema == "public":
		// Handlers of the default tenant find tables there without naming the schema, and so would they ours: nodes, tenants.
		return fmt.Errorf("Options.Schema must not be %q: name a schema that nothing else uses", schema)
	}
	return nil
}

// maxNameBytes is the length to which PostgreSQL cuts names.
const maxNameBytes = 63

// setTenantPath returns the statement that sets the search path of a transaction to that of a tenant: its schema, the shared
// schemas, and pg_temp last, where a temporary table hides no table of the tenant. It is empty for DefaultTenant, whose
// path is that of the session. It ends with a semicolon, and holds quoted names only.
func (s *Store) setTenantPath(tenant string) string {
	if tenant == projection.DefaultTenant {
		return ""
	}
	var sql strings.Builder
	sql.WriteString("set local search_path = " + sqltext.Name(s.opts.Schema+"_"+tenant) + ", ")
	for _, schema := range s.opts.SharedSchemas {
		sql.WriteString(sqltext.Name(schema) + ", ")
	}
	sql.WriteString("pg_temp; ")
	return sql.String()
}

// validShared reports why the tenants of a store cannot share these schemas; nil means that they can.
func validShared(control string, shared []string) error {
	for i, schema := range shared {
		if err := validName("Options.SharedSchemas: schema", schema, maxNameBytes); err != nil {
			return err
		}
		reason := ""
		switch {
		case slices.Contains(shared[:i], schema):
			reason = "it is named twice"
		case schema == "$user":
			reason = "in a search path it stands for another schema in each session; name the schema itself"
		case strings.HasPrefix(schema, "pg_"):
			reason = "schemas of the system cannot be shared; pg_catalog is searched first anyway"
		case schema == control:
			reason = "it is the control schema"
		case strings.HasPrefix(schema, control+"_"):
			reason = fmt.Sprintf("schemas whose names begin with %q are those of tenants", control+"_")
		default:
			continue
		}
		return fmt.Errorf("Options.SharedSchemas must not contain %q: %s", schema, reason)
	}
	return nil
}
