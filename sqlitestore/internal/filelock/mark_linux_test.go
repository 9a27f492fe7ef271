package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestFileHasOneMarkAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	first, second, other := opened(t, path), opened(t, path), opened(t, path)
	for _, file := range []*os.File{first, second} {
		if err := Mark(file, "a"); err != nil {
			t.Fatal(err)
		}
	}
	// The bytes of these names are before and after that of "a".
	for i := range 20 {
		if err := Mark(other, fmt.Sprint("b", i)); !errors.Is(err, ErrLocked) {
			t.Fatalf("another mark: %v", err)
		}
	}
	for _, file := range []*os.File{first, second} {
		if err := Mark(other, "b"); !errors.Is(err, ErrLocked) {
			t.Fatalf("another mark while one is left: %v", err)
		}
		if err := Unmark(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := Mark(other, "b"); err != nil {
		t.Errorf("after the marks were removed: %v", err)
	}
	if err := Mark(opened(t, path+"2"), "a"); err != nil {
		t.Errorf("another file: %v", err)
	}
}

func TestMarkEndsAlthoughTheFileIsInherited(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	first, other := opened(t, path), opened(t, path)
	if err := Mark(first, "a"); err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inherited) }()
	if err := errors.Join(Unmark(first), first.Close(), Mark(other, "b")); err != nil {
		t.Error(err)
	}
}

func TestLocksOfOtherProgramsAreNoMarks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	program, store := opened(t, path), opened(t, path)
	whole := unix.Flock_t{Type: unix.F_RDLCK}
	if err := errors.Join(lockBytes(program, unix.F_OFD_SETLK, &whole), Mark(store, "a")); err != nil {
		t.Error(err)
	}
}
