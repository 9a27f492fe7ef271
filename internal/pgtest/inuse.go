package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrInUse is returned for a database in which projections run.
var ErrInUse = errors.New("projections run in the database, and tests would disturb them: use another database")

// NotInUse returns ErrInUse if a node of a store in the database of a DSN is alive. Stores of tests ([SchemaOn]) do not
// count. A store whose nodes the user may not see counts as in use.
func NotInUse(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseLimit)
	defer cancel()
	return connected(ctx, dsn, func(conn *pgx.Conn) error {
		schemas, err := controlSchemas(ctx, conn)
		if err != nil {
			return err
		}
		for _, schema := range schemas {
			rows, _ := conn.Query(ctx, "select coalesce(nullif(name, ''), id::text) from "+
				pgx.Identifier{schema, "nodes"}.Sanitize()+" where expires_at > clock_timestamp()")
			nodes, err := pgx.CollectRows(rows, pgx.RowTo[string])
			switch {
			case err != nil:
				return fmt.Errorf("find out whether projections run in the database, schema %q: %w", schema, err)
			case len(nodes) > 0:
				return fmt.Errorf("%w (database %s, schema %q, nodes %s)", ErrInUse, conn.Config().Database, schema,
					strings.Join(nodes, ", "))
			}
		}
		return nil
	})
}

// controlSchemas returns the control schemas of the stores in a database, except those of tests.
func controlSchemas(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, `select n.nspname from pg_catalog.pg_namespace n
		where (select count(*) from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname in ('nodes', 'leases', 'tenants') and c.relkind = 'r') = 3
		  and not exists (select from pg_catalog.pg_namespace m where n.nspname ~ '^millrace_[0-9a-f]{8}$' and m.nspname = replace(n.nspname, 'millrace', 'models'))`)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
