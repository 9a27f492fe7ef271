// Package migration has the code for schema versions that all stores share.
package migration

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

var (
	// ErrNotMigrated is returned if the schema is missing or too old.
	ErrNotMigrated = errors.New("the schema is missing or too old: call Migrate")
	// ErrTooNew is returned if the schema is more than one version ahead of this version of the library.
	ErrTooNew = errors.New("the schema is too new for this program")
)

// Step is one migration. Its version is its place in the list, from 1.
type Step struct{ Name, SQL string }

// Load reads the migrations of a folder, whose files are named 0001_what.sql and so on without a gap.
func Load(files fs.FS, folder string) ([]Step, error) {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, err
	}
	var list []Step
	for _, entry := range entries {
		if prefix := fmt.Sprintf("%04d_", len(list)+1); !strings.HasPrefix(entry.Name(), prefix) {
			return nil, fmt.Errorf("migration %s/%s: the next migration must be named %s*.sql",
				folder, entry.Name(), prefix)
		}
		raw, err := fs.ReadFile(files, path.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, Step{Name: strings.TrimSuffix(entry.Name(), ".sql"), SQL: string(raw)})
	}
	return list, nil
}

// Acceptable returns an error if a program whose newest migration is own cannot work with a schema of that version.
func Acceptable(version, own int) error {
	if version < own {
		return fmt.Errorf("schema version %d is older than this program's %d: %w", version, own, ErrNotMigrated)
	}
	return NotTooNew(version, own)
}

// NotTooNew returns an error if the schema is more than one version ahead of a program whose newest migration is own.
func NotTooNew(version, own int) error {
	if version > own+1 {
		return fmt.Errorf("schema version %d, this program has %d and accepts up to %d: %w", version, own, own+1,
			ErrTooNew)
	}
	return nil
}
