package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/projection"
)

//go:embed migrations
var migrationFiles embed.FS

// ownMigrations are those of this program.
var ownMigrations = mustLoadMigrations(migrationFiles)

// migration is one step forward. Its version is its place in the list, from 1.
type migration struct{ name, sql string }

type migrations struct{ control, tenant []migration }

func mustLoadMigrations(files fs.FS) migrations {
	control, err := loadMigrations(files, "migrations/control")
	if err != nil {
		panic(err)
	}
	tenant, err := loadMigrations(files, "migrations/tenant")
	if err != nil {
		panic(err)
	}
	return migrations{control: control, tenant: tenant}
}

// loadMigrations reads the files of a folder, which are named 0001_what.sql and so on without a gap.
func loadMigrations(files fs.FS, folder string) ([]migration, error) {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, err
	}
	var list []migration
	for _, entry := range entries {
		if prefix := fmt.Sprintf("%04d_", len(list)+1); !strings.HasPrefix(entry.Name(), prefix) {
			return nil, fmt.Errorf("migration %s/%s: the next one must be named %s*.sql", folder, entry.Name(), prefix)
		}
		raw, err := fs.ReadFile(files, path.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, migration{name: strings.TrimSuffix(entry.Name(), ".sql"), sql: string(raw)})
	}
	return list, nil
}

var createdObject = regexp.MustCompile(`create (?:unlogged )?(?:table|function|view|type|sequence) \{control\}\.(\w+)`)

// controlNames are the names of what the control schema holds.
func controlNames(list []migration) []string {
	names := []string{"schema_versions"}
	for _, m := range list {
		for _, created := range createdObject.FindAllStringSubmatch(m.sql, -1) {
			names = append(names, created[1])
		}
	}
	return names
}

// acceptable reports why a program whose newest migration is own cannot work with a schema of that version.
func acceptable(version, own int) error {
	if version < own {
		return fmt.Errorf("schema version %d is older than this program's %d: %w", version, own, ErrNotMigrated)
	}
	return notTooNew(version, own)
}

func notTooNew(version, own int) error {
	if version > own+1 {
		return fmt.Errorf("schema version %d, this program has %d and accepts up to %d: %w", version, own, own+1, ErrSchemaTooNew)
	}
	return nil
}

// locked runs fn in a transaction that holds the store's migration lock, and commits it. Statements in it see what the
// holder before it committed, since they are READ COMMITTED and run after the lock was taken.
func (s *Store) locked(ctx context.Context, fn func(tx pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return s.inTx(ctx, options, func(tx pgx.Tx) error {
		// The wait for others and a long migration are bounded by ctx alone. What is migrated must not be lost.
		if err := execScript(ctx, tx, queryText("begin_migration")+"; "+s.server.unbounded); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, queryText("migration_lock"), pgx.QueryExecModeExec, migrationKey(s.opts.Schema)); err != nil {
			return err
		}
		return fn(tx)
	})
}

// migrationKey is the advisory lock's key of a control schema.
func migrationKey(schema string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("millrace migrate " + schema))
	return int64(h.Sum64())
}

// execScript runs statements without parameters, as many as there are, by the simple protocol.
func execScript(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// rowQuerier is what one row can be asked of: the pool, or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func schemaExists(ctx context.Context, q rowQuerier, name string) (exists bool, err error) {
	err = q.QueryRow(ctx, queryText("schema_exists"), pgx.QueryExecModeExec, name).Scan(&exists)
	return exists, err
}

func (s *Store) controlVersion(ctx context.Context, q rowQuerier) (version int, err error) {
	err = q.QueryRow(ctx, s.control.sql("control_version"), pgx.QueryExecModeExec).Scan(&version)
	return version, err
}

// tenantVersion returns where a tenant is and its version: projection.ErrUnknownTenant where there is none of that name,
// projection.ErrTenantDropped where its schema is gone.
func (s *Store) tenantVersion(ctx context.Context, q rowQuerier, name string) (schema string, version int, err error) {
	var gone bool
	err = q.QueryRow(ctx, s.control.sql("tenant_version"), pgx.QueryExecModeExec, name).Scan(&schema, &version, &gone)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = fmt.Errorf("%w %q", projection.ErrUnknownTenant, name)
	case err == nil && gone:
		err = fmt.Errorf("the schema %q of tenant %q is gone: %w", schema, name, projection.ErrTenantDropped)
	}
	return schema, version, err
}

// behindTenant is a tenant that Migrate has to look at.
type behindTenant struct{ name, schema string }

// tenantsBehind lists the next tenants that are not at this program's version, or whose schema is gone, so that the others
// cost nothing.
func (s *Store) tenantsBehind(ctx context.Context, own int, after string) ([]behindTenant, error) {
	rows, _ := s.pool.Query(ctx, s.control.sql("outdated_tenants"), pgx.QueryExecModeExec, own, len(s.opts.TenantSetup), after)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b behindTenant, err error) {
		return b, row.Scan(&b.name, &b.schema)
	})
}
