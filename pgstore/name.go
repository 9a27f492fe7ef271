package pgstore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

// notReserved returns an error if a control schema must not have that name.
func notReserved(schema string) error {
	switch {
	case schema == "information_schema", strings.HasPrefix(schema+"_", "pg_"):
		return fmt.Errorf("Options.Schema must not be %q: the server reserves that name", schema)
	case schema == "public":
		// Handlers of the default tenant would find the store's tables there, such as nodes and tenants.
		return fmt.Errorf("Options.Schema must not be %q: name a schema that nothing else uses", schema)
	}
	return nil
}

// maxNameBytes is the length to which PostgreSQL truncates names.
const maxNameBytes = 63

// tenantPathSQL returns the statement that sets the search path of a transaction to that of a tenant: its schema, the
// shared schemas, and pg_temp. Because pg_temp is last, a temporary table hides no table of the tenant. DefaultTenant
// keeps the path of the session, and its statement is empty. The statement contains only quoted names, and ends with a
// semicolon.
func (o *Options) tenantPathSQL(tenant string) string {
	path := o.tenantPath(tenant)
	if path == "" {
		return ""
	}
	return "set local search_path = " + path + "; "
}

// tenantPath is the search path of a tenant, empty for that of the session.
func (o *Options) tenantPath(tenant string) string {
	if tenant == projection.DefaultTenant {
		return ""
	}
	var path strings.Builder
	path.WriteString(sqltext.Name(schemaName(o.Schema, tenant)) + ", ")
	for _, schema := range o.SharedSchemas {
		path.WriteString(sqltext.Name(schema) + ", ")
	}
	path.WriteString("pg_temp")
	return path.String()
}

// validShared returns an error if the tenants of a store cannot share these schemas.
func validShared(control string, shared []string) error {
	for i, schema := range shared {
		if err := valid.Name("Options.SharedSchemas: schema", schema, maxNameBytes); err != nil {
			return err
		}
		reason := ""
		switch {
		case slices.Contains(shared[:i], schema):
			reason = "it is listed twice"
		case schema == "$user":
			reason = "it means another schema in each session; list the schema itself"
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
