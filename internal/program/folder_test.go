package program

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestTemporaryFoldersAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	kept, remove, err := TemporaryFolder("mill-")
	if err != nil {
		t.Fatal(err)
	}
	forced, _, err := TemporaryFolder("mill-")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{kept, forced} {
		if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(forced); err != nil {
		t.Errorf("another folder was removed: %v", err)
	}
	removeFolders()
	for _, folder := range []string{kept, forced} {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", folder, err)
		}
	}
}
