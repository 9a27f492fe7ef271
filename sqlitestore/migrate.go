package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/projection"
)

var (
	// ErrNotMigrated is returned if tables of the store are missing.
	ErrNotMigrated = migration.ErrNotMigrated
	// ErrSchemaTooNew is returned if the file is more than one schema version ahead of this version of the library.
	ErrSchemaTooNew = migration.ErrTooNew
)

// Migrate brings the file to this program's version, and creates DefaultTenant. Each migration is a separate
// transaction, and any number of processes may migrate at once. Migrate never goes back to an older version. It accepts
// a schema that is one version newer, so that an old and a new program can run side by side during a deployment. For
// still newer schemas it returns ErrSchemaTooNew.
//
// A new file must be migrated before other tables are created in it. The header's fields application_id and
// user_version belong to the store.
func (s *Store) Migrate(ctx context.Context) error {
	return s.migrate(ctx, ownMigrations)
}

func (s *Store) migrate(ctx context.Context, list []migration.Step) error {
	if err := s.notWithin(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", s.path, err)
	}
	for done := false; !done; {
		var err error
		done, err = s.migrateNext(ctx, list)
		if err != nil {
			return fmt.Errorf("migrate %s: %w", s.path, damaged(err))
		}
	}
	if err := s.plane().MakeSnapshots(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", s.path, err)
	}
	if _, err := s.CreateTenant(ctx, projection.DefaultTenant); err != nil {
		return fmt.Errorf("migrate %s: %w", s.path, err)
	}
	return nil
}

// migrateNext applies the next migration. It reports whether none was missing.
func (s *Store) migrateNext(ctx context.Context, list []migration.Step) (done bool, err error) {
	version, err := schemaVersion(ctx, s.readers)
	switch {
	case err != nil:
		return false, err
	case int(version) >= len(list):
		return true, migration.NotTooNew(int(version), len(list))
	}
	return false, s.transact(ctx, func(tx *sql.Tx) error { return s.migrateOnce(ctx, tx, list) })
}

// migrateOnce applies the next migration, if another process has not done so meanwhile.
func (s *Store) migrateOnce(ctx context.Context, tx *sql.Tx, list []migration.Step) error {
	version, err := schemaVersion(ctx, tx)
	if err != nil || int(version) >= len(list) {
		return err
	}
	if version == 0 {
		objects, err := number(ctx, tx, "count_objects")
		if err != nil {
			return err
		}
		if objects > 0 {
			return fmt.Errorf("%w: it has tables of another program", ErrForeignFile)
		}
		if err := setHeader(ctx, tx, "set_application_id", "{id}", applicationID); err != nil {
			return err
		}
	}
	if version > 0 {
		if err := movedTo(ctx, tx); err != nil {
			return err
		}
	}
	next := list[version]
	if _, err := tx.ExecContext(ctx, next.SQL); err != nil {
		return fmt.Errorf("migration %s: %w", next.Name, err)
	}
	return setHeader(ctx, tx, "set_user_version", "{version}", version+1)
}

// setHeader sets a field of the file's header. Such a statement has no parameters.
func setHeader(ctx context.Context, tx *sql.Tx, statement, placeholder string, value int64) error {
	_, err := tx.ExecContext(ctx, strings.ReplaceAll(queries.Text(statement),
		placeholder, strconv.FormatInt(value, 10)))
	return err
}

// schemaVersion returns the version of the schema, which is in the file's header.
func schemaVersion(ctx context.Context, q querier) (int64, error) {
	version, err := number(ctx, q, "user_version")
	if err != nil {
		return version, err
	}
	return version, checkVersion(version)
}

// checkVersion returns an error for a version that no program of this library writes.
func checkVersion(version int64) error {
	if version < 0 {
		return fmt.Errorf("%w: the header's user_version is %d", ErrCorrupt, version)
	}
	return nil
}

// ready returns an error if the schema is not that of this program, or one version newer.
func (db *database) ready(ctx context.Context) error {
	if db.migrated.Load() {
		return nil
	}
	version, err := schemaVersion(ctx, db.readers)
	if err != nil {
		return err
	}
	if err := migration.Acceptable(int(version), len(ownMigrations)); err != nil {
		return err
	}
	db.migrated.Store(true)
	return nil
}
